"""Folders and objects with label maps: layouts, values, and what is refused."""

import shutil
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from shiftproof.data import load_data
from shiftproof.data.images.mask_values import CAMVID, CITYSCAPES, IGNORE, VOC, read_palette
from shiftproof.data.images.maskset import MaskSet
from shiftproof.errors import ConfigurationError, DataError
from tests.label_maps import COLOURS, load_masks, painted, write_tree

LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "parallel": ({}, {}),
    "parts below": ({"images": "images/{part}", "maps": "annotations/{part}", "parts": ("train", "val")}, {}),
    "parts above": ({"images": "{part}/img", "maps": "{part}/mask", "parts": ("train", "val")}, {}),
    "mmsegmentation": ({"images": "img_dir/{part}", "maps": "ann_dir/{part}", "parts": ("train", "val")}, {}),
    "annot": ({"images": "{part}", "maps": "{part}annot", "parts": ("train", "val", "test")}, {}),
    "ending": ({"maps": "masks", "tail": "_mask"}, {}),
    "side by side": ({"images": ".", "maps": ".", "tail": "_mask"}, {}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_give_the_same_labels(tmp_path, layout):
    options, given = LAYOUTS[layout]
    root = write_tree(tmp_path / "set", **options)
    parts = options.get("parts", ())
    if parts:
        with pytest.raises(DataError, match="holds parts"):
            load_data(root)
        given = {"split": parts[0]}
    data = load_masks(root, **given)
    pictures, maps = painted(6)
    assert isinstance(data, MaskSet)
    assert data.task == "segmentation"
    assert (data.labels.numpy() == maps).all()
    (batch,) = data.batches(6)
    assert (batch.inputs.permute(0, 2, 3, 1).mul(255).round().numpy() == pictures).all()
    assert batch.labels is not None
    assert batch.labels.shape == maps.shape


def test_camvid_is_known_by_its_files(tmp_path):
    root = write_tree(tmp_path, "{part}", "{part}annot", parts=("train", "test"), names="0001TP_{:06d}")
    for file in (root / "testannot").glob("*.png"):
        labels = np.array(Image.open(file))
        labels[labels == 255] = 11
        Image.fromarray(labels).save(file)
    data = load_masks(root, split="test")
    assert data.classes == CAMVID
    assert set(data.labels.unique().tolist()) <= {0, 1, 2, 3, IGNORE}


def test_cityscapes_has_training_ids(tmp_path):
    for kind, tail in (("leftImg8bit", "_leftImg8bit"), ("gtFine", "_gtFine_labelIds")):
        (tmp_path / kind / "val" / "ulm").mkdir(parents=True)
        values = np.zeros((20, 24), np.uint8)
        values[:5], values[5:10], values[10:15] = 7, 33, 4
        made = Image.fromarray(values if kind == "gtFine" else np.stack([values * 7] * 3, 2))
        made.save(tmp_path / kind / "val" / "ulm" / f"ulm_000000_000019{tail}.png")
    data = load_masks(tmp_path, split="val")
    assert data.classes == CITYSCAPES
    assert data.labels[0, :, 0].tolist() == [0] * 5 + [18] * 5 + [IGNORE] * 10


def test_ade_begins_at_one(tmp_path):
    root = write_tree(
        tmp_path / "ADEChallengeData2016", "images/{part}", "annotations/{part}", parts=("training", "validation")
    )
    data = load_masks(root, split="validation")
    raw = np.array(Image.open(root / "annotations" / "validation" / "000.png"))
    assert len(data.classes) == 150
    assert ((data.labels[0].numpy() == IGNORE) == (np.isin(raw, (0, 255)))).all()
    assert (data.labels[0].numpy()[raw == 2] == 1).all()


def test_voc_maps_are_indices_of_a_palette(tmp_path):
    root = write_tree(tmp_path, "JPEGImages", "SegmentationClass", palette=list(range(256)) * 3)
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "val.txt").write_text("001\n004\n")
    (lists / "train.txt").write_text("000\n")
    data = load_masks(root, split="val")
    assert data.classes == VOC
    assert len(data) == 2
    assert (data.labels.numpy() == painted(6)[1][[1, 4]]).all()


def test_a_part_finds_the_maps_beside_it(tmp_path):
    root = write_tree(tmp_path / "set", images="{part}", maps="{part}annot", parts=("train", "test"))
    for place, part in enumerate(("train", "test")):
        assert (load_masks(root / part).labels.numpy() == painted(6, seed=place)[1]).all()
    shutil.rmtree(root / "testannot")
    assert load_data(root / "test").labels is None


def test_colours_need_a_palette_and_are_all_in_it(tmp_path):
    root = write_tree(tmp_path / "set")
    for file in (root / "masks").glob("*.png"):
        labels = np.array(Image.open(file))
        Image.fromarray(np.where((labels == 255)[..., None], 255, COLOURS[labels % 4])).save(file)
    with pytest.raises(DataError, match="nothing says which class each colour is"):
        load_data(root)
    lines = [f"{r} {g} {b} {name}" for (r, g, b), name in zip(COLOURS.tolist(), "abcd", strict=True)]
    palette = tmp_path / "colours.txt"
    palette.write_text("\n".join(lines))
    with pytest.raises(DataError, match="colours outside the palette"):
        load_data(root, palette=palette)
    palette.write_text("\n".join([*lines, "255 255 255 void"]))
    data = load_masks(root, palette=palette)
    assert data.classes == tuple("abcd")
    assert (data.labels.numpy() == painted(6)[1]).all()
    csv = tmp_path / "class_dict.csv"
    csv.write_text(
        "name,r,g,b\n" + "\n".join(f"{name},{r},{g},{b}" for (r, g, b), name in read_palette(palette).items())
    )
    assert read_palette(csv) == read_palette(palette)


def test_unpaired_files_are_told_or_left_out(tmp_path):
    root = write_tree(tmp_path / "set")
    (root / "masks" / "002.png").unlink()
    with pytest.raises(DataError, match=r"1 images without a label map \(002.png\)"):
        load_data(root)
    data = load_masks(root, on_bad_file="skip")
    assert len(data) == 5
    assert data.bad_files[0].file == "002.png"
    (root / "images" / "003.png").unlink()
    with pytest.raises(DataError, match="1 label maps without an image"):
        load_data(root)


def test_maps_of_another_size_are_refused(tmp_path):
    root = write_tree(tmp_path / "set")
    Image.fromarray(np.zeros((10, 12), np.uint8)).save(root / "masks" / "001.png")
    with pytest.raises(DataError, match="its image differ in size") as error:
        load_data(root)
    assert "12 x 10 pixels" in error.value.facts["got"]


def test_values_beyond_the_classes_are_refused(tmp_path):
    root = write_tree(tmp_path / "set")
    with pytest.raises(DataError, match="values that are not classes") as error:
        load_data(root, classes=["ground", "red", "green"])
    assert error.value.facts["got"].startswith("3 in ")
    assert load_masks(root, classes=["ground", "red", "green"], ignore_label=3).known_labels.tolist() == [0, 1, 2]


def test_maps_of_0_and_255_are_asked_about(tmp_path):
    root = write_tree(tmp_path / "set")
    for file in (root / "masks").glob("*.png"):
        labels = np.array(Image.open(file))
        Image.fromarray(np.where(labels == 1, 255, 0).astype(np.uint8)).save(file)
    with pytest.raises(DataError, match="255 is a class or means no label"):
        load_data(root)
    assert load_masks(root, ignore_label=-1).known_labels.tolist() == [0, 1]


def test_jpeg_maps_are_refused(tmp_path):
    root = write_tree(tmp_path / "set")
    labels = Image.open(root / "masks" / "001.png")
    labels.save(root / "masks" / "001.jpg", quality=30)
    (root / "masks" / "001.png").unlink()
    with pytest.raises(DataError, match=r"Cannot read the label map '001\.jpg'"):
        load_data(root, label_maps="masks")


@pytest.mark.parametrize("form", ["arrays", "tensors", "list", "torch", "pillow"])
def test_objects_give_the_same_labels(form):
    pictures, maps = painted(6)
    pairs = list(zip(pictures, maps, strict=True))
    given = {
        "arrays": (pictures, maps),
        "tensors": (torch.from_numpy(pictures).permute(0, 3, 1, 2), torch.from_numpy(maps)),
        "list": pairs,
        "torch": torch.utils.data.TensorDataset(torch.from_numpy(pictures).permute(0, 3, 1, 2), torch.from_numpy(maps)),
        "pillow": [(Image.fromarray(picture), Image.fromarray(labels)) for picture, labels in pairs],
    }[form]
    data = load_masks(given)
    assert isinstance(data, MaskSet)
    assert (data.labels.numpy() == maps).all()
    assert data.take(3, seed=1).fingerprint == load_masks(given).take(3, seed=1).fingerprint


def test_size_resizes_maps_with_their_images(tmp_path):
    data = load_masks(write_tree(tmp_path / "set"), size=16)
    assert data.shape == (3, 16, 16)
    assert data.labels.shape == (6, 16, 16)
    assert set(data.labels.unique().tolist()) <= {0, 1, 2, 3, IGNORE}


def test_options_of_maps_are_refused_where_labels_are_classes():
    with pytest.raises(ConfigurationError, match="goes with label maps"):
        load_data((painted(6)[0], np.arange(6)), ignore_label=3)


def test_class_folders_named_like_trees_stay_classes(tmp_path):
    rng = np.random.default_rng(0)
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
        for row in range(3):
            Image.fromarray(rng.integers(0, 256, (20, 24, 3)).astype(np.uint8)).save(tmp_path / folder / f"{row}.png")
    assert load_data(tmp_path).task == "classification"
