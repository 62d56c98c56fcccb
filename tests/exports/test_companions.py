"""What comes with images: label maps stay with them, annotations are copied, places in images never become wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from shiftproof import DataSpec, shifts
from shiftproof.data.contents import content_keys
from shiftproof.errors import ConfigurationError, DataError, RunError, ShiftproofError
from shiftproof.exports.writing import write_corrupted
from shiftproof.shifts import move_labels
from tests.exports.test_writing import photo, pixels, tree

PALETTE = [0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0]
NAMES = ("a", "b", "c")


def labels(seed: int, classes: int = 4) -> NDArray[np.uint8]:
    """Blocks of classes, 32 x 24."""
    blocks = np.random.default_rng(seed).integers(0, classes, (6, 8), dtype=np.uint8)
    return np.kron(blocks, np.ones((4, 4), np.uint8))


def palette_mask(seed: int) -> Image.Image:
    mask = Image.fromarray(labels(seed))
    mask.putpalette(PALETTE)
    return mask


def expected_mask(image: Path, mask: NDArray[Any], text: str, seed: int = 0, ignore: int = 255) -> NDArray[Any]:
    """Let the shift itself move a label map."""
    batch = torch.from_numpy(pixels(image)).permute(2, 0, 1)[None]
    moved = move_labels(
        shifts.as_image_shift(text), torch.from_numpy(mask)[None], content_keys(batch), seed=seed, ignore=ignore
    )
    return np.asarray(moved[0])


@pytest.fixture
def parallel(tmp_path: Path) -> Path:
    """Images and masks in folders of their own, and files of other kinds."""
    root = tmp_path / "set"
    for folder in ("images/train", "masks/train"):
        (root / folder).mkdir(parents=True)
    for seed, name in enumerate(NAMES):
        Image.fromarray(photo(32, 24, seed)).save(root / f"images/train/{name}.jpg", quality=95)
        palette_mask(seed).save(root / f"masks/train/{name}.png")
    (root / "LICENSE").write_text("free")
    (root / "classes.txt").write_text("sky\nroad\ntree\n")
    (root / "images/train/notes.csv").write_text("file,weather\na.jpg,sunny\n")
    (root / ".hidden").write_text("no")
    return root


@pytest.fixture
def paired(tmp_path: Path) -> Path:
    """Masks beside their images."""
    root = tmp_path / "pairs"
    (root / "deep").mkdir(parents=True)
    for seed, name in enumerate(("a", "deep/b")):
        Image.fromarray(photo(32, 24, seed)).save(root / f"{name}.png")
        palette_mask(seed).save(root / f"{name}_mask.png")
    return root


class TestBeside:
    def test_other_files_are_copied_byte_for_byte_into_every_tree(self, parallel: Path, tmp_path: Path) -> None:
        written = write_corrupted(parallel, tmp_path / "out", shifts=["fog@3", "rotate=5"], masks="masks")
        assert (written.images, written.masks, written.beside) == (3, 3, 3)
        for place in ("fog/3", "rotate=5"):
            for file in ("LICENSE", "classes.txt", "images/train/notes.csv"):
                assert (tmp_path / "out" / place / file).read_bytes() == (parallel / file).read_bytes()
            assert not (tmp_path / "out" / place / ".hidden").exists()
        assert len(tree(tmp_path / "out")) == 2 * (3 + 3 + 3) + 1
        manifest = json.loads(written.manifest.read_text())
        assert manifest["copied"] == ["LICENSE", "classes.txt", "images/train/notes.csv"]
        assert manifest["files"][0]["mask"] == "masks/train/a.png"
        assert {"masks": "masks", "ignore": 255}.items() <= manifest.items()

    def test_a_flat_folder(self, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        Image.fromarray(photo(16, 16, 0)).save(tmp_path / "in/x.jpg")
        (tmp_path / "in/labels.csv").write_text("file,label,split\nx.jpg,cat,val\ny.jpg,dog,val\n")
        write_corrupted(tmp_path / "in", tmp_path / "out", shifts=["fog@1"])
        assert (tmp_path / "out/labels.csv").read_bytes() == (tmp_path / "in/labels.csv").read_bytes()
        write_corrupted(tmp_path / "in", tmp_path / "png", shifts=["fog@1"], format="png")
        assert (tmp_path / "png/labels.csv").read_text() == "file,label\nx.png,cat\n"

    def test_a_copy_of_a_copy(self, parallel: Path, tmp_path: Path) -> None:
        write_corrupted(parallel, tmp_path / "one", shifts=["fog@1"], masks="masks")
        written = write_corrupted(tmp_path / "one", tmp_path / "two", shifts=["fog@1"], masks="masks")
        assert written.beside == 3
        assert json.loads(written.manifest.read_text())["source"] == "one"

    def test_a_manifest_of_the_users_own_is_not_overwritten(self, parallel: Path, tmp_path: Path) -> None:
        (parallel / "manifest.json").write_text("{}")
        with pytest.raises(ConfigurationError, match="Two files would be written under one name"):
            write_corrupted(parallel, tmp_path / "out", shifts=["fog@1"], masks="masks")
        write_corrupted(parallel, tmp_path / "out", shifts=["fog@1", "fog@2"], masks="masks")
        assert (tmp_path / "out/fog/2/manifest.json").read_text() == "{}"

    def test_annotations_that_name_files_keep_formats(self, parallel: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"(?s)notes\.csv.*suffix would change.*leave --format out"):
            write_corrupted(parallel, tmp_path / "out", shifts=["fog@1"], masks="masks", format="png")


COCO = {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "bbox": [1, 2, 8, 9]}]}
VOC = "<annotation><filename>a.jpg</filename><object><bndbox><xmin>1</xmin></bndbox></object></annotation>"
BOXES = {
    "instances.json": json.dumps(COCO),
    "Annotations/a.xml": VOC,
    "labels/a.txt": "0 0.5 0.5 0.25 0.25\n2 0.1 0.2 0.1 0.1\n",
    "boxes.csv": "filename,xmin,ymin,xmax,ymax,class\na.jpg,1,2,8,9,cat\n",
    "a.json": json.dumps({"shapes": [{"label": "cat", "points": [[1, 2], [3, 4]]}]}),
}
HARMLESS = {
    "captions.json": json.dumps({"annotations": [{"image_id": 1, "caption": "a cat"}]}),
    "a.xml": "<image><author>me</author></image>",
    "classes.txt": "0 1 2 3 4\n",
    "a.txt": "a cat on a mat\n",
    "labels.csv": "file,label\na.jpg,cat\nb.jpg,dog\n",
}


@pytest.fixture
def detection(tmp_path: Path) -> Path:
    """Two images, to which annotations come."""
    root = tmp_path / "boxes"
    root.mkdir()
    for seed, name in enumerate(("a", "b")):
        Image.fromarray(photo(32, 24, seed)).save(root / f"{name}.jpg")
    return root


@pytest.mark.parametrize("file", BOXES)
@pytest.mark.parametrize("shift", ["rotate=5", "elastic_transform@1", "fog@3 + flip", "augmix"])
def test_boxes_are_refused_by_shifts_that_move_content(detection: Path, tmp_path: Path, file: str, shift: str) -> None:
    (detection / file).parent.mkdir(exist_ok=True)
    (detection / file).write_text(BOXES[file])
    with pytest.raises(ConfigurationError, match=r"(?s)moves content.*leave such shifts out"):
        write_corrupted(detection, tmp_path / "out", shifts=["fog@1", shift])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("file", BOXES)
def test_boxes_are_copied_by_others_but_not_to_another_size(detection: Path, tmp_path: Path, file: str) -> None:
    (detection / file).parent.mkdir(exist_ok=True)
    (detection / file).write_text(BOXES[file])
    write_corrupted(detection, tmp_path / "out", shifts=["fog@1", "motion_blur@3"])
    for place in ("fog/1", "motion_blur/3"):
        assert (tmp_path / "out" / place / file).read_text() == BOXES[file]
        assert {path.name for path in (tmp_path / "out" / place).glob("*.jpg")} == {"a.jpg", "b.jpg"}
    with pytest.raises(ConfigurationError, match=r"(?s)brought to the size 16.*leave --size out"):
        write_corrupted(DataSpec(detection, size=16), tmp_path / "small", shifts=["fog@1"])


def test_other_annotations_go_with_any_shift(detection: Path, tmp_path: Path) -> None:
    for file, content in HARMLESS.items():
        (detection / file).write_text(content)
    write_corrupted(detection, tmp_path / "out", shifts=["rotate=5"])
    assert {file: (tmp_path / "out" / file).read_text() for file in HARMLESS} == HARMLESS


class TestMasks:
    def test_they_stay_byte_for_byte_under_shifts_that_leave_content(self, parallel: Path, tmp_path: Path) -> None:
        write_corrupted(
            parallel, tmp_path / "out", shifts=["fog@3", "glass_blur@2", "jpeg_compression@5"], masks="masks"
        )
        for place in ("fog/3", "glass_blur/2", "jpeg_compression/5"):
            for name in NAMES:
                made = tmp_path / f"out/{place}/masks/train/{name}.png"
                assert made.read_bytes() == (parallel / f"masks/train/{name}.png").read_bytes()

    @pytest.mark.parametrize("text", ["rotate=30", "elastic_transform@3", "ripple@5", "fog@2 + scale=0.8", "flip_crop"])
    @pytest.mark.parametrize("ignore", [255, 9])
    def test_they_move_with_their_images_and_keep_their_palette(
        self, paired: Path, tmp_path: Path, text: str, ignore: int
    ) -> None:
        write_corrupted(paired, tmp_path / "out", shifts=[text], masks="*_mask.png", seed=3, ignore=ignore)
        for seed, name in enumerate(("a", "deep/b")):
            with Image.open(tmp_path / f"out/{name}_mask.png") as made:
                assert made.mode == "P"
                assert (made.getpalette() or [])[:12] == PALETTE
                values = np.array(made)
            wanted = expected_mask(paired / f"{name}.png", labels(seed), text, seed=3, ignore=ignore)
            assert np.array_equal(values, wanted)
            assert not np.array_equal(values, labels(seed))

    def test_a_folder_elsewhere(self, parallel: Path, tmp_path: Path) -> None:
        shutil.move(parallel / "masks", tmp_path / "elsewhere")
        write_corrupted(parallel / "images", tmp_path / "out", shifts=["flip"], masks=tmp_path / "elsewhere")
        for seed, name in enumerate(NAMES):
            assert np.array_equal(pixels(tmp_path / f"out/elsewhere/train/{name}.png"), labels(seed)[:, ::-1])
        again = write_corrupted(tmp_path / "out", tmp_path / "back", shifts=["flip"], masks="elsewhere")
        assert again.masks == 3
        assert np.array_equal(pixels(tmp_path / "back/elsewhere/train/a.png"), labels(0))

    @pytest.mark.parametrize("masks", ["masks", "masks/*", "masks/*.png", "masks/", "/"])
    def test_forms_of_the_same(self, parallel: Path, tmp_path: Path, masks: str) -> None:
        masks = str(parallel / "masks") if masks == "/" else masks
        assert write_corrupted(parallel, tmp_path / "out", shifts=["flip"], masks=masks).masks == 3

    @pytest.mark.parametrize(
        ("mode", "suffix"),
        [("L", ".png"), ("P", ".png"), ("I;16", ".png"), ("RGB", ".png"), ("L", ".bmp"), ("P", ".gif"), ("L", ".tif"),
         ("I", ".tif"), ("RGB", ".webp"), ("I;16", ".tif")],
    )  # fmt: skip
    def test_every_mode_and_format(self, paired: Path, tmp_path: Path, mode: str, suffix: str) -> None:
        for name in ("a", "deep/b"):
            (paired / f"{name}_mask.png").unlink()
            values = labels(1)
            image = palette_mask(1) if mode == "P" else Image.fromarray(values)
            if mode == "RGB":
                image = Image.fromarray(np.dstack([values * 50] * 3))
            elif mode in ("I;16", "I"):
                image = Image.fromarray(values.astype(np.uint16 if mode == "I;16" else np.int32) * 300)
            image.save(paired / f"{name}_mask{suffix}", lossless=True)  # which WebP alone reads
        write_corrupted(paired, tmp_path / "out", shifts=["flip"], masks=f"*_mask{suffix}")
        with Image.open(paired / f"a_mask{suffix}") as source, Image.open(tmp_path / f"out/a_mask{suffix}") as made:
            assert (made.mode, made.format) == (source.mode, source.format)
            assert np.array_equal(np.asarray(made), np.asarray(source)[:, ::-1])

    def test_they_are_brought_to_the_size_of_their_images(self, paired: Path, tmp_path: Path) -> None:
        write_corrupted(DataSpec(paired, size=12), tmp_path / "out", shifts=["fog@1", "flip"], masks="*_mask.png")
        still, flipped = (pixels(tmp_path / f"out/{place}/a_mask.png") for place in ("fog/1", "flip"))
        assert still.shape == (12, 12)
        assert set(np.unique(still)) <= set(range(4))
        assert np.array_equal(flipped, still[:, ::-1])

    def test_images_without_a_mask_are_told(self, parallel: Path, tmp_path: Path) -> None:
        (parallel / "masks/train/a.png").unlink()
        written = write_corrupted(parallel, tmp_path / "out", shifts=["flip"], masks="masks")
        assert (written.images, written.masks) == (3, 2)

    def test_a_damaged_or_changed_mask_is_written_again(self, paired: Path, tmp_path: Path) -> None:
        def copy(out: str = "out") -> list[int]:
            heard: list[int] = []
            write_corrupted(
                paired,
                tmp_path / out,
                shifts=["flip"],
                masks="*_mask.png",
                on_progress=lambda done, *_: heard.append(done),
            )
            return heard

        copy()
        before = tree(tmp_path / "out")
        assert copy() == [1]
        (tmp_path / "out/deep/b_mask.png").write_bytes(b"")
        assert copy() == [0, 1]
        assert tree(tmp_path / "out") == before
        palette_mask(7).save(paired / "a_mask.png")
        with pytest.raises(RunError):
            copy()

    def test_several_processes_write_the_same_bytes(self, paired: Path, tmp_path: Path) -> None:
        for out, executor in (("one", "inline"), ("two", "processes:2")):
            write_corrupted(paired, tmp_path / out, shifts=["ripple@5", "fog@1"], masks="*_mask.png", executor=executor)
        assert tree(tmp_path / "one") == tree(tmp_path / "two")


class TestRefusedMasks:
    def test_files_that_look_like_masks_are_not_corrupted(self, parallel: Path, paired: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"(?s)masks/train/a\.png.*--masks 'masks'"):
            write_corrupted(parallel, tmp_path / "out", shifts=["fog@1"])
        with pytest.raises(ConfigurationError, match=r"(?s)a_mask\.png.*--masks '\*_mask\.png'.*--masks none"):
            write_corrupted(paired, tmp_path / "out", shifts=["fog@1"])
        assert write_corrupted(paired, tmp_path / "out", shifts=["fog@1"], masks="none").images == 4

    def test_photographs_of_masks_are_images(self, tmp_path: Path) -> None:
        for folder in ("mask", "no_mask"):
            (tmp_path / "in" / folder).mkdir(parents=True)
            for seed in range(2):
                Image.fromarray(photo(32, 24, seed)).save(tmp_path / f"in/{folder}/{seed}.png")
        assert write_corrupted(tmp_path / "in", tmp_path / "out", shifts=["fog@1"]).images == 4

    def test_a_shift_that_cannot_say_where_pixels_come_from(self, paired: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"(?s)augmix does not say where pixels come from"):
            write_corrupted(paired, tmp_path / "out", shifts=["fog@1", "augmix"], masks="*_mask.png")
        assert not (tmp_path / "out").exists()

    def test_two_classes_of_0_and_255_have_no_ignore_value_there(self, paired: Path, tmp_path: Path) -> None:
        for name in ("a", "deep/b"):
            Image.fromarray(labels(0, 2) * 255).save(paired / f"{name}_mask.png")
        with pytest.raises(ConfigurationError, match=r"(?s)255 is a class here.*--ignore 0"):
            write_corrupted(paired, tmp_path / "out", shifts=["rotate=9"], masks="*_mask.png")
        write_corrupted(paired, tmp_path / "out", shifts=["rotate=9"], masks="*_mask.png", ignore=0)
        assert set(np.unique(pixels(tmp_path / "out/a_mask.png"))) == {0, 255}
        write_corrupted(paired, tmp_path / "fog", shifts=["fog@1"], masks="*_mask.png")

    @pytest.mark.parametrize(
        ("change", "options", "says"),
        [
            ("", {"masks": "nowhere"}, "no label maps at 'nowhere'"),
            ("orphan", {}, r"1 of 3 label maps belong to no image"),
            ("size", {}, r"10 x 10 pixels, and its image 32 x 24"),
            ("jpeg", {"masks": "*_mask.jpg"}, "JPEG files, which lose labels"),
            ("", {"ignore": 300}, "no label 300"),
            ("bits", {}, "mode is 1, which has no label 255"),
        ],
    )
    def test_what_cannot_be_moved(
        self, paired: Path, tmp_path: Path, change: str, options: dict[str, Any], says: str
    ) -> None:
        if change == "orphan":
            palette_mask(0).save(paired / "z_mask.png")
        elif change == "size":
            Image.fromarray(labels(0)[:10, :10]).save(paired / "a_mask.png")
        elif change == "jpeg":
            for name in ("a", "deep/b"):
                (paired / f"{name}_mask.png").unlink()
                Image.fromarray(labels(0)).save(paired / f"{name}_mask.jpg")
        elif change == "bits":
            for name in ("a", "deep/b"):
                Image.fromarray(labels(0, 2) * 255).convert("1").save(paired / f"{name}_mask.png")
        with pytest.raises(ShiftproofError, match=says):
            write_corrupted(paired, tmp_path / "out", shifts=["rotate=9"], **{"masks": "*_mask.png", **options})

    def test_masks_go_with_folders(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="masks= needs a folder of images"):
            write_corrupted("demo", tmp_path / "out", shifts=["fog@1"], masks="masks")
        (tmp_path / "texts.csv").write_text("text,label\na film,1\nno film,0\n")
        with pytest.raises(ConfigurationError, match="masks= cannot be used with texts"):
            write_corrupted(tmp_path / "texts.csv", tmp_path / "out", shifts=["typos@1"], masks="masks")

    def test_one_map_of_two_images(self, parallel: Path, tmp_path: Path) -> None:
        (parallel / "more/train").mkdir(parents=True)
        Image.fromarray(photo(32, 24, 5)).save(parallel / "more/train/a.jpg")
        with pytest.raises(DataError, match=r"(?s)Two images share one label map, 'masks/train/a\.png'"):
            write_corrupted(parallel, tmp_path / "out", shifts=["fog@1"], masks="masks")
