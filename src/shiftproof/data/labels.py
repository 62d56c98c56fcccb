"""Labels: class names to the numbers of a model's outputs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftproof.errors import ConfigurationError, DataError
from shiftproof.models.class_names import folded
from shiftproof.registry import unknown
from shiftproof.runs.files import is_file

LARGEST_INDEX = 100_000
"""Folder names that are whole numbers up to this are class indices; larger numbers are taken for names."""

Numbering: TypeAlias = Literal["index", "numerals", "names", "own", "given"]
"""Where the numbers of labels come from: they are a model's output indices; names that are whole numbers, which are
indices unless the model names its outputs so; names that were sorted; names with numbers that the data set itself has;
or names in the order of outputs that the user gave. See `matching`."""

_MISSING = ("NAType", "NaTType")
"""The types of what pandas has where a cell is empty."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class Naming(NamedTuple):
    """Which number each class name has, the names in the order of the numbers, and what a report should say."""

    numbers: dict[str, int]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    numbering: Numbering = "names"


UNLABELLED = -1
"""What sets with names for their labels' numbers have for labels that are kept back."""
NO_LABELS = Naming({}, (), numbering="index")
"""Of data without labels."""


def number_classes(
    names: Sequence[str],
    classes: str | Path | Sequence[str] = "auto",
    places: Mapping[str, str] | None = None,
) -> Naming:
    """Give class names numbers: those of a model's outputs where they are known, otherwise their places when sorted.

    `auto`: names that are all whole numbers are the numbers themselves (`numerals`); other names are numbered in sorted
    order, which `matching.match` replaces by a model's. Numbers among names, fractions and negative numbers are
    refused, and several labels in one. `sorted`: always sorted order, torchvision's. A sequence of names, or a text
    file with one name per line: their places in it. `places` says where a name stands first, for messages.
    """
    found = sorted(set(names))
    listed = listed_names(classes)
    if listed is not None:
        numbers = {name: number for number, name in enumerate(listed)}
        for name in found:
            if name not in numbers:
                raise _as_data_error(name, listed)
        return Naming(numbers, tuple(listed), numbering="given")
    if classes == "sorted":
        return Naming({name: number for number, name in enumerate(found)}, tuple(found), numbering="given")
    _check_single(found, places or {})
    if all(map(_is_index, found)):
        numbers = {name: int(name) for name in found}
        if len(set(numbers.values())) < len(found):
            raise DataError(
                "Two class names stand for one number.",
                expected="one folder for each number",
                got=", ".join(found[:10]),
                fix="rename one of them, or number the names in sorted order with classes='sorted'",
            )
        return Naming(numbers, tuple(map(str, range(max(numbers.values()) + 1))), numbering="numerals")
    _check_no_numbers(found, places or {})
    return Naming({name: number for number, name in enumerate(found)}, tuple(found))


def check_labels(labels: ArrayLike | Tensor, images: int) -> Tensor:
    """Return one whole number of at least 0 per image as int64 [N], or refuse the labels."""
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    expected = f"{images} whole numbers from 0, one per image"
    got = f"{array.dtype} array of shape {array.shape}"
    if array.ndim == 2 and array.shape == (images, 1):
        array = array[:, 0]
    if array.shape != (images,) or array.dtype.kind not in "iub":
        if array.ndim == 2 and len(array) == images and set(np.unique(array).tolist()) <= {0, 1}:
            if not bool((array.sum(1) == 1).all()):
                raise _several(f"rows of 0 and 1 with {int(array.sum(1).min())} to {int(array.sum(1).max())} ones")
            raise DataError(
                "The labels do not fit the images.",
                expected=expected,
                got=got,
                fix="one-hot labels: pass labels.argmax(1)",
            )
        whole = array.dtype.kind == "f" and array.shape == (images,) and bool((array == np.floor(array)).all())
        fix = (
            {"fix": "whole numbers that became floats: pass labels.astype(int), of a tensor labels.long()"}
            if whole
            else {}
        )
        raise DataError("The labels do not fit the images.", expected=expected, got=got, **fix)
    if len(array) and array.min() < 0:
        raise DataError("There are negative labels.", expected=expected, got=f"{array.min()}")
    if len(array) and array.max() > LARGEST_INDEX:
        raise DataError(
            "There are labels beyond any model's classes.",
            expected=f"whole numbers from 0 to {LARGEST_INDEX:,}",
            got=f"{array.max()}",
        )
    return torch.from_numpy(array.astype(np.int64))


def _is_index(name: str) -> bool:
    return name.isascii() and name.isdigit() and int(name) <= LARGEST_INDEX


def _check_no_numbers(found: Sequence[str], places: Mapping[str, str]) -> None:
    """Refuse numbers that cannot be indices, alone or among names: sorting them would give each another meaning.

    Names that are all whole numbers too large for indices, such as dates or the numbers of people, are names.
    """
    odd = [name for name in found if _NUMBER.fullmatch(name)]
    if not odd or all(name.isascii() and name.isdigit() and int(name) > LARGEST_INDEX for name in found):
        return
    others = [name for name in found if name not in odd]
    wrong = others or [name for name in odd if not _is_index(name)]
    rest = next((name for name in odd if name not in wrong), None)
    first = wrong[0]
    raise DataError(
        f"Labels are {'neither all class names nor all whole numbers' if others else 'not whole numbers from 0'}.",
        expected=f"class names, or the model's output indices: whole numbers from 0 to {LARGEST_INDEX:,}",
        got=f"{first!r}{f' ({places[first]})' if first in places else ''}" + (f" beside {rest!r}" if rest else ""),
        fix="write whole numbers without a decimal point and remove rows without a label; where these are names, "
        "--classes FILE lists them, one per line, in the order of the model's outputs",
    )


def _check_single(found: Sequence[str], places: Mapping[str, str]) -> None:
    """Refuse several labels in one, as in cock|hen."""
    for name in found:
        if len([part for part in name.split("|") if part.strip()]) > 1:
            raise _several(f"{name!r}{f' ({places[name]})' if name in places else ''}")


def refuse_several(label: object, place: str) -> None:
    """Refuse a list of labels of one input."""
    if isinstance(label, list | tuple | set | frozenset):
        raise _several(f"{str(label)[:80]} in {place}")


def _several(got: str) -> DataError:
    return DataError(
        "Multi-label classification is not supported.",
        expected="one class for each input",
        got=got,
        fix="keep the inputs with one label, or measure one class against the others as two classes",
    )


def name_classes(labels: Tensor | None, classes: str | Path | Sequence[str]) -> tuple[str, ...]:
    """Return names for labels that are numbers already: those given, or the numbers themselves."""
    if labels is None:
        return ()
    largest = int(labels.max()) if len(labels) else -1
    listed = listed_names(classes)
    if listed is None:
        return tuple(map(str, range(largest + 1)))
    if largest >= len(listed):
        raise DataError(
            "There are more classes than class names.", expected=f"{largest + 1} names", got=f"{len(listed)} names"
        )
    return tuple(listed)


def number_given(
    labels: ArrayLike | Tensor | None,
    inputs: int,
    classes: str | Path | Sequence[str] = "auto",
    numbering: Numbering | None = None,
) -> tuple[Tensor | None, Naming]:
    """Return labels given beside inputs, in an array or a list, as numbers, and how they came to be.

    Texts are class names; numbers are those of classes, which `numbering` says where from.
    """
    if labels is None:
        return None, NO_LABELS
    try:
        array = labels if isinstance(labels, Tensor) else np.asarray(labels)
    except ValueError as error:
        raise _several("lists of different lengths") from error
    if isinstance(array, Tensor) or array.dtype.kind not in "UO":
        numbers = check_labels(array, inputs)
        known = numbering or ("index" if classes in ("auto", "sorted") else "given")
        return numbers, Naming({}, name_classes(numbers, classes), numbering=known)
    if array.shape != (inputs,):
        got = f"an array of shape {array.shape}"
        raise DataError("The labels do not fit the inputs.", expected=f"{inputs} labels, one per input", got=got)
    return number_labels(list(labels), classes)  # type: ignore[arg-type]


def number_labels(
    labels: Sequence[Any], classes: str | Path | Sequence[str] = "auto", names: Sequence[str] | None = None
) -> tuple[Tensor | None, Naming]:
    """Return labels of any kind, one per input, as numbers, and how they came to be; None where there are none.

    Texts are class names, whole numbers are numbers of classes, which `names` names where the data has names for them:
    by these they are looked up in `classes`, unless it has none of them in any spelling.
    """
    missing = [row for row, label in enumerate(labels) if is_missing(label) or (names and _is_kept_back(label))]
    if len(missing) == len(labels):
        return None, NO_LABELS
    if missing:
        raise DataError(
            "Some inputs have no label.",
            expected="a label for each input, or for none",
            got=f"none in row {missing[0]}",
        )
    for row, label in enumerate(labels):
        refuse_several(label, f"row {row}")
    texts = [label for label in labels if isinstance(label, str)]
    if texts:
        given = [str(label).strip() for label in labels]
        naming = number_classes(given, classes, {name: f"row {row}" for row, name in enumerate(given)})
        return torch.tensor([naming.numbers[name] for name in given]), naming
    plain = [label.detach().cpu().numpy() if isinstance(label, Tensor) else label for label in labels]
    if len({np.shape(label) for label in plain}) > 1:
        raise DataError("The labels are of different shapes.", expected="one whole number from 0 for each input")
    numbers = check_labels(np.array(plain), len(plain))
    listed = listed_names(classes)
    notes: tuple[str, ...] = ()
    if names and listed is not None and int(numbers.max()) < len(names):
        called = [str(names[number]) for number in numbers.tolist()]
        if not set(map(folded, listed)).isdisjoint(map(folded, names)):  # in an order of its own
            naming = number_classes(called, listed)
            return torch.tensor([naming.numbers[name] for name in called]), naming
        notes = (
            f"The list of classes ({', '.join(listed[:5])}) has none of the data's names ({', '.join(names[:5])}), and "
            "was taken for these in their order.",
        )
    own = names if names and listed is None else None
    numbering: Numbering = "own" if own else "index" if listed is None else "given"
    return numbers, Naming({}, name_classes(numbers, own or classes), notes, numbering)


def _is_kept_back(label: object) -> bool:
    return isinstance(label, int | np.integer) and int(label) == UNLABELLED


def is_missing(value: object) -> bool:
    """Whether a value is what tables have where nothing was written: None, NaN, pandas' own, or blanks."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in _MISSING


def listed_names(classes: str | Path | Sequence[str]) -> list[str] | None:
    """Return the class names of a list or a file of them; None for `auto` and `sorted`."""
    if classes in ("auto", "sorted"):
        return None
    names = [str(name) for name in classes] if not isinstance(classes, str | Path) else _read_names(Path(classes))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigurationError(
            "A class name occurs twice.",
            expected="different names, in the order of the model's outputs",
            got=repr(twice),
        )
    return names


def _read_names(path: Path) -> list[str]:
    if not is_file(path):
        raise ConfigurationError(
            f"There is no file of class names {str(path)!r}.",
            expected="'auto', 'sorted', a list of names in the model's order, or a file with one name per line",
        )
    try:
        return [line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"The file of class names {str(path)!r} is not UTF-8.", expected="a text file in UTF-8", got=str(error)
        ) from error


def _as_data_error(name: str, known: Sequence[str]) -> DataError:
    error = unknown("class", name, known)
    return DataError(error.headline, **error.facts)
