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
    for name, parameter in adapter.trained.items():
        adapter.memory[PREFIX + name] = torch.lerp(parameter.detach(), known[name], keep)
