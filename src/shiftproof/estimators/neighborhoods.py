"""Neighbourhoods: the random small changes under which a good classifier should not change its mind.

A neighbourhood is a function `(inputs, keys, n, seed) -> views`. Inputs are a batch: images [N, C, H, W], or a list of
texts. Views are n * N inputs of the same kind, the first view of every input, then the second of every one; which view
an input gets depends on its key, the seed and the number of the view alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from shiftproof.data import Dataset
from shiftproof.data.images.imageset import SMALL_SIDE
from shiftproof.errors import ConfigurationError, ShiftproofError
from shiftproof.keyed import Keyed
from shiftproof.registry import unknown
from shiftproof.shifts import ImageChain, ImageShift, Shape, Shift, as_image_shift, parse
from shiftproof.shifts.augment.policies import RandAugment
from shiftproof.shifts.levels import to_levels
from shiftproof.shifts.operations.operation import apply_

Inputs: TypeAlias = Tensor | list[Any]
"""A batch of what a model classifies: images [N, C, H, W] in [0, 1], or texts, or pairs of texts."""

Neighborhood: TypeAlias = Callable[[Any, Tensor, int, int], Any]
"""(inputs, keys [N], n, seed) -> n views of every input, view by view."""

"""Images up to this many pixels a side get one operation of RandAugment, larger ones three (section A.5)."""

_STRIDE = 0x1E3779B97F4A7C15  # odd, so that the views of 2**63 keys are all different
_MASK = 2**63 - 1


@dataclass(frozen=True)
class Jitter(ImageShift):
    """One operation at a level drawn uniformly from `low` to `high`, such as a rotation by up to 20 degrees."""

    severity: float = 1.0
    low: float = 0.0
    high: float = 0.0

    @property
    def label(self) -> str:
        """The name and the range of levels."""
        return f"{self.name}={self.low:g}..{self.high:g}"

    def draw(self, rng: Keyed, shape: Shape) -> Tensor:
        """Draw the levels, [N]."""
        return rng.uniform(self.low, self.high).double()

    def transform(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Apply the operation, each image at its own level."""
        return apply_(self.name, to_levels(images), drawn).div_(255.0)


@dataclass(frozen=True)
class ShiftNeighborhood:
    """The neighbourhood of images or texts under a random shift; `shift(side)` may depend on the size of images."""

    name: str
    shift: Callable[[int], Shift]

    def __call__(self, inputs: Any, keys: Tensor, n: int, seed: int) -> Any:
        """Return views [n * N, C, H, W] of images [N, C, H, W], or n * N views of N texts, made all at once."""
        if isinstance(inputs, list):
            texts: Any = n * inputs
            return self.shift(0)(texts, view_keys(keys, n), seed=seed)
        side = min(inputs.shape[2:])
        return self.shift(side)(inputs.repeat(n, 1, 1, 1), view_keys(keys, n), seed=seed)

    def __str__(self) -> str:
        return self.name


def view_keys(keys: Tensor, n: int) -> Tensor:
    """Return a key for each of n views of every input, [n * N], view by view."""
    views = torch.arange(1, n + 1, device=keys.device)[:, None] * _STRIDE
    return ((keys[None, :] + views) & _MASK).flatten()


def _rand_augment(side: int) -> Shift:
    return RandAugment(n=1 if side <= SMALL_SIDE else 3, magnitude=15, spread="uniform")


def _affine(side: int) -> Shift:
    return ImageChain(steps=[Jitter("rotate", low=-10, high=10), as_image_shift("random_translate")])


def _shift(text: str) -> Callable[[int], Shift]:
    return lambda _: parse(text)


def _jitter(name: str, low: float, high: float) -> Callable[[int], Shift]:
    return lambda _: Jitter(name, low=low, high=high)


NEIGHBORHOODS: Mapping[str, Callable[[int], Shift]] = {
    "randaugment": _rand_augment,
    "translate": _shift("random_translate"),
    "erase": _shift("random_erase"),
    "flip_crop": _shift("flip_crop"),
    "affine_10": _affine,
    "rotate_20": _jitter("rotate", -20, 20),
    "rotate_30": _jitter("rotate", -30, 30),
    "translate_30": _shift("random_translate[limit=0.3]"),
    "shear_15": _jitter("shear_x", -0.268, 0.268),  # the tangent of 15 degrees
    "color": _jitter("color", 0.5, 1.5),
    "contrast": _jitter("contrast", 0.5, 1.5),
    "brightness": _jitter("brightness", 0.5, 1.5),
}
"""Name -> the random shift for images of a size: those of Ng et al. 2023, the last eight of its figure 5."""

TEXT_NEIGHBORHOODS: Mapping[str, Callable[[int], Shift]] = {
    "eda": _shift("eda@2"),
    "random_replacement": _shift("random_replacement@2"),
}
"""Name -> the random shift for texts, at the magnitudes of Ng et al. 2023; `ssmba@2[model=FOLDER]` is another."""

FOR_IMAGES, FOR_TEXTS = "randaugment", "eda"
"""The neighbourhoods that are taken where nobody names one."""

NeighborhoodLike: TypeAlias = str | Shift | Neighborhood


def _of_shift(shift: Shift) -> ShiftNeighborhood:
    return ShiftNeighborhood(shift.label, lambda _: shift)


def default(inputs: object) -> str:
    """Return the name of the neighbourhood that suits a set of images, or of texts."""
    texts = inputs.kind == "texts" if isinstance(inputs, Dataset) else isinstance(inputs, list)
    return FOR_TEXTS if texts else FOR_IMAGES


def chosen(spec: NeighborhoodLike | None, inputs: object) -> Neighborhood:
    """Return a neighbourhood, for None the one that suits the inputs."""
    return neighborhood(spec or default(inputs))


def neighborhood(spec: NeighborhoodLike) -> Neighborhood:
    """Return a neighbourhood: one that has a name here, any shift or its text form, or a function that makes views."""
    if isinstance(spec, str):
        known = {**NEIGHBORHOODS, **TEXT_NEIGHBORHOODS}
        if spec in known:
            return ShiftNeighborhood(spec, known[spec])
        try:
            return _of_shift(parse(spec))
        except ShiftproofError as error:
            raise unknown("neighbourhood", spec, known, also="any shift, such as gaussian_noise@1") from error
    if isinstance(spec, Shift):
        return _of_shift(spec)
    if callable(spec):
        return spec
    raise ConfigurationError(
        "Invalid neighbourhood.",
        expected="a name, a shift, or a function (inputs, keys, n, seed) -> views",
        got=f"a {type(spec).__name__}",
    )
