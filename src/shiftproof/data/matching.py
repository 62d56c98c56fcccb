"""Labels to the outputs of a model: by class name where both have names, never by the alphabet in silence."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from shiftproof.data.base import Dataset
from shiftproof.errors import DataError
from shiftproof.models import class_names, device_of, logits

Data = TypeVar("Data", bound=Dataset)

SHOWN = 10
"""Class names that a message lists."""

_FIX = (
    "rename the classes of the data as the model has them, or list them with --classes FILE (classes= in Python), one "
    "a line, in the order of the model's outputs"
)
_WORDNET = re.compile(r"n\d{8}")


def matched(data: Data, model: Callable[..., Any], names: Sequence[str] | None = None) -> Data:
    """Return a set whose labels are the output indices of a model, which is tried on two inputs where that matters.

    `names` are the model's class names, where it does not say them itself.
    """
    if data.labels is None or data.numbering == "index":
        return data
    batch = next(iter(data.batches(2, device=device_of(model))), None)
    if batch is None:
        return data
    known = class_names(model) if names is None else names
    return match(data, known, logits(model, batch.inputs).shape[1])


def match(data: Data, names: Sequence[str] | None, outputs: int) -> Data:
    """Return a set whose labels are indices of so many outputs, which have `names`, or None where these are not known.

    Names are matched exactly, then without regard to case, spaces and punctuation; some of the model's classes are
    enough. Numbers that are indices already stay, and so does an order that the user gave. Where the model has no
    names, as many classes as outputs stand in the data's own order, or in the alphabet's, as torchvision's
    `ImageFolder` has them, and a note says so. Everything else is refused.

    >>> from shiftproof.data import load_data
    >>> data = load_data((["a text", "another"], ["Dog", "cat"]))
    >>> match(data, ["bird", "cat", "dog"], 3).labels.tolist()
    [2, 1]
    """
    if data.labels is None or data.numbering == "index":
        return data
    known = list(names) if names is not None and len(names) == outputs else None
    if data.numbering == "given":
        return _given(data, data.labels, known, outputs)
    if _is_imagenet(data, outputs):
        note = "Classes are WordNet ids, of which ImageNet's outputs are in the order of the alphabet."
        return data.renumbered(data.labels, data.classes, note)
    if known is not None:
        return _by_name(data, data.labels, known)
    if len(data.classes) == outputs:
        alphabet = (
            "The model does not say the names of its outputs: classes were numbered in the order of the alphabet, as "
            f"torchvision's ImageFolder does ({shortened(data.classes)})."
        )
        return data.renumbered(data.labels, data.classes, *([alphabet] if data.numbering == "names" else []))
    if data.numbering == "own" and len(data.classes) > outputs:
        return data  # labels that are out of range are refused where they are used
    raise DataError(
        "Labels and model outputs do not fit.",
        expected=f"{outputs} classes, as many as the model has outputs, whose names it does not say",
        got=f"{len(data.classes)} class names: {shortened(data.classes)}",
        fix=_FIX,
    )


def shortened(names: Sequence[str]) -> str:
    """Write class names, the first few of many."""
    return ", ".join(names[:SHOWN]) + (f", ... ({len(names):,} in all)" if len(names) > SHOWN else "")


def _by_name(data: Data, labels: Tensor, known: Sequence[str]) -> Data:
    present = [data.classes[label] for label in sorted(set(labels.tolist()))]
    places = dict(zip(present, _places(present, known), strict=True))
    strange = [name for name in present if len(places[name]) != 1]
    if strange:
        vague = [name for name in strange if places[name]]
        raise DataError(
            f"The model has several classes named {vague[0]!r}."
            if vague and len(vague) == len(strange)
            else "The class names of the data are not those of the model.",
            expected=f"names among the model's: {shortened(known)}",
            got=f"{shortened(strange)}" + (f" among {len(present)} classes" if len(strange) < len(present) else ""),
            fix=_FIX,
        )
    numbers = {name: places[name][0] for name in present}
    if len(set(numbers.values())) < len(numbers):
        raise DataError(
            "Two classes of the data stand for one output of the model.",
            expected=f"one class for each of {shortened(known)}",
            got=shortened([name for name in present if list(numbers.values()).count(numbers[name]) > 1]),
            fix=_FIX,
        )
    table = torch.zeros(len(data.classes), dtype=torch.int64)
    table[[data.classes.index(name) for name in present]] = torch.tensor(list(numbers.values()))
    classes = list(known)
    for name, number in numbers.items():
        classes[number] = name  # as the data spells it
    return data.renumbered(table[labels], classes, *_told(numbers, known))


def _told(numbers: dict[str, int], known: Sequence[str]) -> list[str]:
    """Return what a report should say of classes that were matched by name."""
    notes = []
    if respelt := [name for name, number in numbers.items() if known[number] != name]:
        pairs = [f"{name} is {known[numbers[name]]}" for name in respelt]
        notes.append(f"Class names were matched without regard to case, spaces and punctuation: {shortened(pairs)}.")
    if len(numbers) < len(known):
        notes.append(
            f"The data has {len(numbers)} of the model's {len(known):,} classes, matched by name "
            f"({shortened(list(numbers))}); any other answer counts as wrong."
        )
    return notes


def _given(data: Data, labels: Tensor, known: Sequence[str] | None, outputs: int) -> Data:
    """Return the set as the user numbered it, unless the model contradicts."""
    listed = data.classes
    if len(listed) != outputs:
        raise DataError(
            "The list of classes is not of the model's outputs.",
            expected=f"{outputs} class names, one for each output of the model, in their order",
            got=f"{len(listed)}: {shortened(listed)}",
        )
    places = [] if known is None else _places(listed, known)
    if places and all(len(some) == 1 for some in places) and [some[0] for some in places] != list(range(outputs)):
        raise DataError(
            "The list of classes is in another order than the model's.",
            expected=shortened(known or ()),
            got=shortened(listed),
            fix="leave the list out: the names are the model's, and are matched",
        )
    return data.renumbered(labels, listed)


def _places(names: Sequence[str], known: Sequence[str]) -> list[list[int]]:
    """Return where each name is among others: exactly, or else without regard to case and separators."""
    exact, loose = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for place, other in enumerate(known):
        exact[other].append(place)
        loose[_folded(other)].append(place)
    return [exact.get(name) or loose.get(_folded(name), []) for name in names]


def _folded(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold()) or name


def _is_imagenet(data: Dataset, outputs: int) -> bool:
    """Whether the classes are all of ImageNet's by their WordNet ids; a model's own names of them are English words."""
    return outputs == len(data.classes) == 1000 and all(map(_WORDNET.fullmatch, data.classes))
