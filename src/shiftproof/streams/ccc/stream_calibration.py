"""A calibration: how hard pairs of corruptions are for one model, and the paths of constant difficulty it gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any, Literal, Self, TypeAlias

from shiftproof.errors import DataError
from shiftproof.runs import write_atomically
from shiftproof.runs.files import read_json
from shiftproof.shifts import Shift
from shiftproof.streams.ccc.paths import Path
from shiftproof.streams.ccc.schedule import LEVELS, STEP, Pair, pair_shift
from shiftproof.streams.ccc.surfaces import Counted
from shiftproof.streams.ccc.targets import Target, accuracy_at
from shiftproof.version import __version__

Variant: TypeAlias = Literal["steady", "exact", "release"]
"""How paths are chosen: by `measures.steadiness`, or by one of the two searches of `measures.paths`."""
FILE = "calibration.json"
JOINT = " > "
BY_PAIR = ("paths", "expected", "errors", "off_target")
PLAIN: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("model", "data"), str),
    **dict.fromkeys(("target", "clean", "crop"), float),
    **dict.fromkeys(("classes", "images", "seed"), int),
}
"""Fields that are one value, by their kind."""
RUN = ("length", "speed", "stream_seed")
"""Of the run it was made for; files of earlier versions do not say."""
NEAR = 0.02
"""A path whose mean accuracy misses the target by more than this did not reach it."""


@dataclass(frozen=True)
class StreamCalibration:
    """The calibration of a CCC stream: a path of severities for each pair of corruptions, for one model and target.

    Accuracies are those of cropped images, as in a stream. `length`, `speed` and `stream_seed` are the defaults of a
    stream that uses the calibration.

    Args:
        model: Fingerprint of the model.
        data: Fingerprint of the data.
        target: Accuracy that the paths keep.
        clean: Accuracy on clean images.
        classes: Number of classes.
        images: Largest number of images measured per pair of severities.
        seed: Seed of the choice of images.
        crop: Smallest area of a random crop, as a fraction of the image.
        variant: `steady`, `exact` or `release`, as in `calibrate`.
        noises: Corruptions that come first in a pair.
        left_out: Accuracy at severity 5 of corruptions too weak to reach the target.
        measured: Numbers of correct predictions and images, by the label of a shift.
        paths: Pairs of severities, step by step, for each pair of corruptions.
        expected: Fitted accuracy along each path.
        errors: Largest standard error of the fitted accuracy over a stretch of each path.
        off_target: Distance from the target, for pairs that cannot keep to it and are avoided.
        name: Name of the model.
        length: Number of images of the stream it was made for.
        speed: Images per step of that stream.
        stream_seed: The seed of that stream.
    """

    model: str
    data: str
    target: float
    clean: float
    classes: int
    images: int
    seed: int
    crop: float
    variant: Variant
    noises: tuple[str, ...]
    left_out: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, Counted] = field(default_factory=dict)
    paths: Mapping[Pair, Path] = field(default_factory=dict)
    expected: Mapping[Pair, tuple[float, ...]] = field(default_factory=dict)
    errors: Mapping[Pair, float] = field(default_factory=dict)
    off_target: Mapping[Pair, float] = field(default_factory=dict)
    name: str = ""
    length: int | None = None
    speed: int | None = None
    stream_seed: int | None = None

    def accuracy(self, pair: Pair) -> float:
        """Return the expected mean accuracy along a pair's path."""
        return sum(self.expected[pair]) / len(self.expected[pair])

    def labels(self, pair: Pair) -> list[str]:
        """Return the shifts along a pair's path, by label."""
        return [shift_at(pair, place).label for place in self.paths[pair]]

    @cached_property
    def interpolated(self) -> int:
        """Number of points on the paths in use that were interpolated, not measured."""
        return sum(label not in self.measured for pair in self.used for label in self.labels(pair))

    @property
    def used(self) -> list[Pair]:
        """The pairs a schedule goes over: the smooth ones, or all where none is."""
        return [pair for pair in self.paths if pair not in self.off_target] or list(self.paths)

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats: corruptions left out, targets missed, points interpolated."""
        said = []
        if self.left_out:
            weak = ", ".join(f"{name} ({100 * value:.0f}%)" for name, value in self.left_out.items())
            said.append(f"Too weak for a target of {100 * self.target:.3g}% even at severity 5, and left out: {weak}.")
        if self.off_target:
            said.append(
                f"{len(self.off_target)} of {len(self.paths)} pairs have no path that stays near the target, such as "
                f"{JOINT.join(next(iter(self.off_target)))}, and are avoided where there is another way on."
            )
        missed = {pair: self.accuracy(pair) for pair in self.used}
        missed = {pair: value for pair, value in missed.items() if abs(value - self.target) > NEAR}
        if missed:
            far = max(missed, key=lambda pair: abs(missed[pair] - self.target))
            said.append(
                f"No path reaches the target of {100 * self.target:.3g}% for {len(missed)} of {len(self.used)} pairs; "
                f"the nearest was taken, at worst {100 * missed[far]:.1f}% ({JOINT.join(far)})."
            )
        places = sum(len(self.paths[pair]) for pair in self.used)
        counted = sum(count.images for count in self.measured.values())
        said.append(
            f"{len(self.measured)} of about {len(self.paths) * LEVELS**2} combinations were measured, on {counted:,} "
            f"images in all, the others interpolated; of the {places} on the paths, {self.interpolated or 'none'} "
            f"{_were(self.interpolated)}. Standard error over any stretch of the paths: at most "
            f"{100 * max(self.errors[pair] for pair in self.used):.1f} points."
        )
        return tuple(said)

    def check(self, *, target: Target | None = None) -> None:
        """Raise an error if the calibration is for another target."""
        if target is not None and accuracy_at(target, clean=self.clean, classes=self.classes) != self.target:
            raise DataError(
                "This calibration is for another target.",
                expected=f"{target}",
                got=f"{self.target:.3g}",
                fix=f"leave the target out, or calibrate for it: shiftproof calibrate --target {target}",
            )

    def notes_for(self, model: str) -> tuple[str, ...]:
        """Return the caveats for evaluating a model with this fingerprint along the stream."""
        if model == self.model:
            return ()
        whose = repr(self.name) if self.name else f"with the fingerprint {self.model}"
        return (
            f"The difficulty of the stream is that of the model {whose}, which it was calibrated with: "
            f"{100 * self.target:.3g}% is that model's accuracy along it, not this one's.",
        )

    def save(self, path: str | FilePath) -> None:
        """Write it to a JSON file."""
        content: dict[str, Any] = {
            "shiftproof": __version__,
            **{name: value for name, value in self.__dict__.items() if name != "interpolated"},
            **{name: {JOINT.join(pair): value for pair, value in getattr(self, name).items()} for name in BY_PAIR},
            "notes": self.notes,
        }
        lines = (f" {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
        write_atomically(FilePath(path), "{\n" + ",\n".join(lines) + "\n}\n")

    @classmethod
    def load(cls, path: str | FilePath) -> Self:
        """Read it from a JSON file, or from the folder that `shiftproof calibrate` wrote it to."""
        path = FilePath(path)
        path = path / FILE if path.is_dir() else path
        try:
            content = read_json(path)
            content |= {name: kind(content[name]) for name, kind in PLAIN.items()}
            content |= {name: int(content[name]) for name in RUN if content.get(name) is not None}
            content["noises"] = tuple(map(str, content["noises"]))
            for name in BY_PAIR:
                content[name] = {_pair(text): value for text, value in content[name].items()}
            content["paths"] = {
                pair: tuple((int(i), int(j)) for i, j in places) for pair, places in content["paths"].items()
            }
            if not all(content["paths"].values()):
                raise ValueError("a path without places")
            content["expected"] = {pair: tuple(map(float, along)) for pair, along in content["expected"].items()}
            content["measured"] = {label: Counted(*count) for label, count in content["measured"].items()}
            made = cls(**{name: value for name, value in content.items() if name not in ("shiftproof", "notes")})
            len(made.notes)  # reads everything, so that what is wrong with a file is said here
        except OSError as error:
            raise DataError(
                f"Cannot read the calibration {str(path)!r}.",
                expected="a JSON file that `shiftproof calibrate` wrote",
                got=str(error),
            ) from error
        except Exception as error:  # values of the wrong kind fail in any way there is
            raise DataError(
                f"{str(path)!r} is not a calibration.",
                expected="a JSON file that `shiftproof calibrate` wrote",
                got=f"{type(error).__name__}: {error}",
            ) from error
        return made


def shift_at(pair: Pair, place: tuple[int, int]) -> Shift:
    """Return a pair's shift at some levels."""
    return pair_shift(pair, (place[0] * STEP, place[1] * STEP))


def _pair(text: str) -> Pair:
    first, second = text.split(JOINT)
    return first, second


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
