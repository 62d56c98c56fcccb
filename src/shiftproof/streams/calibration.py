"""A calibration: how hard pairs of corruptions are for one model, and the paths of constant difficulty it gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any, Self

from shiftproof.errors import DataError
from shiftproof.measures.paths import Path, Variant
from shiftproof.runs import write_atomically
from shiftproof.streams.course import LEVELS, STEP, Pair, pair_shift
from shiftproof.version import __version__

JOINT = " > "
NEAR = 0.02
"""A path whose mean accuracy misses the target by more than this did not reach it."""


@dataclass(frozen=True)
class Calibration:
    """Right answers of one model to `images` images under pairs of corruptions, and a path for each pair.

    `model` and `data` are fingerprints. `measured` holds counts by the label of a shift, `left_out` the accuracy at
    severity 5 of corruptions too weak to reach the target, `rough` how far the paths of pairs to be avoided stray from
    it. `seed` chose the images, `crop` is the least area of their crops: accuracies are those of cropped images, as in
    a stream.
    """

    model: str
    data: str
    target: float
    images: int
    seed: int
    crop: float
    variant: Variant
    noises: tuple[str, ...]
    left_out: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, int] = field(default_factory=dict)
    paths: Mapping[Pair, Path] = field(default_factory=dict)
    rough: Mapping[Pair, float] = field(default_factory=dict)

    def accuracy(self, pair: Pair) -> float:
        """Return the mean accuracy along a pair's path, as far as it was measured."""
        found = [self.measured[label] for label in self.labels(pair) if label in self.measured]
        return sum(found) / (self.images * len(found)) if found else 0.0

    def labels(self, pair: Pair) -> list[str]:
        """Return the shifts along a pair's path, by label."""
        return [label_at(pair, place) for place in self.paths[pair]]

    @cached_property
    def interpolated(self) -> int:
        """How many places on the paths in use were interpolated, not measured."""
        return sum(label not in self.measured for pair in self.used for label in self.labels(pair))

    @property
    def used(self) -> list[Pair]:
        """The pairs a course goes over: the smooth ones, or all where none is."""
        return [pair for pair in self.paths if pair not in self.rough] or list(self.paths)

    @property
    def notes(self) -> tuple[str, ...]:
        """What has to be said about it: what was left out, missed or interpolated."""
        said = []
        if self.left_out:
            weak = ", ".join(f"{name} ({100 * value:.0f}%)" for name, value in self.left_out.items())
            said.append(f"Too weak for a target of {100 * self.target:g}% even at severity 5, and left out: {weak}.")
        if self.rough:
            said.append(
                f"{len(self.rough)} of {len(self.paths)} pairs have no path that stays near the target, such as "
                f"{JOINT.join(next(iter(self.rough)))}, and are avoided where there is another way on."
            )
        missed = {pair: self.accuracy(pair) for pair in self.used}
        missed = {pair: value for pair, value in missed.items() if abs(value - self.target) > NEAR}
        if missed:
            far = max(missed, key=lambda pair: abs(missed[pair] - self.target))
            said.append(
                f"No path reaches the target of {100 * self.target:g}% for {len(missed)} of {len(self.used)} pairs; "
                f"the nearest was taken, at worst {100 * missed[far]:.1f}% ({JOINT.join(far)})."
            )
        places = sum(len(self.paths[pair]) for pair in self.used)
        grid = len(self.paths) * LEVELS**2
        said.append(
            f"{len(self.measured)} of about {grid} combinations were measured on {self.images} images each, the others "
            f"interpolated; of the {places} on the paths, {self.interpolated or 'none'} {_were(self.interpolated)}."
        )
        return tuple(said)

    def check(self, *, model: str, target: float | None = None) -> None:
        """Refuse a calibration of another model, or for another target."""
        if model != self.model:
            raise DataError(
                "This calibration belongs to another model.",
                expected=f"model {model}",
                came=f"model {self.model}",
                instead="shiftproof stream calibrate makes one of this model",
            )
        if target is not None and target != self.target:
            raise DataError("This calibration is for another target.", expected=f"{target:g}", came=f"{self.target:g}")

    def save(self, path: FilePath) -> None:
        """Write it to a JSON file."""
        content: dict[str, Any] = {
            "shiftproof": __version__,
            **{name: value for name, value in self.__dict__.items() if name != "interpolated"},
            "paths": {JOINT.join(pair): path for pair, path in self.paths.items()},
            "rough": {JOINT.join(pair): value for pair, value in self.rough.items()},
            "notes": self.notes,
        }
        lines = (f" {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
        write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")

    @classmethod
    def load(cls, path: FilePath) -> Self:
        """Read it from a JSON file."""
        try:
            content = json.loads(path.read_text())
            content["noises"] = tuple(content["noises"])
            content["paths"] = {
                _pair(text): tuple((int(i), int(j)) for i, j in places) for text, places in content["paths"].items()
            }
            content["rough"] = {_pair(text): float(value) for text, value in content["rough"].items()}
            return cls(**{name: value for name, value in content.items() if name not in ("shiftproof", "notes")})
        except OSError as error:
            raise DataError(f"Cannot read the calibration {str(path)!r}.", reason=str(error)) from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(
                f"{str(path)!r} is not a calibration.",
                expected="a JSON file that `shiftproof stream calibrate` wrote",
                came=f"{type(error).__name__}: {error}",
            ) from error


def label_at(pair: Pair, place: tuple[int, int]) -> str:
    """Return the label of a pair's shift at some levels."""
    return pair_shift(pair, (place[0] * STEP, place[1] * STEP)).label


def _pair(text: str) -> Pair:
    first, second = text.split(JOINT)
    return first, second


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
