"""Labels to the outputs of a model: by class name where both have names, never by the alphabet in silence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from shiftproof.data.base import Dataset
from shiftproof.errors import DataError
from shiftproof.models import device_of, imagenet, label_numbers, logits
from shiftproof.models.class_names import (
    GivenNames,
    are_placeholders,
    are_places,
    folded,
    plain_numbers,
    told_names,
)
from shiftproof.models.naming import places

Data = TypeVar("Data", bound=Dataset)

SHOWN = 10
"""Class names that a message lists."""

_FIX = (
    "rename the classes of the data as the model has them, or list them with --classes FILE (classes= in Python), one "
    "a line, in the order of the model's outputs"
)


def matched(data: Data, model: Callable[..., Any], names: Sequence[str] | None = None) -> Data:
    """Return a set whose labels are output indices of a model; the model may be run on two inputs.

    See `match` for the rules.

    Args:
        data: A labelled data set.
        model: The model to match the labels to.
        names: Class names of the outputs. Default: those of the model.
    """
    if data.labels is None:
        return data
    known = told_names(model) if names is None else names
    numbers = label_numbers(model)
    if data.numbering == "index":
        return data if numbers is None else _by_number(data, data.labels, numbers)
    if data.numbering == "numerals" and numbers is not None:
        return _by_numeral(data, data.labels, known, len(numbers), numbers)
    batch = next(iter(data.batches(2, device=device_of(model))), None)
    if batch is None:
        return data
    return match(data, known, logits(model, batch.inputs).shape[1])


def match(data: Data, names: Sequence[str] | None, outputs: int) -> Data:
    """Return a set whose labels are indices of a model's outputs, matched by class names.

    Names are matched exactly, then ignoring case, spaces and punctuation, then as WordNet ids and synonyms of ImageNet
    classes; the data may have only some of the model's classes. Labels that are indices already, or in an order the
    user gave, are kept. Names that are whole numbers are indices, unless the model calls its outputs by these numbers.
    Placeholders such as LABEL_0 name a model's outputs only where the data has the same. If the model has no names,
    ImageNet class names map to 1,000 outputs in their usual order; otherwise, with as many classes as outputs, the
    order is the data's own or alphabetical, as in torchvision's `ImageFolder`, and a note says so. Anything else is an
    error.

    Args:
        data: A labelled data set.
        names: Class names of the model's outputs; None if unknown.
        outputs: Number of outputs.

    >>> from shiftproof.data import load_data
    >>> data = load_data((["a text", "another"], ["Dog", "cat"]))
    >>> match(data, ["bird", "cat", "dog"], 3).labels.tolist()
    [2, 1]
    """
    if data.labels is None or data.numbering == "index":
        return data
    if isinstance(names, GivenNames) and len(names) != outputs:
        raise DataError(
            "The list of classes does not match the model's outputs.",
            expected=f"{outputs} class names, one for each output of the model, in their order",
            got=f"{len(names)}: {shortened(names)}",
        )
    known = list(names) if names is not None and len(names) == outputs else None
    if data.numbering == "numerals":
        return _by_numeral(data, data.labels, known, outputs)
    if known is not None and not isinstance(names, GivenNames) and are_placeholders(known):
        known = known if set(_present(data, data.labels)) <= set(known) else None
    if data.numbering == "given":
        return _given(data, data.labels, known, outputs)
    if outputs == imagenet.CLASSES and set(data.classes) == set(imagenet.wordnet_ids()):
        known = None  # whatever the model calls them
    if known is not None:
        return _by_name(data, data.labels, known)
    return _without_names(data, data.labels, names, outputs)


def _without_names(data: Data, labels: Tensor, names: Sequence[str] | None, outputs: int) -> Data:
    """Return a set for a model that does not name its outputs, or names another number of them."""
    if outputs == imagenet.CLASSES and all(imagenet.meanings(_present(data, labels))):
        note = (
            "The model has 1,000 outputs, and the classes of the data are ImageNet's by their WordNet ids or names: "
            "the outputs were taken for ImageNet's classes in their usual order."
        )
        return _by_name(data, labels, imagenet.wordnet_ids(), note)
    unsaid = "The model does not say the names of its outputs"
    if names and len(names) != outputs:
        unsaid = f"The model names {len(names):,} classes and has {outputs:,} outputs, so that its names cannot be used"
    if len(data.classes) == outputs:
        alphabet = (
            f"{unsaid}: classes were numbered in the order of the alphabet, as "
            f"torchvision's ImageFolder does ({shortened(data.classes)})."
        )
        return data.renumbered(labels, data.classes, *([alphabet] if data.numbering == "names" else []))
    if data.numbering == "own" and len(data.classes) > outputs:
        return data  # labels that are out of range are refused where they are used
    empty = [name for number, name in enumerate(data.classes) if not bool((labels == number).any())]
    raise DataError(
        "Labels and model outputs do not fit.",
        expected=f"{outputs} classes, as many as the model has outputs, "
        + (
            f"which are not as many as the {len(names):,} that it names"
            if names and len(names) != outputs
            else "whose names it does not say"
        ),
        got=f"{len(data.classes)} class names: {shortened(data.classes)}"
        + (f"; {len(empty)} of them without images: {shortened(empty)}" if empty else ""),
        fix=_FIX,
    )


def shortened(names: Sequence[str]) -> str:
    """Write class names, the first few of many."""
    return ", ".join(names[:SHOWN]) + (f", ... ({len(names):,} in all)" if len(names) > SHOWN else "")


def _present(data: Dataset, labels: Tensor) -> list[str]:
    """Return the names of the classes that have images."""
    return [data.classes[label] for label in sorted(set(labels.tolist()))]


def _by_number(data: Data, labels: Tensor, numbers: Sequence[int]) -> Data:
    """Return a set of numbered labels for a model whose outputs stand for some of these numbers."""
    place_of = {number: place for place, number in enumerate(numbers)}
    strange = sorted(set(labels.tolist()) - place_of.keys())
    if strange:
        raise DataError(
            "Labels and model outputs do not fit.",
            expected=f"labels among those of the model's outputs: {shortened([str(number) for number in numbers])}",
            got=f"{shortened([str(number) for number in strange])}",
            fix="leave these images out, or the restriction of the model to some of its classes",
        )
    names = [data.classes[number] if number < len(data.classes) else str(number) for number in numbers]
    note = f"The model's {len(numbers)} outputs stand for the labels {shortened([str(number) for number in numbers])}."
    return data.renumbered(torch.tensor([place_of[label] for label in labels.tolist()]), names, note)


def _by_numeral(
    data: Data, labels: Tensor, known: Sequence[str] | None, outputs: int, numbers: Sequence[int] | None = None
) -> Data:
    """Return a set whose classes are named by whole numbers: a model's names, where it has these, or else indices.

    A network trained on folders named 0 to 11 may have its outputs in the order of the alphabet: 0, 1, 10, 11, 2, ...
    """
    called = plain_numbers(known or ())
    if not are_places(called, numbers) and set(_present(data, labels)) <= set(called):
        note = (
            f"The model names its outputs by numbers ({shortened(called)}), and classes were matched to these names: a "
            "number is not the place of an output."
        )
        return _by_name(data, labels, called, note)
    if numbers is not None:
        return _by_number(data, labels, numbers)
    if int(labels.max()) >= outputs:
        raise DataError(
            "Labels and model outputs do not fit.",
            expected=f"whole numbers from 0 to {outputs - 1}: the model has {outputs} outputs",
            got=f"{len(_present(data, labels))} class names: {shortened(_present(data, labels))}",
            fix="if the model learned from folders of these names, --classes sorted (classes='sorted') sorts them as "
            "torchvision does: 1, 10, 2; otherwise list them with --classes FILE, one a line, in the order of the "
            "model's outputs",
        )
    note = (
        "Class names are whole numbers and were taken as the model's output indices (classes='sorted' numbers them in "
        "sorted order, as torchvision does)."
    )
    return data.renumbered(labels, data.classes, note)


def _by_name(data: Data, labels: Tensor, known: Sequence[str], *notes: str) -> Data:
    held = sorted(set(labels.tolist()))
    present = _present(data, labels)
    found = dict(zip(present, places(present, known), strict=True))
    strange = [name for name in present if len(found[name]) != 1]
    if strange:
        vague = [name for name in strange if found[name]]
        raise DataError(
            f"The model has several classes named {vague[0]!r}."
            if vague and len(vague) == len(strange)
            else "The class names of the data are not those of the model.",
            expected=f"names among the model's: {shortened(known)}",
            got=f"{shortened(strange)}" + (f" among {len(present)} classes" if len(strange) < len(present) else ""),
            fix=_FIX,
        )
    numbers = {name: found[name][0] for name in present}
    if len(set(numbers.values())) < len(numbers):
        raise DataError(
            "Two classes of the data stand for one output of the model.",
            expected=f"one class for each of {shortened(known)}",
            got=shortened([name for name in present if list(numbers.values()).count(numbers[name]) > 1]),
            fix=_FIX,
        )
    table = torch.zeros(len(data.classes), dtype=torch.int64)
    table[held] = torch.tensor(list(numbers.values()))
    classes = list(known)
    for name, number in numbers.items():
        classes[number] = name  # as the data spells it
    return data.renumbered(table[labels], classes, *(notes or _respelt(numbers, known)), *_some(numbers, known))


def _respelt(numbers: dict[str, int], known: Sequence[str]) -> list[str]:
    """Return what a report should say of names that are not spelt as the model has them."""
    other = {name: known[number] for name, number in numbers.items() if known[number] != name}
    loose = [f"{name} is {own}" for name, own in other.items() if folded(own) == folded(name)]
    meant = [f"{name} is {own}" for name, own in other.items() if folded(own) != folded(name)]
    ways = {
        "without regard to case, spaces and punctuation": loose,
        "as WordNet ids or synonyms of ImageNet's": meant,
    }
    return [f"Class names were matched {way}: {shortened(pairs)}." for way, pairs in ways.items() if pairs]


def _some(numbers: dict[str, int], known: Sequence[str]) -> list[str]:
    """Return what a report should say of data with some of a model's classes."""
    if len(numbers) == len(known):
        return []
    return [
        f"The data has {len(numbers)} of the model's {len(known):,} classes, matched by name "
        f"({shortened(list(numbers))}); any other answer counts as wrong (only_classes leaves the others out)."
    ]


def _given(data: Data, labels: Tensor, known: Sequence[str] | None, outputs: int) -> Data:
    """Return the set as the user numbered it, unless the model contradicts."""
    listed = data.classes
    if len(listed) != outputs:
        raise DataError(
            "The list of classes does not match the model's outputs.",
            expected=f"{outputs} class names, one for each output of the model, in their order",
            got=f"{len(listed)}: {shortened(listed)}",
        )
    found = [] if known is None else places(listed, known)
    if found and all(len(some) == 1 for some in found) and [some[0] for some in found] != list(range(outputs)):
        raise DataError(
            "The list of classes is in another order than the model's.",
            expected=shortened(known or ()),
            got=shortened(listed),
            fix="leave the list out: class names are matched to the model's; labels that are numbers are taken for its "
            "outputs, so give names in their place",
        )
    return data.renumbered(labels, listed)
