"""What a model calls its outputs: one place to ask, whatever the model came from."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from shiftproof.errors import ConfigurationError
from shiftproof.models.blackbox import BlackBox

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
"""The classes of the demo and of every network that comes with the package, in the order of their outputs."""

_WRAPPED = ("module", "model", "network", "net")
"""Attributes under which a module that wraps another keeps it: parallel copies, reduced precision, tokenizers."""
_GENERIC = re.compile(r"(label|class)?[\W_]*\d+", re.IGNORECASE)

Named = TypeVar("Named")


class GivenNames(tuple[str, ...]):
    """Names that the user listed for a model: their number must be that of its outputs."""

    __slots__ = ()


def class_names(model: object) -> tuple[str, ...] | None:
    """Return the names of a model's outputs, in their order; None if unknown.

    Names come from the attribute `class_names`, from `id2label` of a Hugging Face configuration, or from the wrapped
    model. Placeholder names such as LABEL_0 or 7 are ignored.

    Args:
        model: Any model.

    >>> from torch import nn
    >>> class_names(nn.Sequential(nn.Flatten(), with_class_names(nn.Linear(12, 2), ["cat", "dog"])))
    ('cat', 'dog')
    """
    names = told_names(model)
    return None if names is None or are_placeholders(names) else names


def told_names(model: object) -> tuple[str, ...] | None:
    """Return what a model says its outputs are called, be it only placeholders; None if it says nothing.

    Args:
        model: Any model.
    """
    own = getattr(model, "class_names", None)
    if own is None:
        own = _configured(getattr(model, "config", None))
    if isinstance(own, Sequence) and not isinstance(own, str):
        return own if isinstance(own, GivenNames) else tuple(map(str, own)) or None
    return next((found for part in inside(model) if (found := told_names(part))), None)


def are_placeholders(names: Sequence[str]) -> bool:
    """Whether names are only numbers, as LABEL_0 or 7 are."""
    return all(map(_GENERIC.fullmatch, names))


def plain_numbers(names: Sequence[str]) -> list[str]:
    """Return names, those that are whole numbers without zeros in front.

    >>> plain_numbers(["07", "cat"])
    ['7', 'cat']
    """
    return [str(int(name)) if name.isascii() and name.isdigit() else name for name in names]


def are_places(names: Sequence[str], places: Sequence[int] | None = None) -> bool:
    """Whether names only count the outputs: they are 0, 1, 2, ..., or the places they have in another model."""
    return list(names) == list(map(str, range(len(names)) if places is None else places))


def with_class_names(model: Named, names: Sequence[str] | None) -> Named:
    """Return the model, told what its outputs are called; without names it stays as it is."""
    if names:
        model.class_names = names if isinstance(names, GivenNames) else tuple(names)  # type: ignore[attr-defined]
    return model


def label_numbers(model: object) -> tuple[int, ...] | None:
    """Return the labels that a model's outputs stand for, in their order; None if they are 0, 1, 2, ...

    Set for a model restricted to some of its classes, and for a classifier trained on labels with gaps.

    Args:
        model: Any model.
    """
    own = getattr(model, "label_numbers", None)
    if isinstance(own, tuple):
        return own
    return next((found for part in inside(model) if (found := label_numbers(part))), None)


def folded(name: str) -> str:
    """Return a name without regard to case, spaces and punctuation."""
    plain = unicodedata.normalize("NFC", name).casefold()
    # Marks are part of a letter, in scripts where they are characters of their own: \w has no word for them.
    return "".join(sign for sign in plain if sign.isalnum() or unicodedata.category(sign).startswith("M")) or plain


def read_class_names(given: str | Path | Sequence[str]) -> GivenNames:
    """Return names in the order of a model's outputs: a list, a file with a name a line, or a JSON list or `id2label`.

    Names that occur twice are refused: nothing could be matched to them.
    """
    names = _read(Path(given)) if isinstance(given, str | Path) else [str(name) for name in given]
    if not names or len(set(names)) < len(names):
        twice = next((name for name in names if names.count(name) > 1), None)
        raise ConfigurationError(
            "A class name occurs twice." if names else "There are no class names.",
            expected="different names, in the order of the model's outputs",
            got="none" if twice is None else repr(twice),
        )
    return GivenNames(names)


def _read(path: Path) -> list[str]:
    try:
        text = path.read_text("utf-8-sig")
        found = json.loads(text) if path.suffix == ".json" else [line.strip() for line in text.splitlines()]
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"Cannot read the class names {str(path)!r}.",
            expected="a text file in UTF-8 with one name a line, or JSON: a list, or numbers with their names",
            got=getattr(error, "strerror", None) or str(error),
        ) from error
    if isinstance(found, Mapping):
        found = _numbered(found)
    if not isinstance(found, list):
        raise ConfigurationError(
            f"Cannot read the class names {str(path)!r}.",
            expected="a list of names, or every number from 0 with its name",
            got=f"a {type(found).__name__}" if found is not None else "other keys than the numbers from 0",
        )
    return [str(name) for name in found if str(name)]


def inside(model: object) -> Sequence[object]:
    """Return what a model only wraps: its outputs are the other's."""
    if isinstance(model, nn.Sequential):
        return list(model)[-1:]
    if isinstance(model, nn.Module):
        return [part for name in _WRAPPED if isinstance(part := getattr(model, name, None), nn.Module | BlackBox)]
    return [model.function] if isinstance(model, BlackBox) else []


def _configured(configuration: Any) -> list[str] | None:
    """Return the labels of a Hugging Face configuration, in the order of their numbers."""
    labels = getattr(configuration, "id2label", None)
    return _numbered(labels) if isinstance(labels, Mapping) else None


def _numbered(labels: Mapping[Any, Any]) -> list[str] | None:
    """Return the names of a mapping from the numbers from 0, in their order; None of any other."""
    if sorted(map(str, labels)) != sorted(map(str, range(len(labels)))):
        return None
    return [str(label) for _, label in sorted(labels.items(), key=lambda item: int(item[0]))]
