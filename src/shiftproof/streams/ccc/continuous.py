"""Continually changing corruptions: two at a time, the one fading out as the other fades in, at constant difficulty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from shiftproof.data import Dataset, as_images
from shiftproof.data.images.imageset import SMALL_SIDE
from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.prediction_tasks import task_of
from shiftproof.runs import Json
from shiftproof.shifts import Shift
from shiftproof.shifts.augment.framing import FlipCrop
from shiftproof.streams.ccc.balancing import balanced_order
from shiftproof.streams.ccc.schedule import LENGTH, SEED, SPEED, MissingPairError, Schedule, pair_shift, straight
from shiftproof.streams.ccc.stream_calibration import JOINT, StreamCalibration
from shiftproof.streams.orders import Staged, corruptions

CROPS = {"small": 0.64, "large": 0.08, "maps": 0.35}
"""The least area of a crop: the usual 8% leaves next to nothing of an image of up to 64 pixels a side, nor of a scene
whose pixels have labels."""


def default_crop(data: Dataset) -> float:
    """Return the least area of crops of these images."""
    if as_images(data).side <= SMALL_SIDE:
        return CROPS["small"]
    return CROPS["maps" if task_of(data).per_pixel else "large"]


class Ccc(Staged):
    """Continually changing corruptions (Press et al. 2023), endless and seekable.

    Every image is randomly cropped and mirrored, then corrupted twice, with rounding to 256 levels in between. A step
    of `speed` images has one pair of severities; the next step lowers the first or raises the second by 0.25. A
    `calibration` gives paths along which the accuracy of its model stays at its target. Without one, severities go
    straight from (`severity`, 0) to (0, `severity`), and the difficulty varies. With labels, every stretch of 256
    images has the class proportions of the data, so that accuracy over a window does not vary with its class mix.

    Args:
        data: The set of images.
        length: Number of images. Default: that of the calibration, or 100,000.
        calibration: Paths of severities along which the accuracy of a model stays at its target.
        shifts: Names of corruptions or families; by default the fifteen of ImageNet-C.
        severity: The highest severity, without a calibration.
        speed: Images per step. Default: that of the calibration, or 1,000.
        seed: Seed of pairs, paths and the order of images. Default: that of the calibration, or 43.
        crop: Smallest area of a random crop, as a fraction of the image.
        options: Those of `Stream`.

    >>> from shiftproof import load_data
    >>> stream = Ccc(load_data("demo"), length=256, speed=64, shifts=["fog", "contrast"])
    >>> len(stream), next(iter(stream)).inputs.shape
    (256, torch.Size([64, 3, 32, 32]))
    """

    kind: ClassVar[str] = "ccc"
    fresh: ClassVar[bool] = True

    def __init__(
        self,
        data: Dataset,
        *,
        length: int | None = None,
        calibration: StreamCalibration | None = None,
        shifts: Sequence[str] | None = None,
        severity: float = 3.0,
        speed: int | None = None,
        seed: int | None = None,
        crop: float | None = None,
        **options: Any,
    ) -> None:
        self.calibration = calibration
        run = (None,) * 3 if calibration is None else (calibration.length, calibration.speed, calibration.stream_seed)
        length, speed, seed = map(_first, (length, speed, seed), run, (LENGTH, SPEED, SEED))
        if calibration is None:
            names = corruptions(shifts)
            paths = {(one, other): straight(severity) for one in names for other in names if one != other}
            self.schedule = Schedule(names, paths, seed)
            area = default_crop(data) if crop is None else crop
        else:
            if shifts is not None or crop is not None:
                raise ConfigurationError(
                    "The calibration sets the shifts and crops.", fix="leave them out, or calibrate with others"
                )
            self.schedule = Schedule(calibration.noises, calibration.paths, seed, calibration.off_target)
            area = calibration.crop
        steps = -(-length // speed) if speed > 0 else 0
        try:
            self.schedule.segments(max(1, steps))
        except MissingPairError as error:
            reached = self.schedule.reached() * speed
            raise ConfigurationError(
                "The calibration does not reach as far as the stream.",
                expected=f"paths for {length:,} images",
                got=f"paths for {reached:,}: {JOINT.join(error.pair)} is missing",
                fix="calibrate again with this length, speed and seed: what was measured is kept",
            ) from None
        super().__init__(data, length=length, speed=speed, seed=seed, framing=FlipCrop(smallest=area), **options)

    def order(self, number: int) -> Tensor:
        """Return the rows of a pass, classes spread evenly over it."""
        if self.class_labels is None:
            return super().order(number)
        return balanced_order(Keyed(self.seed, [number]).fork("order"), self.class_labels)

    def stage(self, number: int) -> Shift:
        """Return the pair of corruptions of a step."""
        return pair_shift(*self.schedule.at(number))

    @property
    def shift_names(self) -> tuple[str, ...]:
        """The corruptions it goes over."""
        pairs = self.schedule.segments(-(-self.length // self.speed))
        return tuple(dict.fromkeys(name for pair in pairs for name in pair))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the calibration has to say, and whether steps repeat images."""
        said = () if self.calibration is None else self.calibration.notes
        if len(self.data) < self.speed:
            return (
                *said,
                f"A step of {self.speed:,} images goes over the {len(self.data):,} images of the set more than once, "
                "each time with another crop and other draws.",
            )
        return said

    def describe(self) -> dict[str, Json]:
        """Return the speed and the steps of the schedule."""
        segments = self.schedule.segments(-(-self.length // self.speed))
        return {
            "speed": self.speed,
            "schedule": [[*pair, [list(at) for at in self.schedule.paths[pair]]] for pair in segments],
        }


def _first(*values: int | None) -> int:
    """Return the first value that is given."""
    return next(value for value in values if value is not None)
