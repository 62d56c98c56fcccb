"""Corruptions: shifts whose strength comes from a severity table.

A corruption's recipe is a small class with two methods: `sample(rng, shape, p)` draws the random quantities and
`apply(images, drawn, p)` is deterministic maths. `p` holds the table's parameters at the wanted severity and size.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.registry import resolve, unknown
from shiftproof.shifts import tables
from shiftproof.shifts.forms import bracketed, plain
from shiftproof.shifts.image_shift import ImageShift, Shape
from shiftproof.shifts.tables import Parameters


class CorruptionMaths(Protocol):
    """How a corruption is made."""

    def sample(self, rng: Keyed, shape: Shape, p: Parameters) -> Any:
        """Draw the random quantities, one row per image."""

    def apply(self, images: Tensor, drawn: Any, p: Parameters) -> Tensor:
        """Return the corrupted images; values may leave [0, 1]."""


@runtime_checkable
class MovingMaths(CorruptionMaths, Protocol):
    """How a corruption that moves content is made."""

    def origins(self, drawn: Any, shape: Shape, p: Parameters) -> Tensor:
        """Return where each pixel comes from, [N, H, W] as in `shifts.origins`."""


@dataclass(frozen=True)
class Corruption(ImageShift):
    """A named corruption at a severity, written `fog@3`.

    `preset` fixes the table (`imagenet`, `cifar`); None chooses by image size. `options` are the recipe's own, written
    `frost@3[textures=photographs/]`.

    Args:
        name: The name of the corruption (`shiftproof list shifts`).
        severity: From 0, no change, to 5.
        preset: The table of parameters, `imagenet` or `cifar`; None chooses by image size.
        family: The family that the name is of.
        options: Options of the corruption, as (name, text) pairs.

    >>> Corruption("fog", 3, preset="cifar").label
    'fog@3[preset=cifar]'
    """

    preset: str | None = None
    family: str = "common"
    options: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preset is not None:
            tables.check_preset(self.preset)
        if self.options:
            self.recipe  # noqa: B018  (making it checks the options)

    @property
    def label(self) -> str:
        """The text form: name, severity, options, and the preset where it is fixed."""
        fixed = {} if self.preset is None else {"preset": self.preset}
        return f"{self.name}@{plain(self.severity)}{bracketed({**dict(self.options), **fixed})}"

    def files(self) -> tuple[str, ...]:
        """Return the folder of photographs that frost takes its textures from."""
        return tuple(value for name, value in self.options if name == "textures")

    @property
    def recipe(self) -> CorruptionMaths:
        """The sampling and the maths behind the name."""
        from shiftproof.shifts.catalogue import RECIPES

        make = resolve(RECIPES[self.family], self.name, "corruption")
        taken = [each.name for each in fields(make)] if is_dataclass(make) else []
        for name, _ in self.options:
            if name not in taken:
                raise unknown(f"option of {self.name!r}", name, taken)
        recipe: CorruptionMaths = make(**dict(self.options))
        return recipe

    @property
    def takes_bytes(self) -> bool:
        """Whether the recipe is one of levels, which takes stored images as they are."""
        return bool(getattr(self.recipe, "takes_bytes", False))

    @property
    def keeps_depth(self) -> bool:
        """Whether the recipe rounds images to levels nowhere."""
        return not (self.takes_bytes or getattr(self.recipe, "rounds", False))

    @property
    def moves(self) -> bool:
        """What the table says."""
        return bool(tables.table(self.family)[self.name].get("moves", False))

    def origins(self, rng: Keyed, shape: Shape) -> Tensor:
        """Ask the recipe, which has a method `origins` where the table says that it moves content."""
        p = self.parameters(*shape.spatial)
        recipe = self.recipe
        if not isinstance(recipe, MovingMaths):
            return super().origins(rng, shape)
        return recipe.origins(recipe.sample(rng, shape, p), shape, p)

    def parameters(self, height: int, width: int) -> Parameters:
        """Return the numbers this severity stands for at an image size."""
        row = tables.table(self.family)[self.name]
        return tables.parameters(row, self.severity, height=height, width=width, preset=self.preset)

    def draw(self, rng: Keyed, shape: Shape) -> Any:
        """Draw what the recipe needs."""
        return self.recipe.sample(rng, shape, self.parameters(*shape.spatial))

    def transform(self, images: Tensor, drawn: Any) -> Tensor:
        """Apply the recipe."""
        return self.recipe.apply(images, drawn, self.parameters(*images.shape[2:]))
