"""A teacher: a slow average of the adapted copy, kept in memory and run in its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

PREFIX = "teacher/"


def teacher(adapter: Adapter) -> dict[str, Tensor]:
    """Return the teacher's tensors by name, for `adapter.run(images, teacher)`; it starts where the adapter did."""
    return {name: adapter.memory.get(PREFIX + name, start) for name, start in adapter.starts.items()}


def predict(adapter: Adapter, images: Tensor) -> Tensor:
    """Return the teacher's logits."""
    return adapter.run(images, teacher(adapter))


def follow(adapter: Adapter, known: Mapping[str, Tensor], keep: float) -> None:
    """Move the teacher's weights towards the adapted copy's: keep * teacher + (1 - keep) * student."""
    students = [parameter.detach() for parameter in adapter.trained.values()]
    moved = torch._foreach_lerp(students, [known[name] for name in adapter.trained], keep)
    adapter.memory |= {PREFIX + name: tensor for name, tensor in zip(adapter.trained, moved, strict=True)}
