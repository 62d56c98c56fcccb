"""Loaders: `mirrored:demo` is another model, or another set of images, behind a mirror."""

from __future__ import annotations

from torch import Tensor, nn

from shiftproof import load_data, load_model


class Mirrored(nn.Module):
    """A model that sees everything in a mirror."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of mirror images."""
        logits: Tensor = self.inside(images.flip(-1))
        return logits


def mirrored_model(rest: str) -> Mirrored:
    """Any other model, seeing in a mirror: mirrored:demo."""
    inside = load_model(rest)
    if not isinstance(inside, nn.Module):
        raise TypeError("a black box has no mirror")
    return Mirrored(inside)


def mirrored_data(rest: str) -> tuple[Tensor, Tensor | None]:
    """Any other set of images, in a mirror: mirrored:demo."""
    data = load_data(rest)
    (whole,) = data.batches(len(data))
    return whole.inputs.flip(-1), whole.labels
