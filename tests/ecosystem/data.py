"""Every form of data that people bring, as a table: name -> what makes it of the demo's images."""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import torch
import torchvision
import webdataset
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Subset, TensorDataset
from torchvision.transforms import v2

import shiftproof
from shiftproof.data import load_images

COUNT = 60


@dataclass(frozen=True)
class Held:
    """Data as its user has it: what `load_data` is given, and how."""

    source: Any
    options: dict[str, Any] = field(default_factory=dict)


class Shelf:
    """Some of the demo's images, as arrays, PIL images and files, with labels and class names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        data = load_images("demo").take(COUNT, seed=0)
        (batch,) = data.batches(COUNT)
        self.images = batch.inputs
        self.arrays: Any = (batch.inputs * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
        self.labels: list[int] = [] if batch.labels is None else batch.labels.tolist()
        self.classes = list(data.classes)
        self.names = [self.classes[label] for label in self.labels]
        self.pictures = [Image.fromarray(array) for array in self.arrays]

    def folder(self, under: str = "photos", numbers: bool = False) -> Path:
        """Write the images into a folder for each class."""
        for row, picture in enumerate(self.pictures):
            name = str(self.labels[row]) if numbers else self.names[row]
            path = self.root / under / name / f"{row:03}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture.save(path)
        return self.root / under

    def flat(self, under: str = "flat") -> list[str]:
        """Write the images into one folder, and return their names."""
        (self.root / under).mkdir(exist_ok=True)
        for row, picture in enumerate(self.pictures):
            picture.save(self.root / under / f"{row:03}.png")
        return [f"{under}/{row:03}.png" for row in range(COUNT)]

    def encoded(self) -> list[bytes]:
        """Return the images as the bytes of PNG files."""
        return [(self.root / name).read_bytes() for name in self.flat()]


class Own(torch.utils.data.Dataset[Any]):
    """A user's own data set; `form` is what its items are."""

    def __init__(self, shelf: Shelf, form: Callable[[Any, int], Any]) -> None:
        self.shelf, self.form, self.classes = shelf, form, shelf.classes

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, row: int) -> Any:
        return self.form(self.shelf.pictures[row], self.shelf.labels[row])


class Flow(IterableDataset[Any]):
    """A user's own stream of samples."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    def __iter__(self) -> Iterator[Any]:
        return iter(zip(self.shelf.images, self.shelf.labels, strict=True))


TENSOR = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


def image_folder(shelf: Shelf, transform: Any = None) -> Any:
    return torchvision.datasets.ImageFolder(str(shelf.folder()), transform)


def table(shelf: Shelf, suffix: str, header: tuple[str, str], **options: str) -> Held:
    path = shelf.root / f"set.{suffix}"
    rows = zip(shelf.flat(), shelf.names, strict=True)
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter="\t" if suffix == "tsv" else ",").writerows([header, *rows])
    return Held(str(path), dict(options))


def frame(shelf: Shelf, form: str) -> Held:
    paths = [str(shelf.root / name) for name in shelf.flat()]
    match form:
        case "paths":
            return Held(pandas.DataFrame({"path": paths, "label": shelf.names}))
        case "numbers":
            return Held(pandas.DataFrame({"path": paths, "label": shelf.labels}))
        case "categories":
            return Held(pandas.DataFrame({"path": paths, "label": pandas.Categorical(shelf.names)}))
        case "pictures":
            return Held(pandas.DataFrame({"image": shelf.pictures, "label": shelf.names}))
        case _:
            columns = {"image_column": "where", "label_column": "what"}
            return Held(pandas.DataFrame({"where": paths, "what": shelf.names, "label": "other"}), columns)


def huggingface(shelf: Shelf) -> Any:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=shelf.classes)})
    return datasets.Dataset.from_dict({"image": shelf.pictures, "label": shelf.labels}, features=features)


def saved(shelf: Shelf, splits: bool) -> Held:
    made = huggingface(shelf)
    if splits:
        datasets.DatasetDict({"train": made.select(range(3)), "test": made}).save_to_disk(str(shelf.root / "saved"))
        return Held(str(shelf.root / "saved"), {"split": "test"})
    made.save_to_disk(str(shelf.root / "saved"))
    return Held(str(shelf.root / "saved"))


def parquet(shelf: Shelf, form: str) -> Held:
    path = shelf.root / "set.parquet"
    if form == "huggingface":
        huggingface(shelf).to_parquet(str(path))
    elif form == "pandas":
        pandas.DataFrame({"file": shelf.flat(), "label": shelf.names}).to_parquet(path)
    else:
        pyarrow.parquet.write_table(pyarrow.table({"image": shelf.encoded(), "label": shelf.names}), path)
    return Held(str(path))


def written(shelf: Shelf, form: str) -> Held:
    """Write tar files with the package webdataset."""
    (shelf.root / "tars").mkdir()
    with webdataset.ShardWriter(str(shelf.root / "tars/part-%03d.tar"), maxcount=25, verbose=0) as writer:
        for row, picture in enumerate(shelf.pictures):
            label = {"cls": shelf.labels[row]} if form != "json" else {"json": {"label": shelf.names[row]}}
            writer.write({"__key__": f"{row:06}", "png": picture, **label})
    return Held(str(shelf.root / ("tars/part-{000..002}.tar" if form == "pattern" else "tars")))


def one_tar(shelf: Shelf) -> Held:
    path = shelf.root / "set.tar"
    with tarfile.open(path, "w") as archive:
        for row, content in enumerate(shelf.encoded()):
            for ending, inside in (("png", content), ("cls", str(shelf.labels[row]).encode())):
                member = tarfile.TarInfo(f"{row:06}.{ending}")
                member.size = len(inside)
                archive.addfile(member, io.BytesIO(inside))
    return Held(str(path))


def arrays(shelf: Shelf, form: str) -> Held:
    images, labels = shelf.arrays, np.array(shelf.labels)
    match form:
        case "npz":
            np.savez(shelf.root / "set.npz", images=images, labels=labels)
            return Held(str(shelf.root / "set.npz"))
        case "npy":
            np.save(shelf.root / "set.npy", images)
            np.save(shelf.root / "labels.npy", labels)
            return Held(str(shelf.root / "set.npy"))
        case "pair":
            return Held((images, labels))
        case _:
            return Held((shelf.images, torch.tensor(shelf.labels)))


def suite(shelf: Shelf, form: str) -> Held:
    """Lay the images out as a part of a published suite."""
    top = shelf.root / "Suite"
    if form == "arrays":
        top.mkdir()
        np.save(top / "fog.npy", np.concatenate([np.zeros_like(shelf.arrays)] * 2 + [shelf.arrays] * 3))
        np.save(top / "labels.npy", np.array(shelf.labels * 5, np.uint8))
        return Held(str(top), {"split": "fog@3"})
    shelf.folder(f"Suite/{'weather/' if form == 'category' else ''}fog/3")
    shelf.folder(f"Suite/{'weather/' if form == 'category' else ''}fog/4")
    return Held(str(top), {"split": "fog@3"})


def with_splits(shelf: Shelf) -> Held:
    shelf.folder("set/train")
    return Held(str(shelf.folder("set/val").parent), {"split": "val"})


def stated(shelf: Shelf) -> Held:
    shelf.flat()
    rows = [[f"{row:03}.png", name] for row, name in enumerate(shelf.names)]
    with (shelf.root / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["file", "label"], *rows])
    return Held(str(shelf.root / "flat"), {"labels": str(shelf.root / "labels.csv")})


def cifar(shelf: Shelf) -> Held:
    folder = shelf.root / "cifar-10-batches-bin"
    folder.mkdir()
    (folder / "batches.meta.txt").write_text("\n".join(shelf.classes))
    rows = [
        bytes([label]) + array.transpose(2, 0, 1).tobytes()
        for label, array in zip(shelf.labels, shelf.arrays, strict=True)
    ]
    (folder / "test_batch.bin").write_bytes(b"".join(rows))
    return Held(str(folder))


def as_dict(picture: Any, label: int) -> dict[str, Any]:
    return {"pixel_values": TENSOR(picture), "labels": label}


def pairs(shelf: Shelf, pictures: Callable[[Shelf], Any], labels: Callable[[Shelf], Any]) -> Held:
    return Held(list(zip(pictures(shelf), labels(shelf), strict=True)))


def paths(shelf: Shelf) -> list[Path]:
    return [shelf.root / name for name in shelf.flat()]


DATA: Mapping[str, Callable[[Shelf], Held]] = {
    "folder": lambda shelf: Held(str(shelf.folder())),
    "folder of numbers": lambda shelf: Held(str(shelf.folder(numbers=True))),
    "folder with splits": with_splits,
    "folder and a table": stated,
    "CSV": partial(table, suffix="csv", header=("file", "label")),
    "CSV, other names": partial(table, suffix="csv", header=("Image_Path", "Class")),
    "CSV, named columns": partial(
        table, suffix="csv", header=("where", "what"), image_column="where", label_column="what"
    ),
    "TSV": partial(table, suffix="tsv", header=("filename", "category")),
    **{
        f"DataFrame, {form}": partial(frame, form=form)
        for form in ("paths", "numbers", "categories", "pictures", "named")
    },
    **{f"Parquet, {form}": partial(parquet, form=form) for form in ("huggingface", "pandas", "bytes")},
    "Arrow table": lambda shelf: Held(pyarrow.table({"image": shelf.encoded(), "label": shelf.names})),
    "datasets": lambda shelf: Held(huggingface(shelf)),
    "datasets, splits": lambda shelf: Held(datasets.DatasetDict({"a": huggingface(shelf)}), {"split": "a"}),
    "datasets, streamed": lambda shelf: Held(huggingface(shelf).to_iterable_dataset()),
    "datasets, transformed": lambda shelf: Held(
        huggingface(shelf).with_transform(
            lambda rows: {"pixel_values": [TENSOR(one.convert("RGB")) for one in rows["image"]], "label": rows["label"]}
        )
    ),
    "datasets, as tensors": lambda shelf: Held(huggingface(shelf).with_format("torch", columns=["label"])),
    "datasets, saved": partial(saved, splits=False),
    "datasets, saved splits": partial(saved, splits=True),
    **{f"webdataset, {form}": partial(written, form=form) for form in ("folder", "pattern", "json")},
    "tar": one_tar,
    **{f"arrays, {form}": partial(arrays, form=form) for form in ("npz", "npy", "pair", "tensors")},
    **{f"suite, {form}": partial(suite, form=form) for form in ("arrays", "folders", "category")},
    "CIFAR": cifar,
    "ImageFolder": lambda shelf: Held(image_folder(shelf)),
    "ImageFolder, tensors": lambda shelf: Held(image_folder(shelf, torchvision.transforms.ToTensor())),
    "ImageFolder, v2": lambda shelf: Held(image_folder(shelf, TENSOR)),
    "Subset": lambda shelf: Held(Subset(image_folder(shelf, TENSOR), list(reversed(range(COUNT))))),
    "ConcatDataset": lambda shelf: Held(
        ConcatDataset([Subset(image_folder(shelf), range(20)), Subset(image_folder(shelf), range(20, COUNT))])
    ),
    "TensorDataset": lambda shelf: Held(TensorDataset(shelf.images, torch.tensor(shelf.labels))),
    "Dataset of mappings": lambda shelf: Held(Own(shelf, as_dict)),
    "Dataset of triples": lambda shelf: Held(Own(shelf, lambda picture, label: (picture, label, "about"))),
    "IterableDataset": lambda shelf: Held(Flow(shelf)),
    "DataLoader": lambda shelf: Held(DataLoader(image_folder(shelf, TENSOR), batch_size=7)),
    "DataLoader, shuffled": lambda shelf: Held(DataLoader(image_folder(shelf, TENSOR), batch_size=7, shuffle=True)),
    "DataLoader, own collate": lambda shelf: Held(
        DataLoader(
            image_folder(shelf, TENSOR),
            batch_size=7,
            collate_fn=lambda items: {
                "image": torch.stack([image for image, _ in items]),
                "label": torch.tensor([label for _, label in items]),
            },
        )
    ),
    "DataLoader of a stream": lambda shelf: Held(DataLoader(Flow(shelf), batch_size=7)),
    "list of PIL and numbers": partial(pairs, pictures=lambda shelf: shelf.pictures, labels=lambda shelf: shelf.labels),
    "list of PIL and names": partial(pairs, pictures=lambda shelf: shelf.pictures, labels=lambda shelf: shelf.names),
    "list of arrays": partial(pairs, pictures=lambda shelf: shelf.arrays, labels=lambda shelf: shelf.labels),
    "list of tensors": partial(pairs, pictures=lambda shelf: shelf.images, labels=lambda shelf: shelf.labels),
    "list of paths and names": partial(pairs, pictures=paths, labels=lambda shelf: shelf.names),
    "paths and labels": lambda shelf: Held(paths(shelf), {"labels": shelf.names}),
    "texts of paths": lambda shelf: Held((list(map(str, paths(shelf))), shelf.labels)),
    "PIL and labels": lambda shelf: Held(shelf.pictures, {"labels": np.array(shelf.labels)}),
    "bytes and labels": lambda shelf: Held(shelf.encoded(), {"labels": shelf.labels}),
    "DataSpec": lambda shelf: Held(shiftproof.DataSpec(str(shelf.folder()))),
}
