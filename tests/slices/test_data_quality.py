"""Faults of data are told and nothing is removed; columns about images come from files and tables."""

import numpy as np
import pytest
import torch
from PIL import Image

from shiftproof import load_data
from shiftproof.data import as_images
from shiftproof.errors import DataError
from shiftproof.models import load_model, logits
from shiftproof.slices import check_quality, file_columns, find_label_errors, image_statistics, read_columns


def test_copies_blanks_and_unreadable_files_are_told(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(tmp_path / name / f"{number}.png")
    Image.open(tmp_path / "cat" / "0.png").save(tmp_path / "dog" / "copy.bmp")
    Image.open(tmp_path / "cat" / "1.png").save(tmp_path / "cat" / "again.bmp")
    Image.new("RGB", (8, 8), (40, 40, 40)).save(tmp_path / "dog" / "blank.png")
    (tmp_path / "dog" / "broken.png").write_bytes(b"no image")
    data = as_images(load_data(tmp_path, on_bad_file="skip"))
    found = check_quality(data)
    names = data.names
    assert [{names[place] for place in group} for group in found.copies_across_classes] == [
        {"cat/0.png", "dog/copy.bmp"}
    ]
    assert len(found.copies) == 2
    assert [names[place] for place in found.blank] == ["dog/blank.png"]
    assert [bad.file for bad in found.unreadable] == ["dog/broken.png"]
    assert len(data) == 11
    told = " ".join(found.sentences(names, data.classes))
    for word in ("dog/broken.png", "dog/blank.png", "cat/0.png = dog/copy.bmp"):
        assert word in told


def test_a_sound_set_has_nothing_to_tell():
    data = as_images(load_data("demo").subset(range(50)))
    assert check_quality(data).sentences(data.names, data.classes) == []


def test_planted_label_errors_are_found():
    """Of 20 wrong labels among 400 most are found, and most of the likeliest are planted."""
    data = load_data("demo").take(400)
    shares = torch.cat([logits(load_model("demo"), batch.inputs) for batch in data.batches(64)]).softmax(1).numpy()
    assert data.labels is not None
    labels = data.labels.numpy().copy()
    labels[:20] = (labels[:20] + 1 + np.arange(20) % 9) % 10
    found = [error.index for error in find_label_errors(shares, labels)]
    assert len([place for place in found if place < 20]) >= 14
    assert len([place for place in found[:10] if place < 20]) >= 8
    assert len(found) <= 40


def test_statistics_move_as_their_names_say():
    data = load_data("demo").subset(range(32))
    (batch,) = data.batches(32)
    plain = image_statistics(batch.inputs)
    dark = image_statistics(batch.inputs * 0.5)
    blurred = image_statistics(torch.nn.functional.avg_pool2d(batch.inputs, 3, 1, 1))
    noisy = image_statistics((batch.inputs + 0.1 * torch.randn(batch.inputs.shape)).clamp(0, 1))
    grey = image_statistics(batch.inputs.mean(1, keepdim=True))
    assert np.allclose(dark["brightness"], plain["brightness"] / 2)
    assert (blurred["sharpness"] < plain["sharpness"]).all()
    assert (noisy["noise"] > plain["noise"]).all()
    assert np.allclose(grey["colourfulness"], 0)
    assert all(values.shape == (32,) for values in plain.values())


def test_files_tell_their_folders_sizes_and_cameras(tmp_path):
    exif = Image.Exif()
    exif[0x010F], exif[0x0110], exif[0x0132] = "Maker", "X1", "2024:01:02 13:14:15"
    (tmp_path / "cat" / "north").mkdir(parents=True)
    Image.new("RGB", (20, 10)).save(tmp_path / "cat" / "north" / "a.jpg", exif=exif)
    Image.new("RGB", (10, 10)).save(tmp_path / "cat" / "b.png")
    (tmp_path / "cat" / "c.jpg").write_bytes(b"broken")
    files = ["cat/north/a.jpg", "cat/b.png", "cat/c.jpg"]
    found = file_columns(files, [tmp_path / file for file in files])
    assert found["folder"] == ["north", None, None]
    assert found["pixels"] == [200, 100, None]
    assert found["camera"] == ["Maker X1", None, None]
    assert found["taken"] == [13, None, None]
    assert "flash" not in found
    assert file_columns(["0", "1"], [None, None]) == {}


def test_tables_are_joined_by_file(tmp_path):
    path = tmp_path / "meta.csv"
    path.write_text("site,file\nnorth,./a.png\nsouth,b.png\n")
    assert read_columns(path, ["b.png", "c.png", "a.png"]) == {"site": ["south", None, "north"]}
    with pytest.raises(DataError, match="none of the images"):
        read_columns(path, ["x.png"])
    path.write_text("site\nnorth\n")
    with pytest.raises(DataError, match="no column of files"):
        read_columns(path, ["a.png"])
