"""Chains: shifts applied in turn; of images, with the 256 levels of stored images between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from shiftproof.data.base import Inputs
from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.shifts.base import Shift
from shiftproof.shifts.image_shift import ImageShift, Shape
from shiftproof.shifts.levels import quantize_
from shiftproof.shifts.origins import in_turn, unmoved

JOINT = " + "


@dataclass(frozen=True)
class Chain(Shift[Inputs]):
    """Shifts applied in turn, written `fog@3 + jpeg_compression@2`; its severity is the largest of its steps'.

    All act on images, or all on texts. A chain of no steps is the identity.

    Args:
        steps: The shifts, in the order in which they are applied.
    """

    name: str = field(default="chain", init=False)
    severity: float = field(default=0.0, init=False)
    steps: Sequence[Shift[Inputs]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))
        for step in self.steps:
            if not isinstance(step, Shift) or step.acts_on != self.acts_on:
                raise ConfigurationError(
                    f"A chain is made of shifts of {self.acts_on}.",
                    expected=f"shifts, such as shifts.parse({'fog@3' if self.acts_on == 'images' else 'typos@3'!r})",
                    got=f"{type(step).__name__} {step!r}",
                )
        object.__setattr__(self, "severity", max((step.severity for step in self.steps), default=0.0))

    @property
    def label(self) -> str:
        """The steps' text forms, joined."""
        return JOINT.join(step.label for step in self.steps) or "identity"

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of all steps."""
        return tuple(dict.fromkeys(note for step in self.steps for note in step.notes))


@dataclass(frozen=True)
class ImageChain(Chain[Tensor], ImageShift):
    """Image shifts applied in turn.

    Each step draws from a generator of its own, named by its place, so that a shift that occurs twice draws twice, and
    what a step draws does not depend on the steps after it.

    Args:
        steps: The shifts, in the order in which they are applied.

    >>> from shiftproof import shifts
    >>> ImageChain([shifts.corruption("fog", 3), shifts.corruption("jpeg_compression", 2)]).label
    'fog@3 + jpeg_compression@2'
    """

    steps: Sequence[ImageShift] = ()

    @property
    def moves(self) -> bool | None:
        """Whether a step moves content; None where a step does not say."""
        said = [step.moves for step in self.steps]
        return None if None in said else any(said)

    def origins(self, rng: Keyed, shape: Shape) -> Tensor:
        """Follow the moves of the steps in turn."""
        found = unmoved(len(rng), *shape.spatial, rng.device)
        for place, step in enumerate(self.steps):
            if step.severity and step.moves:
                found = in_turn(found, step.origins(rng.fork(f"{place}/{step.name}"), shape))
        return found

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
