"""What a copy makes of files of every mode: names, formats, modes and depth are kept, or refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from shiftproof import DataSpec
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.exports.writing import write_corrupted
from shiftproof.shifts import corrupt
from tests.exports.deep_files import png16, tiff16
from tests.exports.test_writing import photo, pixels

RGB = photo(32, 24, 0)
GREY = RGB[:, :, 0]
ALPHA = np.random.default_rng(3).integers(0, 256, (24, 32), dtype=np.uint8)
DEEP = (np.linspace(0.1, 0.8, 24 * 32).reshape(24, 32) * 65535).astype(np.uint16)


def with_alpha(values: NDArray[np.uint8]) -> Image.Image:
    image = Image.fromarray(values)
    image.putalpha(Image.fromarray(ALPHA))
    return image


def copied(root: Path, out: Path, *shifts: str, **options: Any) -> None:
    data = DataSpec(root, **{name: options.pop(name) for name in ("color", "size") if name in options})
    write_corrupted(data, out, shifts=shifts or ["gaussian_noise@2"], **options)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a flat folder with nothing in it yet."""
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


IMAGES = {
    "a.png": (Image.fromarray(RGB), "RGB"),
    "b.PNG": (Image.fromarray(RGB), "RGB"),
    "c.JPG": (Image.fromarray(RGB), "RGB"),
    "d.jpeg": (Image.fromarray(GREY), "L"),
    "e.webp": (Image.fromarray(RGB), "RGB"),
    "f.bmp": (Image.fromarray(RGB), "RGB"),
    "g.tif": (Image.fromarray(GREY), "L"),
    "h.png": (Image.fromarray(GREY), "L"),
    "i.png": (with_alpha(RGB), "RGBA"),
    "j.png": (with_alpha(GREY), "LA"),
    "k.png": (Image.fromarray(RGB).quantize(64), "RGB"),
    "l.jpg": (Image.fromarray(RGB).convert("CMYK"), "RGB"),
    "m.gif": (Image.fromarray(RGB).quantize(64), "P"),
    "n.png": (Image.fromarray(GREY).convert("1"), "L"),
    "o.tiff": (with_alpha(RGB), "RGBA"),
    "p.webp": (with_alpha(RGB), "RGBA"),
    "q.png": (Image.fromarray(DEEP), "I;16"),
    "r.tif": (Image.fromarray(DEEP), "I;16"),
}


def test_names_formats_and_modes_are_kept(root: Path, tmp_path: Path) -> None:
    for name, (image, _) in IMAGES.items():
        image.save(root / name, "JPEG" if name == "c.JPG" else None)
    copied(root, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} - {"manifest.json", "run.sqlite", "run.lock"} == set(
        IMAGES
    )
    for name, (image, mode) in IMAGES.items():
        with Image.open(root / name) as source, Image.open(tmp_path / "out" / name) as made:
            assert (name, made.format, made.mode, made.size) == (name, source.format, mode, image.size)


@pytest.mark.parametrize("name", ["a.png", "h.png", "i.png", "j.png", "q.png", "r.tif", "g.tif", "f.bmp"])
def test_a_lossless_copy_is_what_corrupt_makes_of_the_image(root: Path, tmp_path: Path, name: str) -> None:
    image, _ = IMAGES[name]
    image.save(root / name)
    copied(root, tmp_path / "out", "gaussian_noise@2", seed=4)
    made, expected = pixels(tmp_path / "out" / name), np.asarray(corrupt(image, "gaussian_noise@2", seed=4))
    assert made.dtype == expected.dtype
    assert np.array_equal(made, expected)


def test_with_a_color_files_are_what_load_data_reads(root: Path, tmp_path: Path) -> None:
    for name in ("h.png", "i.png", "q.png"):
        IMAGES[name][0].save(root / name)
    (root / "deep.png").write_bytes(png16(np.dstack([DEEP] * 3)))
    copied(root, tmp_path / "out", "jpeg_compression@2", color="rgb")
    for name in ("h.png", "i.png", "q.png", "deep.png"):
        with Image.open(tmp_path / "out" / name) as made:
            assert made.mode == "RGB"
    assert json.loads((tmp_path / "out/manifest.json").read_text())["color"] == "rgb"
    (root / "i.png").unlink()
    (root / "deep.png").unlink()
    copied(root, tmp_path / "grey", "jpeg_compression@2", color="gray")
    with Image.open(tmp_path / "grey/q.png") as made:
        assert made.mode == "L"


def test_alpha_moves_with_content(root: Path, tmp_path: Path) -> None:
    for name in ("i.png", "j.png"):
        IMAGES[name][0].save(root / name)
    copied(root, tmp_path / "out", "flip", "rotate=30")
    for name in ("i.png", "j.png"):
        assert np.array_equal(pixels(tmp_path / "out/flip" / name)[..., -1], ALPHA[:, ::-1])
        turned = np.asarray(corrupt(IMAGES[name][0], "rotate=30"))
        assert np.array_equal(pixels(tmp_path / "out/rotate=30" / name), turned)


def test_formats_without_alpha_are_laid_on_white(root: Path, tmp_path: Path) -> None:
    clear = Image.new("RGBA", (16, 16), (200, 0, 0, 0))
    clear.save(root / "clear.png")
    copied(root, tmp_path / "out", "contrast@1", format="jpg")
    assert pixels(tmp_path / "out/clear.jpg").min() > 250


def test_a_camera_held_sideways_is_turned(root: Path, tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(RGB).save(root / "a.jpg", exif=turned, quality=95)
    copied(root, tmp_path / "out", "contrast@1")
    with Image.open(tmp_path / "out/a.jpg") as made:
        assert made.size == (24, 32)
        assert 0x0112 not in made.getexif()


class TestDepth:
    def test_sixteen_bits_keep_their_levels(self, root: Path, tmp_path: Path) -> None:
        (root / "hand.png").write_bytes(png16(DEEP[:, :, None]))
        Image.fromarray(DEEP).save(root / "pillow.png")
        copied(root, tmp_path / "out", "contrast@1")
        for name in ("hand.png", "pillow.png"):
            made = pixels(tmp_path / "out" / name)
            assert made.dtype == np.uint16
            assert len(np.unique(made)) > 500
        assert np.array_equal(made, corrupt(DEEP, "contrast@1"))

    def test_shifts_on_256_levels_refuse_them_before_anything_is_written(self, root: Path, tmp_path: Path) -> None:
        Image.fromarray(DEEP).save(root / "deep.png")
        with pytest.raises(ConfigurationError, match=r"(?s)deep\.png.*16 bits.*pixelate@2.*--color rgb"):
            copied(root, tmp_path / "out", "fog@3", "pixelate@2", "rotate=5")
        assert not (tmp_path / "out").exists()
        copied(root, tmp_path / "eight", "pixelate@2", color="rgb")
        assert pixels(tmp_path / "eight/deep.png").dtype == np.uint8
        copied(root, tmp_path / "jpeg", "pixelate@2", format="jpg")
        levels = pixels(tmp_path / "jpeg/deep.jpg")
        assert levels.ndim == 2
        assert abs(levels.mean() - DEEP.mean() / 257) < 2

    @pytest.mark.parametrize("channels", [2, 3, 4])
    def test_colours_of_sixteen_bits_are_refused(self, root: Path, tmp_path: Path, channels: int) -> None:
        (root / "deep.png").write_bytes(png16(np.dstack([DEEP] * channels)))
        with pytest.raises(DataError, match=r"(?s)deep\.png.*colours of 16 bits, of which Pillow reads 8; --color rgb"):
            copied(root, tmp_path / "out")

    def test_colours_of_sixteen_bits_in_tiff_are_refused(self, root: Path, tmp_path: Path) -> None:
        (root / "deep.tif").write_bytes(tiff16(np.dstack([DEEP] * 3)))
        with pytest.raises(DataError, match="colours of 16 bits"):
            copied(root, tmp_path / "out")

    @pytest.mark.parametrize("dtype", [np.float32, np.int32])
    def test_floats_and_longer_numbers_are_refused(self, root: Path, tmp_path: Path, dtype: type) -> None:
        Image.fromarray(DEEP.astype(dtype)).save(root / "deep.tif")
        with pytest.raises(DataError, match=r"(?s)deep\.tif.*range is not known"):
            copied(root, tmp_path / "out")

    def test_they_are_brought_to_a_size(self, root: Path, tmp_path: Path) -> None:
        Image.fromarray(DEEP).save(root / "deep.png")
        copied(root, tmp_path / "out", "contrast@1", size=12)
        made = pixels(tmp_path / "out/deep.png")
        assert (made.shape, made.dtype.name) == ((12, 12), "uint16")
