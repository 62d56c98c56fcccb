"""Operations at a level: `contrast=0.8` and `grayscale`, as against corruptions at a severity, `contrast@3`.

An operation's level is in its own units (a factor, a threshold, degrees). `apply_` and `apply_each_` are the maths on
levels (whole numbers 0..255 in float32), for search and augmentation policies, where the images of a batch have
different operations; `Operation` is one operation at one level as a shift.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.options import read
from shiftproof.registry import unknown
from shiftproof.shifts import tables
from shiftproof.shifts.forms import Form, bracketed, plain, stated, typed
from shiftproof.shifts.image_shift import ImageShift, Shape
from shiftproof.shifts.levels import to_levels
from shiftproof.shifts.operations import enhance, geometric
from shiftproof.shifts.operations.geometric import MAPS, Affine, Fill, affine, affine_origins
from shiftproof.shifts.origins import unmoved


@dataclass(frozen=True)
class Kind:
    """What stands behind an operation's name: its function on levels and the levels it takes, if any."""

    function: Callable[..., Tensor]
    takes: str | None = None
    low: float = -math.inf
    high: float = math.inf
    whole: bool = False
    fills: bool = False

    def check(self, name: str, level: float | None) -> None:
        """Refuse a level that is missing, not wanted or out of range."""
        got = name if level is None else f"{name}={level:g}"
        if self.takes is None:
            if level is not None:
                raise ConfigurationError(f"Operation {name!r} takes no level.", expected=name, got=got)
        elif level is None:
            raise ConfigurationError(f"Operation {name!r} needs a level.", expected=f"{name}={self.takes}", got=got)
        elif not self.low <= level <= self.high or not math.isfinite(level) or (self.whole and level % 1):
            raise ConfigurationError(f"{name!r} has no such level.", expected=f"{name}={self.takes}", got=got)


def _factor(function: Callable[..., Tensor]) -> Kind:
    return Kind(function, "a factor; 1 is the image unchanged")


def _channel(function: Callable[..., Tensor]) -> Kind:
    return Kind(function, "a whole number from -255 to 255", -255, 255, whole=True)


def _moves(function: Callable[..., Tensor], takes: str, low: float, high: float) -> Kind:
    return Kind(function, takes, low, high, fills=True)


ENHANCE = MappingProxyType(
    {
        "autocontrast": Kind(enhance.autocontrast_, "percent of pixels to leave out at either end, 0 to 100", 0, 100),
        "brightness": _factor(enhance.brightness_),
        "color": _factor(enhance.color_),
        "contrast": _factor(enhance.contrast_),
        "sharpness": _factor(enhance.sharpness),
        "solarize": Kind(enhance.solarize, "the level from which to invert, 0 to 256", 0, 256),
        "posterize": Kind(enhance.posterize_, "the number of bits to keep, 1 to 8", 1, 8, whole=True),
        "equalize": Kind(enhance.equalize),
        "invert": Kind(enhance.invert_),
        "grayscale": Kind(enhance.grayscale),
        "red_shift": _channel(enhance.red_shift_),
        "green_shift": _channel(enhance.green_shift_),
        "blue_shift": _channel(enhance.blue_shift_),
    }
)
"""Operations on the levels, as in Pillow."""

GEOMETRIC = MappingProxyType(
    {
        "rotate": _moves(geometric.rotate, "degrees, counter-clockwise", -360, 360),
        "translate_x": _moves(geometric.translate_x, "a share of the width, -1 to 1", -1, 1),
        "translate_y": _moves(geometric.translate_y, "a share of the height, -1 to 1", -1, 1),
        "shear_x": _moves(geometric.shear_x, "a slope, -2 to 2", -2, 2),
        "shear_y": _moves(geometric.shear_y, "a slope, -2 to 2", -2, 2),
        "scale": _moves(geometric.scale, "a factor from 0.1 to 10; 1 is the image unchanged", 0.1, 10),
        "flip": Kind(geometric.flip),
    }
)
"""Operations on the place of pixels."""

KINDS = MappingProxyType({**ENHANCE, **GEOMETRIC})
"""Every operation by name."""


@dataclass(frozen=True)
class Operation(ImageShift):
    """A named operation at a level, deterministic; `fill` is what a geometric operation puts outside the image.

    Args:
        name: The name of the operation (`shiftproof list shifts`).
        severity: From 0, no change, to 5; the level decides what happens.
        level: The strength, in the operation's own unit; None where it has no levels.
        fill: What a geometric operation shows outside the image.

    >>> Operation("rotate", level=15.0).label
    'rotate=15'
    """

    severity: float = 1.0
    level: float | None = None
    fill: Fill = "black"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name not in KINDS:
            raise unknown("operation", self.name, KINDS)
        KINDS[self.name].check(self.name, self.level)
        read(Operation, "fill", self.fill)

    @property
    def label(self) -> str:
        """The text form, such as `contrast=0.8`, `grayscale` or `rotate=15[fill=reflect]`."""
        level = "" if self.level is None else f"={plain(self.level)}"
        return f"{self.name}{level}{bracketed(stated(self, without=('name', 'level')))}"

    @property
    def moves(self) -> bool:
        """Whether the operation is geometric."""
        return self.name in GEOMETRIC

    def origins(self, rng: Keyed, shape: Shape) -> Tensor:
        """Invert the map of the operation."""
        level = torch.full((len(rng),), self.level or 0.0, dtype=torch.float64, device=rng.device)
        return affine_origins(MAPS[self.name](level, *shape.spatial), *shape.spatial)

    def draw(self, rng: Keyed, shape: Shape) -> None:
        """Nothing is random."""

    def transform(self, images: Tensor, drawn: None) -> Tensor:
        """Apply the operation to the levels of the images."""
        level = torch.full(images.shape[:1], self.level or 0.0, dtype=torch.float64, device=images.device)
        return apply_(self.name, to_levels(images), level, self.fill).div_(255.0)


def operation(name: str, level: float | None = None, *, fill: Fill = "black") -> Operation:
    """Return an operation by name: `operation("contrast", 0.8)`, `operation("grayscale")`."""
    return Operation(name, level=level, fill=fill)


def made_of(form: Form) -> Operation:
    """Return the operation that a text such as `contrast=0.8` or `grayscale` stands for."""
    own = typed(Operation, form.fields, form.name, without=("name", "level"))
    return Operation(form.name, level=form.number, **own)


def operation_sets() -> tuple[str, ...]:
    """Return the names of the sets of operations that worst-case search draws from."""
    return tuple(tables.table("enhance"))


def operation_set(name: str) -> tuple[Operation, ...]:
    """Return every operation at every level of a set: `mnist`, `cifar`, `camvid`, `faces` (Volpi & Murino 2019)."""
    sets = tables.table("enhance")
    if name not in sets:
        raise unknown("set of operations", name, sets)
    return tuple(operation(each, level) for each, row in sets[name].items() for level in _levels(row))


def apply_(name: str, levels: Tensor, level: Tensor, fill: Fill = "black") -> Tensor:
    """Apply one operation to every image, each at its own level, [N] float64; the levels given are lost."""
    kind = KINDS[name]
    if kind.takes is None:
        return kind.function(levels)
    return kind.function(levels, level, fill) if kind.fills else kind.function(levels, level)


def apply_each_(names: Sequence[str], levels: Tensor, which: Tensor, level: Tensor, fill: Fill = "black") -> Tensor:
    """Apply operation `names[which[i]]` at `level[i]` to image i, in place; `identity` leaves an image alone.

    `which` and `level` are on the CPU, so that the images of each operation are known without waiting for the device;
    every operation present runs once, on its images, and all affine maps as one.
    """
    order = which.argsort(stable=True)
    ends = torch.bincount(which, minlength=len(names)).cumsum(0).tolist()
    level = level[order]
    spans = {name: slice(start, end) for name, start, end in zip(names, [0, *ends], ends, strict=False) if start < end}
    moving = [name for name in spans if name != "identity" and KINDS[name].fills]
    rows, each = order.to(levels.device, non_blocking=True), level.to(levels.device, non_blocking=True)
    for name, span in spans.items():
        if name != "identity" and name not in moving:
            some = rows[span]
            levels.index_copy_(0, some, apply_(name, levels.index_select(0, some), each[span], fill))
    if moving:
        some = torch.cat([rows[spans[name]] for name in moving])
        maps = [torch.stack(MAPS[name](level[spans[name]], *levels.shape[2:])) for name in moving]
        source = Affine(*torch.cat(maps, dim=1).to(levels.device, non_blocking=True))
        levels.index_copy_(0, some, affine(levels.index_select(0, some), source, fill))
    return levels


def origins_each(names: Sequence[str], which: Tensor, level: Tensor, shape: Shape, device: torch.device) -> Tensor:
    """Return where the pixels of the images that `apply_each_` makes come from, [N, H, W] as in `shifts.origins`."""
    found = unmoved(len(which), *shape.spatial, device)
    for place, name in enumerate(names):
        rows = (which == place).nonzero()[:, 0]
        if len(rows) and name in GEOMETRIC:
            source = MAPS[name](level[rows].to(device), *shape.spatial)
            found.index_copy_(0, rows.to(device), affine_origins(source, *shape.spatial))
    return found


def apply_in_turn_(levels: Tensor, parts: Sequence[Sequence[Operation]]) -> Tensor:
    """Send each part of a batch, equally large ones, through operations of its own, in turn and in place.

    The first operations of all parts run together, then the second ones: as many kernels as for a single part or a few
    more. All operations must have the same fill.
    """
    names = ("identity", *KINDS)
    (fill,) = {step.fill for steps in parts for step in steps} or {"black"}
    each = len(levels) // len(parts)
    for place in range(max(map(len, parts))):
        steps = [steps[place] if place < len(steps) else None for steps in parts]
        which = torch.tensor([0 if step is None else names.index(step.name) for step in steps])
        level = torch.tensor([0.0 if step is None else step.level or 0.0 for step in steps], dtype=torch.float64)
        apply_each_(names, levels, which.repeat_interleave(each), level.repeat_interleave(each), fill)
    return levels


def _levels(row: dict[str, float]) -> list[float | None]:
    if not row:
        return [None]
    levels = np.linspace(row["low"], row["high"], int(row["count"])).tolist()
    return [math.trunc(level) if row.get("whole") else level for level in levels]
