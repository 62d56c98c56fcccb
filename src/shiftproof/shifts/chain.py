"""Chains: shifts applied in turn, with the 256 levels of stored images between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.shifts.base import Shape, Shift
from shiftproof.shifts.levels import quantize_

JOINT = " + "


@dataclass(frozen=True)
class Chain(Shift):
    """Shifts applied in turn, written `fog@3 + jpeg_compression@2`; its severity is the largest of its steps'.

    Each step draws from a generator of its own, named by its place, so that a shift that occurs twice draws twice, and
    what a step draws does not depend on the steps after it. A chain of no steps is the identity.
    """

    name: str = field(default="chain", init=False)
    severity: float = field(default=0.0, init=False)
    steps: Sequence[Shift] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))
        for step in self.steps:
            if not isinstance(step, Shift):
                raise ConfigurationError(
                    "A chain is made of shifts.",
                    expected="shifts, such as shifts.parse('fog@3')",
                    got=f"{type(step).__name__} {step!r}",
                )
        object.__setattr__(self, "severity", max((step.severity for step in self.steps), default=0.0))

    @property
    def label(self) -> str:
        """The steps' text forms, joined."""
        return JOINT.join(step.label for step in self.steps) or "identity"

    def draw(self, rng: Keyed, shape: Shape) -> list[Any]:
        """Draw what each step needs."""
        return [
            step.draw(rng.fork(f"{place}/{step.name}"), shape) if step.severity else None
            for place, step in enumerate(self.steps)
        ]

    def transform(self, images: Tensor, drawn: list[Any]) -> Tensor:
        """Apply the steps; the caller settles the last one on levels as it does for any shift."""
        for step, quantities in zip(self.steps, drawn, strict=True):
            if step.severity:
                images = quantize_(step.transform(images.contiguous(), quantities))
        return images
