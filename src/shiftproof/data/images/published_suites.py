"""Suites of corrupted images, each corruption at each severity a set: ImageNet-C, ImageNet-C-bar, CIFAR-10-C.

Hendrycks & Dietterich 2019 and Mintun et al. 2021. As published and as `write-corrupted` writes them: folders
`fog/3/n01440764/...`, also within a folder for the category (`weather/fog/3`) and under a strength instead of a
severity (`sparkles/3.00`); or arrays, `fog.npy` with the severities 1 to 5 one after the other, and `labels.npy`. A
suite of one's own has other corruptions too, beside a published one at least.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from shiftproof.data.base import OnBadFile
from shiftproof.data.images.arrays import from_arrays, read_array
from shiftproof.data.images.decoding import Color, Size
from shiftproof.data.images.file_lists import has_images, images_under, named_file
from shiftproof.data.images.folders import TABLE, load_folder
from shiftproof.data.images.imageset import ImageSet
from shiftproof.errors import DataError
from shiftproof.measures import ALEXNET

SEVERITIES = 5
LABELS = "labels.npy"
BAR = (
    *("blue_noise_sample", "brownish_noise", "caustic_refraction", "checkerboard_cutout", "circular_motion_blur"),
    *("cocentric_sine_waves", "inverse_sparkles", "lines", "perlin_noise", "pinch_and_twirl", "plasma_noise", "ripple"),
    *("single_frequency_greyscale", "sparkles", "transverse_chromatic_abberation"),
)
CATEGORIES = ("noise", "blur", "weather", "digital", "extra")
"""The folders of the published archives of ImageNet-C."""
NAMES = frozenset((*ALEXNET, *BAR))
"""The corruptions of the published suites."""

_LEVEL = re.compile(r"\d+(\.\d+)?")
_ONE = re.compile(rf"(?P<name>.+)@(?P<level>{_LEVEL.pattern})")


class Part(NamedTuple):
    """A corruption at a severity, and where it is: a folder of classes, or a block of so many in an array."""

    name: str
    severity: float
    place: Path
    block: int = 0
    blocks: int = 0

    @property
    def label(self) -> str:
        """What it is called: `fog@3`."""
        return f"{self.name}@{self.severity:g}"


class ReadOptions(TypedDict):
    """How images are read: options of `load_data` by name."""

    size: Size | None
    color: Color | None
    classes: str | Path | Sequence[str]
    on_bad_file: OnBadFile


def read_options(
    size: Size | None = None,
    color: Color | None = None,
    classes: str | Path | Sequence[str] = "auto",
    on_bad_file: OnBadFile = "fail",
) -> ReadOptions:
    """Return how images are read, where not all is said."""
    return {"size": size, "color": color, "classes": classes, "on_bad_file": on_bad_file}


@dataclass(frozen=True)
class StoredSuite:
    """A folder of parts, sorted by corruption and severity; what else is in it; and how its images are read.

    `unclear` are folders of images that are no part: then it may be a set with a folder for each class as well.
    `ignored` are arrays that do not have the shape of the others.
    """

    folder: Path
    parts: Mapping[str, Part]
    unclear: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    reading: ReadOptions = field(default_factory=read_options)

    @property
    def name(self) -> str:
        """What the folder is called."""
        return self.folder.resolve().name

    @property
    def gentlest(self) -> str:
        """The part with the least change, by its name: the lowest severity of brightness, or of the first."""
        found = self.parts.values()
        return min(found, key=lambda part: (part.name != "brightness", part.severity, part.name)).label

    def find(self, split: str) -> Part | None:
        """Return a part by a text: `fog@3`, `fog/3`; `sparkles@3.00` is the part in the folder of this strength."""
        name, _, level = split.replace("/", "@").rpartition("@")
        named = (part for part in self.parts.values() if (part.name, part.place.name) == (name, level))
        return next(named, None) or self.parts.get(f"{name}@{level}")

    def names(self, label: str) -> tuple[str, ...]:
        """Return what the images of a part are called; those of one name in several parts were made of one image."""
        part = self.parts[label]
        if not part.blocks:
            return tuple(named_file(file) for file in images_under(part.place))
        return tuple(map(str, range(len(_block(part)))))

    def load(self, label: str, only: Sequence[str] | None = None, *, size: Size | None = None) -> ImageSet:
        """Return a part as a set: all of it, or images by name, in the order of their names."""
        part = self.parts[label]
        how = self.reading if size is None else {**self.reading, "size": size}
        name = f"{self.name} {label}"
        if not part.blocks:
            return load_folder(part.place, only=only, **how).named(name)
        images, labels = _block(part), self._labels(part)
        if only is not None:
            rows = [int(row) for row in only]
            images, labels = images[rows], labels[rows]
        return from_arrays(images, labels, name=name, size=how["size"], color=how["color"], classes=how["classes"])

    def _labels(self, part: Part) -> NDArray[np.generic]:
        """Return the labels of a part; the file has those of one severity, or of all of them."""
        images, labels = len(_block(part)), np.asarray(read_array(self.folder / LABELS))
        here = slice(part.block * images, (part.block + 1) * images) if len(labels) > images else slice(None)
        if len(labels) not in (images, SEVERITIES * images):
            raise DataError(
                f"{str(part.place)!r} is not a file of a published suite.",
                expected=f"images at {SEVERITIES} severities, one after the other, and labels for them",
                got=f"{len(read_array(part.place))} images, {len(labels)} labels",
            )
        return labels[here]


def find_suite(folder: Path) -> StoredSuite | None:
    """Return the suite that a folder holds; None where it holds none.

    A folder of images by class is none, though a class is called `fog`: parts of a suite have a folder for each
    severity, and in it folders for the same classes everywhere; at least one corruption is a published one.
    """
    if (folder / LABELS).is_file():
        return _of_arrays(folder)
    inside = [] if (folder / TABLE).is_file() else _folders(folder)  # a table says what belongs to a set
    if not {entry.name for entry in inside} & {*NAMES, *CATEGORIES}:
        return None
    found: list[Part] = []
    unclear: list[str] = []
    for entry in inside:
        parts = list(_corruption(entry)) or [
            part for inner in (_folders(entry) if entry.name in CATEGORIES else ()) for part in _corruption(inner)
        ]
        found += parts
        if not parts and has_images(entry):
            unclear.append(entry.name)
    if not any(part.name in NAMES for part in found) or not _same_classes(found):
        return None
    return StoredSuite(folder, _by_label(folder, found), tuple(unclear))


def load_suite(folder: Path, *, split: str | None = None, **how: Unpack[ReadOptions]) -> ImageSet:
    """Return a corruption at a severity as a set, such as `fog@3`; a suite as a whole is none."""
    suite = find_suite(folder)
    part = None if suite is None or split is None else suite.find(split)
    if suite is None or part is None:
        raise _not_a_set(folder, suite, split)
    return StoredSuite(folder, suite.parts, reading=how).load(part.label).named(f"{suite.name} {split}")


def check_clear(suite: StoredSuite) -> None:
    """Refuse a folder that may be a suite, or images by class."""
    if suite.unclear:
        raise DataError(
            f"{str(suite.folder)!r} may be a suite of corrupted images, or images by class.",
            expected="corruption/severity/class/file in all of its folders, or class/file",
            got=f"{next(iter(suite.parts.values())).place.relative_to(suite.folder)} as in a suite, and images in "
            f"{', '.join(suite.unclear[:5])}",
            fix="move what does not belong to the suite elsewhere; split= (--split) reads one part as it is, "
            f"such as {next(iter(suite.parts))}; labels= (--labels) a table names files and classes",
        )


def _not_a_set(folder: Path, suite: StoredSuite | None, split: str | None) -> DataError:
    parts = {} if suite is None else suite.parts
    if suite is not None and split is None:
        check_clear(suite)
    names = dict.fromkeys(part.name for part in parts.values())
    levels = dict.fromkeys(f"{severity:g}" for severity in sorted({part.severity for part in parts.values()}))
    return DataError(
        f"{str(folder)!r} is a suite of corrupted images."
        if split is None
        else f"There is no part {split!r} in the suite {str(folder)!r}.",
        expected=f"split= a corruption at a severity, such as {next(iter(parts), 'fog@3')}",
        got=f"{', '.join(names)}, each at {', '.join(levels)}",
        fix="shiftproof audit takes a suite as a whole",
    )


def _of_arrays(folder: Path) -> StoredSuite | None:
    """Return the suite of a folder of arrays; of two shapes, that of the published corruptions is the suite's."""
    files = sorted(file for file in folder.glob("*.npy") if file.name != LABELS and file.is_file())
    named = [_array_parts(file) for file in files]
    known = [parts for parts in named if parts[0].name in NAMES]
    if not known:
        return None
    shapes = {read_array(parts[0].place).shape[1:] for parts in known}
    kept = [parts for parts in named if parts in known or read_array(parts[0].place).shape[1:] in shapes]
    ignored = tuple(parts[0].place.name for parts in named if parts not in kept)
    return StoredSuite(folder, _by_label(folder, [part for parts in kept for part in parts]), ignored=ignored)


def _array_parts(file: Path) -> list[Part]:
    """Return the parts of an array: `fog.npy` has all severities, `fog@3.npy` one."""
    one = _ONE.fullmatch(file.stem)
    if one is not None:
        return [Part(one["name"], float(one["level"]), file, blocks=1)]
    return [Part(file.stem, block + 1.0, file, block, SEVERITIES) for block in range(SEVERITIES)]


def _block(part: Part) -> NDArray[np.generic]:
    """Return the images of a part of an array."""
    images = read_array(part.place)
    count, rest = divmod(len(images), part.blocks)
    if rest or not count:
        raise DataError(
            f"{str(part.place)!r} is not a file of a published suite.",
            expected=f"images at {SEVERITIES} severities, one after the other",
            got=f"{len(images)} images",
        )
    return images[part.block * count : (part.block + 1) * count]


def _corruption(folder: Path) -> Iterator[Part]:
    """Yield the parts of a corruption, where a folder has nothing but severities, which have nothing but classes."""
    inside = _folders(folder)
    numbers = [entry for entry in inside if _LEVEL.fullmatch(entry.name) and float(entry.name) > 0]
    if not inside or len(numbers) < len(inside) or has_images(folder, below=False):
        return
    levels = sorted(numbers, key=lambda entry: float(entry.name))
    if any(not _folders(entry) or has_images(entry, below=False) for entry in levels):
        return
    whole = len(levels) == SEVERITIES  # strengths are severities in the order they grow, where all are there
    for number, level in enumerate(levels, start=1):
        yield Part(folder.name, float(number) if whole else float(level.name), level)


def _same_classes(parts: Sequence[Part]) -> bool:
    """Whether parts have folders for the same classes, of which there are two at least; some may lack a few."""
    classes = [{entry.name for entry in _folders(part.place)} for part in parts]
    most = max(classes, key=len)
    return len(most) > 1 and all(some <= most for some in classes)


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, sorted; hidden ones do not count."""
    if not folder.is_dir():
        return []
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith(".") and entry.is_dir())


def _by_label(folder: Path, found: Sequence[Part]) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    for part in sorted(found, key=lambda part: (part.name, part.severity)):
        if part.label in parts:
            raise DataError(
                f"{part.label} occurs twice in the suite {str(folder)!r}.",
                expected="one place for each corruption and severity",
                got=f"{parts[part.label].place.relative_to(folder)} and {part.place.relative_to(folder)}",
            )
        parts[part.label] = part
    return parts
