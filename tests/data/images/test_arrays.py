from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from shiftproof.data import load_images
from shiftproof.data.images.arrays import ArraySource
from shiftproof.errors import ConfigurationError, DataError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (5, 8, 12, 3), dtype=np.uint8)
LABELS = np.array([0, 2, 1, 1, 0])


def pixels(source: Any, **options: Any) -> torch.Tensor:
    return next(load_images(source, **options).batches(100)).inputs


EXPECTED = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255


class TestArrays:
    def test_layouts(self) -> None:
        assert torch.equal(pixels(IMAGES), EXPECTED)
        assert torch.equal(pixels(torch.from_numpy(IMAGES).permute(0, 3, 1, 2)), EXPECTED)
        assert torch.equal(pixels(torch.from_numpy(IMAGES)), EXPECTED)  # only the last dimension can be channels
        assert torch.equal(pixels(IMAGES.transpose(0, 3, 1, 2)), EXPECTED)

    def test_where_both_ends_could_be_channels(self) -> None:
        array = RNG.integers(0, 256, (2, 3, 5, 3), dtype=np.uint8)
        assert pixels(array).shape == (2, 3, 3, 5)
        assert pixels(torch.from_numpy(array)).shape == (2, 3, 5, 3)

    def test_floats(self) -> None:
        floats = RNG.random((3, 4, 4, 3))
        torch.testing.assert_close(pixels(floats), torch.from_numpy(floats).permute(0, 3, 1, 2).float())
        assert pixels(EXPECTED.double()).dtype == torch.float32

    def test_grey_stays_one_channel_unless_asked(self) -> None:
        grey = IMAGES[..., 0]
        assert torch.equal(pixels(grey), EXPECTED[:, :1])
        assert torch.equal(pixels(grey[..., None]), EXPECTED[:, :1])
        assert torch.equal(pixels(grey, color="rgb"), EXPECTED[:, :1].expand(-1, 3, -1, -1))
        with pytest.raises(DataError, match="are in colour"):
            load_images(IMAGES, color="gray")

    def test_size(self) -> None:
        image = Image.fromarray(IMAGES[0]).resize((6, 4), Image.Resampling.BILINEAR).crop((1, 0, 5, 4))
        expected = torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255
        assert torch.equal(pixels(IMAGES, size=4)[0], expected)
        torch.testing.assert_close(
            pixels(IMAGES / 255.0, size=4)[0], expected, atol=1.01 / 255, rtol=0
        )  # Pillow rounds twice
        assert load_images(IMAGES, size=4).shape == (3, 4, 4)

    def test_labels_of_any_integer_type(self) -> None:
        for labels in (LABELS.astype(np.uint8), LABELS[:, None], LABELS.tolist(), torch.from_numpy(LABELS)):
            data = load_images((IMAGES, labels))
            assert data.labels is not None
            assert data.labels.dtype == torch.int64
            assert data.labels.tolist() == LABELS.tolist()
            assert data.classes == ("0", "1", "2")
        assert load_images(IMAGES, labels=LABELS).fingerprint == load_images((IMAGES, LABELS)).fingerprint

    def test_labels_that_are_class_names(self, tmp_path: Path) -> None:
        names = np.array(["dog", "ant", "cat"])[LABELS]
        np.savez(tmp_path / "set.npz", images=IMAGES, labels=names)
        for data in (
            load_images((IMAGES, names)),
            load_images((IMAGES, names.tolist())),
            load_images(tmp_path / "set.npz"),
        ):
            assert data.labels is not None
            assert data.classes == ("ant", "cat", "dog")
            assert [data.classes[label] for label in data.labels] == names.tolist()
            assert data.numbering == "names"
        ordered = load_images((IMAGES, names), classes=["dog", "ant", "cat"])
        assert ordered.labels is not None
        assert ordered.labels.tolist() == LABELS.tolist()

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (LABELS[:4], "do not fit"),
            (LABELS / 2, "do not fit"),
            (np.eye(5), "one-hot"),
            (LABELS - 1, "negative"),
            (list("abcd"), "do not fit"),
            (LABELS.astype(float), r"labels\.astype\(int\)"),
        ],
    )
    def test_labels_that_do_not_fit(self, labels: Any, message: str) -> None:
        with pytest.raises(DataError, match=message):
            load_images((IMAGES, labels))

    @pytest.mark.parametrize(
        ("images", "message"),
        [
            (IMAGES[0, 0], "not a set of images"),
            (IMAGES[:0], "not a set of images"),
            (np.zeros((2, 8, 8, 4), np.uint8), "1 or 3 channels"),
            (IMAGES.astype(np.float32), "values of 0..255 go in as uint8"),
            (np.full((2, 8, 8, 3), np.nan), "nan"),
            (IMAGES.astype(np.int64), "wrong type"),
        ],
    )
    def test_images_that_are_none(self, images: Any, message: str) -> None:
        with pytest.raises(DataError, match=message):
            load_images(images)

    def test_too_few_class_names(self) -> None:
        with pytest.raises(DataError, match="more classes than class names"):
            load_images((IMAGES, LABELS), classes=["a", "b"])


class TestFiles:
    @pytest.mark.parametrize(
        ("names", "split"),
        [(("images", "labels"), None), (("x", "y"), None), (("x_test", "y_test"), None), (("val_x", "val_y"), "val")],
    )
    def test_archives(self, names: tuple[str, str], split: str | None, tmp_path: Path) -> None:
        path = tmp_path / "photos.npz"
        arrays: dict[str, Any] = {names[0]: IMAGES, names[1]: LABELS, "x_train": IMAGES[:2], "y_train": LABELS[:2]}
        np.savez_compressed(path, **arrays)
        data = load_images(path, split=split)
        assert data.name == "photos"
        assert torch.equal(next(data.batches(9)).inputs, EXPECTED)
        assert data.labels is not None
        assert data.labels.tolist() == LABELS.tolist()
        assert len(load_images(path, split="train")) == 2

    def test_arrays_are_memory_mapped(self, tmp_path: Path) -> None:
        np.save(tmp_path / "fog.npy", IMAGES)
        data = load_images(tmp_path / "fog.npy")
        assert isinstance(data.source, ArraySource)
        assert isinstance(data.source._images.base, np.memmap)
        assert torch.equal(next(data.batches(9)).inputs, EXPECTED)
        assert data.labels is None

    def test_labels_beside_an_array(self, tmp_path: Path) -> None:
        np.save(tmp_path / "fog.npy", IMAGES)
        np.save(tmp_path / "labels.npy", LABELS)
        np.save(tmp_path / "others.npy", LABELS * 0)
        beside, given = (
            load_images(tmp_path / "fog.npy"),
            load_images(tmp_path / "fog.npy", labels=tmp_path / "others.npy"),
        )
        assert beside.labels is not None
        assert beside.labels.tolist() == LABELS.tolist()
        assert given.labels is not None
        assert given.labels.tolist() == [0] * 5

    def test_no_images_in_an_archive(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", photographs=IMAGES)
        with pytest.raises(DataError, match="photographs"):
            load_images(tmp_path / "a.npz")

    def test_files_that_are_no_arrays(self, tmp_path: Path) -> None:
        np.save(tmp_path / "objects.npy", np.array([{}, []], object), allow_pickle=True)
        np.savez(tmp_path / "objects.npz", images=np.array([{}, []], object))
        (tmp_path / "text.npy").write_text("hello")
        (tmp_path / "text.npz").write_text("hello")
        (tmp_path / "cut.npz").write_bytes((tmp_path / "objects.npz").read_bytes()[:50])
        for path in sorted(tmp_path.iterdir()):
            with pytest.raises(DataError, match="Cannot read the arrays"):
                load_images(path)

    def test_labels_that_are_no_file(self, tmp_path: Path) -> None:
        np.save(tmp_path / "fog.npy", IMAGES)
        with pytest.raises(DataError, match="no file of labels"):
            load_images(tmp_path / "fog.npy", labels="nowhere.npy")
        with pytest.raises(ConfigurationError, match="has no parts"):
            load_images(tmp_path / "fog.npy", split="test")
