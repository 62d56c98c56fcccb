"""Crops of textures, photographs from folders and from an installed distribution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from shiftproof.errors import DataError
from shiftproof.keyed import Keyed
from shiftproof.shifts.corruptions.frost import RELEASED, Atlas, Frost, photographs
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.tables import Parameters

P = Parameters(image=0.8, frost=0.6, scale=0.2)
CPU = torch.device("cpu")


def save(path: Path, level: int, size: tuple[int, int] = (300, 260)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (level, level, level)).save(path)


def added(folder: Path | str, count: int = 200, channels: int = 3, side: int = 32) -> torch.Tensor:
    """Return what frost adds to black images, 0..255, one number per image."""
    frost = Frost(str(folder))
    unit = frost.sample(Keyed(0, range(count)), Shape(channels, side, side), P)
    return (frost.apply(torch.zeros(count, channels, side, side), unit, P) * (255 / P.frost)).mean(dim=(1, 2, 3))


class TestAtlas:
    def test_crops_are_the_slices_the_numbers_say(self) -> None:
        textures = [torch.rand(3, 20, 30), torch.rand(3, 17, 12)]
        unit = torch.tensor([[0.0, 0.0, 0.0], [0.49, 0.5, 0.999], [0.5, 0.3, 0.2], [0.9, 0.999, 0.999]])
        crops = Atlas.of(textures, CPU).crops(unit, 8, 9)
        assert torch.equal(crops[0], textures[0][:, :8, :9])
        assert torch.equal(crops[1], textures[0][:, 6:14, 20:29])
        assert torch.equal(crops[2], textures[1][:, 2:10, 0:9])
        assert torch.equal(crops[3], textures[1][:, 8:16, 2:11])


class TestFrost:
    @pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 23, 40), (3, 8, 400)])
    def test_an_image_has_the_same_bits_in_any_batch(self, channels: int, height: int, width: int) -> None:
        images, keys = torch.rand(16, channels, height, width), torch.arange(16)
        frost = Frost()

        def frosted(rows: slice) -> torch.Tensor:
            unit = frost.sample(Keyed(0, keys[rows]), Shape(channels, height, width), P)
            return frost.apply(images[rows], unit, P)

        together = frosted(slice(None))
        assert together.shape == images.shape
        assert torch.equal(frosted(slice(3, 4)), together[3:4])
        assert torch.equal(frosted(slice(5, 12)), together[5:12])

    def test_images_are_dimmed_and_covered(self) -> None:
        unit = Frost().sample(Keyed(0, range(8)), Shape(3, 32, 32), P)
        black, white = (Frost().apply(torch.full((8, 3, 32, 32), level), unit, P) for level in (0.0, 1.0))
        torch.testing.assert_close(white - black, torch.full_like(white, 0.8))
        assert black.min() >= 0
        assert 0.2 < black.mean() < 0.5

    def test_one_channel_gets_the_luma(self) -> None:
        unit = Frost().sample(Keyed(0, range(4)), Shape(3, 32, 32), P)
        colour = Frost().apply(torch.zeros(4, 3, 32, 32), unit, P)
        grey = Frost().apply(torch.zeros(4, 1, 32, 32), unit, P)
        weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
        torch.testing.assert_close(grey, (colour * weights).sum(dim=1, keepdim=True))


class TestPhotographs:
    def test_all_pictures_of_a_folder_are_drawn(self, tmp_path: Path) -> None:
        for level in (50, 100, 200):
            save(tmp_path / f"{level}.png", level)
        (tmp_path / "LICENSE").write_text("of the photographs")
        levels, counts = added(tmp_path).round().unique(return_counts=True)
        assert levels.tolist() == [50, 100, 200]
        assert counts.min() > 40

    def test_of_the_published_six_the_first_five_are_drawn(self, tmp_path: Path) -> None:
        for number, name in enumerate((*RELEASED, "frost6.jpg")):
            save(tmp_path / name, 20 + 40 * number)
        assert [path.name for path in photographs(str(tmp_path))] == list(RELEASED)

    def test_small_images_see_photographs_at_a_fifth_of_their_size(self, tmp_path: Path) -> None:
        stripes = np.zeros((300, 300, 3), np.uint8)
        stripes[:, 2::10] = 250  # every second column of those that one fifth keeps
        Image.fromarray(stripes).save(tmp_path / "stripes.png")
        unit = torch.zeros(1, 3)
        crop = Frost(str(tmp_path)).apply(torch.zeros(1, 3, 32, 32), unit, P) * (255 / P.frost)
        assert crop[0, 0, 0, :4].round().tolist() == [250, 0, 250, 0]

    def test_pictures_too_small_are_enlarged(self, tmp_path: Path) -> None:
        save(tmp_path / "small.png", 90, size=(40, 30))
        assert added(tmp_path, count=2, side=64).tolist() == pytest.approx([90, 90], abs=0.01)

    def test_an_installed_distribution_is_found_by_its_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in RELEASED:
            save(tmp_path / "imagecorruptions" / "frost" / name, 120)
        (tmp_path / "imagecorruptions" / "__init__.py").write_text("raise ImportError('not to be imported')")
        info = tmp_path / "imagecorruptions-1.1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: imagecorruptions\nVersion: 1.1.2\n")
        files = ["imagecorruptions/__init__.py", *(f"imagecorruptions/frost/{name}" for name in RELEASED)]
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        monkeypatch.syspath_prepend(str(tmp_path))
        assert [path.name for path in photographs("imagecorruptions")] == list(RELEASED)
        assert added("imagecorruptions", count=3).tolist() == pytest.approx([120] * 3, abs=3)

    def test_a_folder_without_pictures_says_what_to_do(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="no frost photographs") as caught:
            photographs(str(tmp_path / "nowhere"))
        assert "leave `textures` out" in str(caught.value)
