"""A shift as a step of a pipeline: the images of a sample are corrupted, what has a place moves along, the rest stays.

Samples are read as torchvision's v2 transforms read them, so that a `Transform` is a step of its `v2.Compose`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from shiftproof.errors import ConfigurationError, DataError
from shiftproof.shifts import tv
from shiftproof.shifts.base import Shift
from shiftproof.shifts.catalogue import as_image_shift, as_shift
from shiftproof.shifts.corrupting import Images, corrupt, image_keys
from shiftproof.shifts.image_shift import ImageShift
from shiftproof.shifts.moving import IGNORE, move_labels, moves_content
from shiftproof.shifts.text.base import TextShift

Sample: TypeAlias = Any
"""What a data set gives: nested tuples, lists and dicts, or one thing in them."""


@dataclass(frozen=True)
class Transform:
    """A shift as a data set transform: `Transform("fog@3")(image)` is `corrupt(image, "fog@3")`.

    It also accepts samples, as several arguments or nested in tuples, lists and dicts: in `(image, target)`, the image
    is corrupted and the target kept. Images are `tv_tensors.Image`, `Video` and Pillow images; without any, the first
    tensor or array with two or more axes. With a shift that moves content, a `tv_tensors.Mask` moves along, with the
    label `ignore` outside (False in a boolean mask); `BoundingBoxes` and `KeyPoints` are then an error.

    It is stateless and can be pickled. The random draws depend on the image's content, so an image is corrupted
    identically in every worker and epoch; use `dataclasses.replace(transform, seed=epoch)` for new draws.

    Args:
        shift: A shift, or its text form.
        seed: Seed of the random draws.
        ignore: Label of mask pixels whose content comes from outside the image.

    >>> grey, label = Transform("grayscale")(torch.rand(3, 32, 32), 7)
    >>> grey.shape, torch.equal(grey[0], grey[2]), label
    (torch.Size([3, 32, 32]), True, 7)
    """

    shift: str | Shift
    seed: int = 0
    ignore: int = IGNORE

    def __post_init__(self) -> None:
        object.__setattr__(self, "shift", as_shift(self.shift))

    @overload
    def __call__(self, sample: Images, /) -> Images: ...
    @overload
    def __call__(self, *sample: Sample) -> Sample: ...
    def __call__(self, *sample: Sample) -> Sample:
        """Return a corrupted copy of an input of `corrupt`, or of a sample; several arguments return a tuple."""
        shift = as_shift(self.shift)
        whole = sample[0] if len(sample) == 1 else sample
        if isinstance(shift, TextShift):
            return corrupt(whole, shift, seed=self.seed) if len(sample) == 1 else (self(sample[0]), *sample[1:])
        if not isinstance(whole, tuple | list | dict):
            return corrupt(whole, shift, seed=self.seed)
        return self._sample(whole, as_image_shift(shift))

    def __str__(self) -> str:
        return str(self.shift)

    def _sample(self, sample: Sample, shift: ImageShift) -> Sample:
        leaves = list(_leaves(sample))
        images = _images(leaves)
        if any(tv.is_one(leaf, "BoundingBoxes", "KeyPoints") for leaf in leaves) and moves_content(shift):
            raise ConfigurationError(
                f"The shift {shift.label} moves the content of images, and boxes would stay.",
                expected="a shift that leaves content where it is, or samples without boxes and key points",
                got=", ".join(dict.fromkeys(type(leaf).__name__ for leaf in leaves if tv.is_one(leaf))),
            )
        rows = {id(image): image_keys(image) for image in images}

        def changed(leaf: Sample) -> Sample:
            if id(leaf) in rows:
                return corrupt(leaf, shift, seed=self.seed, keys=rows[id(leaf)])
            return self._moved(leaf, shift, rows[id(images[0])]) if tv.is_one(leaf, "Mask") else leaf

        return _mapped(sample, changed)

    def _moved(self, mask: Tensor, shift: ImageShift, keys: Tensor) -> Tensor:
        """Return a mask, ... x H x W, as it belongs to the shifted image; of a batch, each to its own."""
        if not moves_content(shift):
            return mask
        maps = mask.as_subclass(Tensor).reshape(-1, *mask.shape[-2:])
        if len(keys) == 1:
            keys = keys.expand(len(maps))
        ignore = 0 if mask.dtype == torch.bool else self.ignore
        return tv.wrapped(move_labels(shift, maps, keys, seed=self.seed, ignore=ignore).view(mask.shape), mask)


def _images(leaves: list[Sample]) -> list[Sample]:
    """Return what is corrupted of a sample."""
    found = [leaf for leaf in leaves if isinstance(leaf, Image.Image) or tv.is_one(leaf, "Image", "Video")]
    if sum(isinstance(leaf, Image.Image) for leaf in found) > 1:
        raise DataError(
            "A sample has several Pillow images, and one may be a label map.",
            expected="one Pillow image, with label maps as tv_tensors.Mask and other images as tv_tensors.Image",
            got=", ".join(f"mode {leaf.mode}" for leaf in found if isinstance(leaf, Image.Image)),
            fix="torchvision.datasets.wrap_dataset_for_transforms_v2(dataset)",
        )
    plain = (leaf for leaf in leaves if isinstance(leaf, Tensor | np.ndarray) and not tv.is_one(leaf) and leaf.ndim > 1)
    found = found or [leaf for leaf, _ in zip(plain, range(1), strict=False)]
    if not found:
        raise DataError(
            "There is no image in this sample.",
            expected="a Pillow image, a tv_tensors.Image, a tensor or an array",
            got=", ".join(type(leaf).__name__ for leaf in leaves) or "nothing",
        )
    return found


def _leaves(sample: Sample) -> Iterator[Sample]:
    """Yield what is in nested tuples, lists and dicts, in order."""
    if isinstance(sample, tuple | list | dict):
        for part in sample.values() if isinstance(sample, dict) else sample:
            yield from _leaves(part)
    else:
        yield sample


def _mapped(sample: Sample, change: Callable[[Sample], Sample]) -> Sample:
    """Return nested tuples, lists and dicts with each leaf changed."""
    if isinstance(sample, dict):
        return {key: _mapped(part, change) for key, part in sample.items()}
    if isinstance(sample, tuple | list):
        parts = [_mapped(part, change) for part in sample]
        return type(sample)(*parts) if hasattr(sample, "_fields") else type(sample)(parts)
    return change(sample)
