"""What size of images a model was made for, where it says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from shiftproof.models.class_names import inside

Sized = TypeVar("Sized")


@dataclass(frozen=True)
class InputSize:
    """The input size of a model: resize of the short side, then centre crop.

    If `firm` is false, images are only resized if they differ in size: a network that accepts any size may have been
    trained on theirs.

    Args:
        resize: Short side after resizing, in pixels.
        crop: Side of the centre crop, in pixels.
        firm: Whether images of any other size are always resized.
        stretched: Whether the model's own processor stretches images to a square, whatever their shape.
    """

    resize: int
    crop: int
    firm: bool = True
    stretched: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """The size as `load_data(size=...)` accepts it."""
        return max(self.resize, self.crop), self.crop


def input_size(model: object) -> InputSize | None:
    """Return the input size that a model, or one that it wraps, was made for; None if unknown.

    Args:
        model: Any model.
    """
    own = getattr(model, "input_size", None)
    if isinstance(own, InputSize):
        return own
    return next((found for part in inside(model) if (found := input_size(part))), None)


def with_input_size(model: Sized, size: InputSize | None) -> Sized:
    """Return the model, told the size of its images; without one it stays as it is."""
    if size is not None:
        model.input_size = size  # type: ignore[attr-defined]
    return model
