"""Severity tables: data files of published constants, read at any severity in [0, 5] and any image size.

Between the published severities every parameter is interpolated linearly, from the table's identity-like `zero` up.
Between the two presets, `cifar` (32 pixels and less) and `imagenet` (224 pixels and more), parameters are interpolated
linearly in the logarithm of the image side, the geometric mean of height and width.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from shiftproof.errors import ConfigurationError

Preset = Literal["imagenet", "cifar"]
PRESET_SIDES: Mapping[str, int] = {"cifar": 32, "imagenet": 224}


class Parameters(dict[str, float]):
    """The numbers of one shift at one severity and image size, read as attributes: `p.sigma`."""

    def __getattr__(self, name: str) -> float:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no parameter {name!r}; there are: {', '.join(self)}") from None


@cache
def table(family: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the table of a family of shifts, by shift name."""
    text = files("shiftproof.shifts").joinpath("tables", f"{family}.toml").read_text("utf-8")
    return tomllib.loads(text)


def parameters(
    row: Mapping[str, Any], severity: float, *, height: int, width: int, preset: str | None = None
) -> Parameters:
    """Return the parameters of a table row at a severity, for a preset or, without one, for the image size."""
    if preset is not None:
        return _at_severity(row, check_preset(preset), severity)
    side = math.sqrt(height * width)
    small, large = (math.log(PRESET_SIDES[name]) for name in ("cifar", "imagenet"))
    weight = min(max((math.log(side) - small) / (large - small), 0.0), 1.0)
    low, high = _at_severity(row, "cifar", severity), _at_severity(row, "imagenet", severity)
    return Parameters({name: (1 - weight) * low[name] + weight * high[name] for name in low})


def check_preset(preset: str) -> str:
    """Refuse a preset that does not exist."""
    if preset not in PRESET_SIDES:
        raise ConfigurationError(
            f"There is no preset {preset!r}.",
            expected="'imagenet' (224 pixels), 'cifar' (32 pixels), or None to choose by image size",
            got=repr(preset),
        )
    return preset


def _at_severity(row: Mapping[str, Any], preset: str, severity: float) -> Parameters:
    """Interpolate between the knots at severities 0, 1, ..., 5; `reciprocal` names interpolate 1 / value."""
    zero, columns, reciprocal = row["zero"], row[preset], row.get("reciprocal", ())
    below = min(math.floor(severity), 4)
    share = severity - below
    values = Parameters()
    for name, column in columns.items():
        first = zero.get(name, column[0])
        knots = [1.0 / knot if name in reciprocal and knot else knot for knot in (first, *column)]
        value = (1 - share) * knots[below] + share * knots[below + 1]
        values[name] = 1.0 / value if name in reciprocal else value
    return values
