"""What a model calls its outputs: one place to ask, whatever the model came from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from torch import nn

from shiftproof.models.blackbox import BlackBox

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
"""The classes of the demo and of every network that comes with the package, in the order of their outputs."""

_WRAPPED = ("module", "model", "network")
"""Attributes under which a module that wraps another keeps it: parallel copies, reduced precision, tokenizers."""
_GENERIC = re.compile(r"(label|class)?[\W_]*\d+", re.IGNORECASE)

Named = TypeVar("Named")


def class_names(model: object) -> tuple[str, ...] | None:
    """Return the names of a model's outputs, in their order; None where nothing says them.

    They are the model's attribute `class_names`, or `id2label` of its Hugging Face configuration, or those of the model
    that it wraps. Names that only count, such as LABEL_0 or 7, name nothing.

    >>> from torch import nn
    >>> class_names(nn.Sequential(nn.Flatten(), with_class_names(nn.Linear(12, 2), ["cat", "dog"])))
    ('cat', 'dog')
    """
    own = getattr(model, "class_names", None)
    if own is None:
        own = _configured(getattr(model, "config", None))
    if isinstance(own, Sequence) and not isinstance(own, str):
        names = tuple(map(str, own))
        return None if not names or all(map(_GENERIC.fullmatch, names)) else names
    return next((found for part in _inside(model) if (found := class_names(part))), None)


def with_class_names(model: Named, names: Sequence[str] | None) -> Named:
    """Return the model, told what its outputs are called; without names it stays as it is."""
    if names:
        model.class_names = tuple(names)  # type: ignore[attr-defined]
    return model


def _inside(model: object) -> Sequence[object]:
    """Return what a model only wraps: its outputs are the other's."""
    if isinstance(model, nn.Sequential):
        return list(model)[-1:]
    if isinstance(model, nn.Module):
        return [part for name in _WRAPPED if isinstance(part := getattr(model, name, None), nn.Module)]
    return [model.function] if isinstance(model, BlackBox) else []


def _configured(configuration: Any) -> list[str] | None:
    """Return the labels of a Hugging Face configuration, in the order of their numbers."""
    labels = getattr(configuration, "id2label", None)
    if not isinstance(labels, Mapping) or sorted(map(str, labels)) != sorted(map(str, range(len(labels)))):
        return None
    return [str(label) for _, label in sorted(labels.items(), key=lambda item: int(item[0]))]
