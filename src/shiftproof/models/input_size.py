"""What size of images a model was made for, where it says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from shiftproof.models.class_names import inside

Sized = TypeVar("Sized")


@dataclass(frozen=True)
class InputSize:
    """The short side that images are resized to, and the side of the square that is cut from their centre.

    `firm`: images of any other size are brought to it. Otherwise only images of different sizes are: a network that
    takes any size may have been trained on theirs.

    Args:
        resize: Pixels of the short side that images are resized to.
        crop: Pixels of the side of the square cut from the centre.
        firm: Whether images of any other size are brought to this one.
    """

    resize: int
    crop: int
    firm: bool = True

    @property
    def size(self) -> tuple[int, int]:
        """The `size` of `load_data`."""
        return max(self.resize, self.crop), self.crop


def input_size(model: object) -> InputSize | None:
    """Return the size of images that a model, or one that it wraps, was made for; None where nothing says it.

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
