"""Images in the forms people have them in: each gives the pixels, labels and class names of the plain folder."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    default_collate,
)

import shiftproof
from shiftproof.data import load_data, load_images
from shiftproof.errors import ConfigurationError, DataError

CLASSES = ("cat", "dog", "ship")
COUNT, SIDE = 12, 8
LABELS = [row % 3 for row in range(COUNT)]
ARRAYS = np.random.default_rng(0).integers(0, 256, (COUNT, SIDE, SIDE, 3), dtype=np.uint8)
PILS = [Image.fromarray(array) for array in ARRAYS]
TENSORS = torch.from_numpy(ARRAYS).permute(0, 3, 1, 2).float() / 255
NAMES = [CLASSES[label] for label in LABELS]


class Photos(torch.utils.data.Dataset[Any]):
    """A data set of a user's own, as torchvision's are made."""

    def __init__(self, transform: Callable[[Any], Any] = lambda image: image) -> None:
        self.transform = transform
        self.classes = list(CLASSES)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return self.transform(PILS[row]), LABELS[row]


class Flow(IterableDataset[Any]):
    """Samples that come one after the other."""

    def __iter__(self) -> Iterator[Any]:
        return iter([{"img": picture, "target": label} for picture, label in zip(PILS, LABELS, strict=True)])


class Frame:
    """A table as pandas has it."""

    iloc = None

    def __init__(self, **columns: list[Any]) -> None:
        self.held = columns
        self.columns = list(columns)

    def __getitem__(self, column: str) -> list[Any]:
        return self.held[column]

    def __len__(self) -> int:
        return len(next(iter(self.held.values()), ()))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Return the images as files of one folder."""
    found = []
    for row, picture in enumerate(PILS):
        path = tmp_path / "photos" / f"{row:02}.png"
        path.parent.mkdir(exist_ok=True)
        picture.save(path)
        found.append(path)
    return found


def table(path: Path, header: tuple[str, str], rows: list[tuple[str, object]], delimiter: str = ",") -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return path


def tar(path: Path, samples: Sequence[Mapping[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as archive:
        for row, sample in enumerate(samples):
            for ending, content in sample.items():
                member = tarfile.TarInfo(f"some/{row:04}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


def assert_same(data: Any, *, labels: list[int] | None = LABELS, classes: tuple[str, ...] | None = CLASSES) -> None:
    """Check pixels and labels, whatever the order, which is that of the pixels' digests."""
    plain = load_data((ARRAYS, np.array(LABELS)))
    order, expected = data.keys.argsort(), plain.keys.argsort()
    assert data.keys[order].tolist() == plain.keys[expected].tolist()
    (batch,) = data.subset(order).batches(COUNT)
    assert torch.equal(batch.inputs, TENSORS[expected])
    if labels is None:
        assert data.labels is None
        return
    assert batch.labels.tolist() == torch.tensor(labels)[expected].tolist()
    if classes is not None:
        assert data.classes == classes


def numbered(data: Any) -> None:
    assert_same(data, classes=("0", "1", "2"))
    assert data.numbering == "index"


def collated(items: list[Any]) -> Any:
    return default_collate(items)


TORCH: Mapping[str, Callable[[], Any]] = {
    "PIL": Photos,
    "tensors": lambda: Photos(lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255),
    "bytes": lambda: Photos(lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1)),
    "arrays": lambda: Photos(np.array),
    "subset": lambda: Subset(Photos(), list(reversed(range(COUNT)))),
    "two subsets": lambda: ConcatDataset([Subset(Photos(), [0, 2, 4]), Subset(Photos(), [1, 3, *range(5, COUNT)])]),
    "loader": lambda: DataLoader(Photos(np.array), batch_size=5),
    "shuffled loader": lambda: DataLoader(Photos(np.array), batch_size=5, shuffle=True),
    "own collate": lambda: DataLoader(Photos(np.array), 5, collate_fn=collated),
}


@pytest.mark.parametrize("name", TORCH)
def test_data_sets_of_pytorch(name: str) -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    data = load_data(TORCH[name]())
    assert_same(data)
    assert data.numbering == "own"
    if name != "own collate":  # which runs the loader as it is
        assert torch.equal(before, torch.random.get_rng_state())


def test_a_tensor_data_set_has_numbers() -> None:
    numbered(load_data(TensorDataset(TENSORS, torch.tensor(LABELS))))
    assert load_data(TensorDataset(TENSORS)).labels is None


def test_a_stream_of_mappings() -> None:
    numbered(load_data(Flow()))
    numbered(load_data(Flow(), image_column="img", label_column="target"))
    with pytest.raises(DataError, match="no column 'other'"):
        load_data(Flow(), label_column="other")


def test_a_loader_takes_its_rows() -> None:
    data = load_data(DataLoader(Photos(np.array), batch_size=2, sampler=SubsetRandomSampler([7, 1, 4])))
    assert (data.labels is not None and data.labels.tolist()) == [LABELS[row] for row in (1, 4, 7)]


def test_random_transforms_are_refused() -> None:
    def noise(image: Any) -> Any:
        return np.array(image) ^ np.random.default_rng().integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)

    with pytest.raises(DataError, match="different image each time"):
        load_data(Photos(noise))


def test_normalised_images_are_refused_in_words() -> None:
    for made in (Photos(lambda image: (torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255 - 0.5) / 0.25),):
        with pytest.raises(DataError, match=r"are outside \[0, 1\]") as caught:
            load_data(made)
        assert "leave Normalize out of the transform" in caught.value.facts["fix"]


def test_parts_with_different_classes_are_refused() -> None:
    other = Photos()
    other.classes = ["bird", *CLASSES[1:]]
    with pytest.raises(DataError, match="different classes"):
        load_data(ConcatDataset([Photos(), other]))


LISTS: Mapping[str, Callable[[list[Path]], tuple[Any, Any]]] = {
    "pairs of PIL": lambda files: (list(zip(PILS, LABELS, strict=True)), None),
    "pairs of arrays": lambda files: (list(zip(ARRAYS, LABELS, strict=True)), None),
    "pairs of tensors": lambda files: (list(zip(TENSORS, torch.tensor(LABELS), strict=True)), None),
    "pairs of paths": lambda files: (list(zip(files, LABELS, strict=True)), None),
    "pairs of texts": lambda files: ([(str(file), label) for file, label in zip(files, LABELS, strict=True)], None),
    "PIL": lambda files: (PILS, LABELS),
    "arrays": lambda files: (list(ARRAYS), np.array(LABELS)),
    "paths": lambda files: (files, torch.tensor(LABELS)),
    "texts": lambda files: ([str(file) for file in files], LABELS),
    "bytes": lambda files: ([file.read_bytes() for file in files], LABELS),
    "two lists": lambda files: ((PILS, LABELS), None),
    "two lists of paths": lambda files: (([str(file) for file in files], LABELS), None),
    "frame of paths": lambda files: (Frame(path=list(map(str, files)), label=LABELS), None),
    "frame of PIL": lambda files: (Frame(image=PILS, target=LABELS), None),
    "frame of bytes": lambda files: (
        Frame(image=[{"bytes": file.read_bytes(), "path": None} for file in files], label=LABELS),
        None,
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_and_tables(name: str, files: list[Path]) -> None:
    source, labels = LISTS[name](files)
    numbered(load_data(source, labels=labels))


@pytest.mark.parametrize("name", LISTS)
def test_what_images_were_brought_to_is_known_however_they_are_held(name: str, files: list[Path]) -> None:
    """So that nobody is told that they have a size of their own, and a suite beside them is brought to the same."""
    source, labels = LISTS[name](files)
    made = load_images(source, labels=labels, size=4)
    for data in (made, made.in_memory(), made.on_disk(), made.subset([1, 2]).in_memory()):
        assert data.shape == (3, 4, 4)
        assert data.source.size == 4


def test_names_as_labels(files: list[Path]) -> None:
    for source in (
        list(zip(PILS, NAMES, strict=True)),
        [(str(file), name) for file, name in zip(files, NAMES, strict=True)],
        Frame(file=list(map(str, files)), label=NAMES),
    ):
        data = load_data(source)
        assert_same(data)
        assert data.numbering == "names"
    assert_same(load_data(files), labels=None)
    assert_same(load_data(PILS), labels=None)


def test_two_samples_are_a_list() -> None:
    data = load_data([(PILS[0], 0), (PILS[1], 1)])
    assert (data.labels is not None and data.labels.tolist()) == [0, 1]


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        ([[0, 1]] * COUNT, "Multi-label"),
        ([torch.tensor([1, 1, 0])] * COUNT, "Multi-label"),
        (["cat|dog"] * COUNT, "Multi-label"),
        ([3.0] * COUNT, "do not fit"),
        ([-1] * COUNT, "negative"),
        ([0] * (COUNT - 1), "do not fit"),
        ([None, *LABELS[1:]], "have no label"),
        ([float("nan"), *NAMES[1:]], "have no label"),
        (["3.0", *NAMES[1:]], "neither all class names"),
    ],
)
def test_labels_are_never_renumbered_in_silence(labels: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        load_data(PILS, labels=labels)


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize("header", [("file", "label"), ("filename", "class"), ("image_path", "Target"), ("a", "b")])
def test_tables_beside_images(header: tuple[str, str], suffix: str, files: list[Path]) -> None:
    rows: list[tuple[str, object]] = [(f"photos/{file.name}", name) for file, name in zip(files, NAMES, strict=True)]
    path = table(files[0].parents[1] / f"set.{suffix}", header, rows, "\t" if suffix == "tsv" else ",")
    columns: dict[str, Any] = {"image_column": "a", "label_column": "b"} if header[0] == "a" else {}
    assert_same(load_data(path, **columns))
    inside: list[tuple[str, object]] = [(file.name, name) for file, name in zip(files, NAMES, strict=True)]
    other = table(files[0].parents[1] / f"labels.{suffix}", header, inside, "\t" if suffix == "tsv" else ",")
    assert_same(load_data(files[0].parent, labels=other, **columns))


def test_a_table_of_images_names_its_columns(files: list[Path]) -> None:
    path = table(files[0].parents[1] / "set.csv", ("file", "kind"), [("photos/00.png", "cat"), ("photos/01.png", "b")])
    with pytest.raises(DataError, match="Cannot read the table of labels") as caught:
        load_data(path)
    assert "--label-column" in caught.value.facts["fix"]
    assert load_data(path, label_column="kind").classes == ("b", "cat")
    with pytest.raises(ConfigurationError, match="split= cannot be used with a table of images"):
        load_data(path, split="train")


def test_a_table_with_texts_is_one_of_texts(files: list[Path]) -> None:
    path = files[0].parents[1] / "both.csv"
    path.write_text("file,text,label\nphotos/00.png,a cat,cat\nphotos/01.png,a dog,dog\n")
    assert load_data(path).kind == "texts"
    assert load_data(path, image_column="file").kind == "images"


def test_a_data_set_that_fails_is_named() -> None:
    def fails(image: Any) -> Any:
        raise FileNotFoundError("no such photo")

    with pytest.raises(DataError, match="failed at item 0") as caught:
        load_data(Photos(fails))
    assert "no such photo" in caught.value.facts["got"]


def test_tar_files(files: list[Path], tmp_path: Path) -> None:
    samples = [
        {"png": file.read_bytes(), "cls": str(label).encode()} for file, label in zip(files, LABELS, strict=True)
    ]
    whole = tar(tmp_path / "all.tar", samples)
    numbered(load_data(whole))
    assert load_images(whole, size=4).source.size == 4
    shards = tmp_path / "shards"
    shards.mkdir()
    tar(shards / "part-000.tar", samples[:5])
    tar(shards / "part-001.tar", samples[5:])
    numbered(load_data(shards))
    numbered(load_data(str(shards / "part-{000..001}.tar")))
    by_json = [
        {"png": file.read_bytes(), "json": json.dumps({"kind": name, "label": 7}).encode()}
        for file, name in zip(files, NAMES, strict=True)
    ]
    assert_same(load_data(tar(tmp_path / "json.tar", by_json), label_column="kind"))
    beside = [{"a.mask.png": files[0].read_bytes(), **sample, "depth.png": b"x"} for sample in samples]
    numbered(load_data(tar(tmp_path / "beside.tar", beside)))
    with pytest.raises(DataError, match=r"several images(?s:.*)--image-column\s+jpg"):
        load_data(tar(tmp_path / "two.tar", [{"jpg": b"x", **sample} for sample in samples]))
    numbered(load_data(tar(tmp_path / "two.tar", [{"jpg": b"x", **sample} for sample in samples]), image_column="png"))
    assert load_data(tar(tmp_path / "bare.tar", [{"png": files[0].read_bytes()}])).labels is None
    with pytest.raises(DataError, match="no samples of images"):
        load_data(tar(tmp_path / "texts.tar", [{"txt": b"x"}]))
    (tmp_path / "bad.tar").write_bytes(b"x" * 2000)
    with pytest.raises(DataError, match="Cannot read the archive"):
        load_data(tmp_path / "bad.tar")


def test_what_write_stream_writes_is_read(tmp_path: Path) -> None:
    clean = load_data("demo")
    shiftproof.write_stream("mixed", "demo", out=tmp_path / "out", images=30, shard_images=20)
    data = load_data(tmp_path / "out")
    assert len(data) == 30
    assert data.classes == clean.classes
    assert data.numbering == "own"


def test_a_published_suite_is_a_set_for_each_part(files: list[Path], tmp_path: Path) -> None:
    suite = tmp_path / "CIFAR-10-C"
    suite.mkdir()
    np.save(suite / "labels.npy", np.array(LABELS * 5, np.uint8))
    np.save(suite / "fog.npy", np.concatenate([np.full_like(ARRAYS, level) for level in (1, 2)] + [ARRAYS] * 3))
    numbered(load_data(suite, split="fog@3"))
    assert next(load_data(suite, split="fog@2").batches(1)).inputs.mul(255).round().unique().tolist() == [2.0]
    for wrong in (None, "fog@6", "snow@1"):
        with pytest.raises(DataError, match="suite") as caught:
            load_data(suite, split=wrong)
        assert caught.value.facts["got"] == "fog, each at 1, 2, 3, 4, 5"


@pytest.mark.parametrize(
    ("place", "split"), [("fog/3", "fog@3"), ("weather/fog/3", "fog@3"), ("sparkles/3.00", "sparkles@3.00")]
)
def test_a_published_suite_of_folders(place: str, split: str, files: list[Path], tmp_path: Path) -> None:
    for file, name in zip(files, NAMES, strict=True):
        here = tmp_path / "ImageNet-C" / place / name / file.name
        here.parent.mkdir(parents=True, exist_ok=True)
        here.write_bytes(file.read_bytes())
    data = load_data(tmp_path / "ImageNet-C", split=split)
    assert_same(data)
    assert data.name == f"ImageNet-C {split}"
    with pytest.raises(DataError, match="is a suite of corrupted images"):
        load_data(tmp_path / "ImageNet-C")


@pytest.mark.parametrize(("suite", "split"), [("cifar-c", "fog@3"), ("cifar-c-bar", "sparkles@2")])
def test_a_suite_that_is_written_is_read(suite: Any, split: str, tmp_path: Path) -> None:
    name, _, severity = split.partition("@")
    plain: Any = load_data((ARRAYS, np.array(LABELS)))
    shiftproof.write_corrupted(plain, suite=suite, out=tmp_path / "out")
    (found,) = load_data(tmp_path / "out", split=split).batches(COUNT)
    shift = shiftproof.shifts.corruption(name, int(severity), "cifar")
    assert torch.equal(found.inputs, shift(TENSORS, plain.keys, seed=0))
    assert found.labels is not None
    assert found.labels.tolist() == LABELS


def test_a_wrong_column_and_a_wrong_file(files: list[Path]) -> None:
    with pytest.raises(DataError, match="no column 'picture'"):
        load_data(Frame(file=list(map(str, files)), label=LABELS), image_column="picture")
    with pytest.raises(DataError, match=r"Cannot tell which column[\s\S]*--text-column"):
        load_data(Frame(x=list(map(str, files)), label=LABELS))
    with pytest.raises(DataError, match="Cannot read the image 'row 1'"):
        load_data([files[0].read_bytes(), b"broken"])
    data = load_data([files[0].read_bytes(), b"broken"], on_bad_file="skip")
    assert len(data) == 1
    assert "row 1" in data.notes[-1]
    with pytest.raises(DataError, match="different sizes"):
        load_data([PILS[0], Image.new("RGB", (9, 9))])
    assert load_images([PILS[0], Image.new("RGB", (9, 9))], size=4).shape == (3, 4, 4)


@pytest.mark.parametrize("images", [list(ARRAYS[:2]), list(TENSORS[:2])], ids=["arrays", "tensors"])
def test_a_list_of_two_images_of_one_size_is_no_pair_of_images_and_label_maps(images: list[Any]) -> None:
    data = load_images(images)
    assert data.labels is None
    assert data.shape == (3, SIDE, SIDE)
    assert len(data) == 2
