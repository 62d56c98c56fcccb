"""Label maps that stay with their images: moved by a shift that moves content, left alone by any other.

A shift says whether it moves content (`shift.moves`). One that does gives the origin of every pixel, drawn from the
same seed and keys as for the image; labels are taken from the nearest pixel, and are an ignore value outside.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from shiftproof.errors import ConfigurationError, DataError
from shiftproof.keyed import Keyed
from shiftproof.shifts.base import check_keys
from shiftproof.shifts.image_shift import ImageShift, Shape
from shiftproof.shifts.origins import take

IGNORE = 255
"""The label of pixels that come from outside an image, which measures of segmentation leave out."""


def moves_content(shift: ImageShift) -> bool:
    """Whether a shift moves the content of images; refuse one that does not say, such as one of another package."""
    if shift.moves is None:
        raise ConfigurationError(
            f"It is not known whether the shift {shift.label} moves the content of images.",
            expected="a shift that says so, where labels have places in the image",
            got=f"{type(shift).__name__}.moves is None",
            fix="set `moves = False` on its class, or `moves = True` with a method `origins`",
        )
    return shift.moves


def pixel_origins(
    shift: ImageShift, keys: Tensor | Sequence[int], height: int, width: int, *, seed: int = 0, device: str = "cpu"
) -> Tensor:
    """Return where each pixel of images under a moving shift comes from, [N, H, W] (see `shifts.origins`)."""
    rng = Keyed(seed, keys, device=device).fork(shift.name)
    return shift.origins(rng, Shape(1, height, width))


def move_labels(
    shift: ImageShift, labels: Tensor, keys: Tensor | Sequence[int], *, seed: int = 0, ignore: float = IGNORE
) -> Tensor:
    """Return label maps [N, H, W] of any type, moved along with the content of the shifted images.

    A shift that does not move content leaves them unchanged. Otherwise, pixels whose content comes from outside the
    image get the label `ignore`, even if the image shows a fill or its reflection there.

    Args:
        shift: The shift applied to the images.
        labels: Label maps [N, H, W].
        keys: The keys of the images, [N].
        seed: The seed used to shift the images.
        ignore: Label of pixels whose content comes from outside the image.

    >>> import torch
    >>> from shiftproof import shifts
    >>> labels = torch.tensor([[[1, 2], [3, 4]]])
    >>> move_labels(shifts.as_image_shift("flip"), labels, [0])
    tensor([[[2, 1],
             [4, 3]]])
    """
    if not isinstance(labels, Tensor) or labels.ndim != 3:
        got = f"a tensor of shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else f"a {type(labels).__name__}"
        raise DataError("These are not label maps.", expected="a tensor N x H x W", got=got)
    named = check_keys(keys, len(labels), shift.acts_on)
    if not moves_content(shift) or not shift.severity:
        return labels.clone()
    found = pixel_origins(shift, named, *labels.shape[1:], seed=seed, device=str(labels.device))
    return take(labels, found, ignore)
