"""Calibrate: measure, for one model, the pairs of corruptions a CCC run needs, and only where its path may go.

First every corruption alone at severity 5, which tells who can reach the target; then, for the pairs of the run, both
alone and together on a coarse grid up to where they pass the target; then, a few times over, the places of the best
path so far, through what is measured and what is interpolated. So next to all of the path that is kept is measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Any, Literal, cast

import numpy as np

from shiftproof import shifts as catalogue
from shiftproof.data import Batch, ImageSet, load_images
from shiftproof.errors import ConfigurationError, DataError, RunError
from shiftproof.measures.paths import FORBIDDEN, Grid, Path, Place, Variant, find_path
from shiftproof.models import Model, fingerprint, load_model, logits
from shiftproof.models.identity import digest
from shiftproof.runs import Cell, Executor, Inline, Plan, Processes, Result, Row, Store, drive
from shiftproof.shifts.crop import FlipCrop
from shiftproof.streams.calibration import Calibration, label_at
from shiftproof.streams.ccc import default_crop
from shiftproof.streams.course import LEVELS, Course, MissingPairError, Pair
from shiftproof.streams.failing import stop_at_failure
from shiftproof.streams.orders import corruptions
from shiftproof.version import __version__

FILE = "calibration.json"
COARSE = (0, 5, 10, 15, 20)
"""Levels of the coarse grid: severities 0, 1.25, 2.5, 3.75 and 5."""
ROUNDS = 3
"""How often the places of the best path are measured and the path is sought again."""
REACH = 0.02
"""A corruption that stays above the target by no more than this at severity 5 still counts as reaching it."""
STEADY = 0.04
"""A path that strays from the target by more than this, over two steps, is avoided: difficulty shall be constant."""
CLEAN = "clean"

Watch = Callable[[int, int, Result | None], None]


@dataclass(frozen=True)
class Probe:
    """Measures one shift on the calibration images; it can be sent to worker processes, which load their own."""

    model: Any
    data: Any
    images: int
    seed: int
    crop: float | None
    device: str
    batch_size: int
    model_options: Mapping[str, Any] = field(default_factory=dict)
    data_options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Probe:
        """Be the worker."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what was loaded."""
        return {name: value for name, value in self.__dict__.items() if name not in ("loaded", "whole", "framed")}

    @cached_property
    def loaded(self) -> Model:
        """The model."""
        return load_model(self.model, device=self.device, **self.model_options)

    @cached_property
    def whole(self) -> ImageSet:
        """All images."""
        found = load_images(self.data, **self.data_options)
        if found.labels is None:
            raise DataError(
                "A calibration measures accuracy, and the images have no labels.",
                expected="a folder with one sub-folder per class, a CSV of labels, or an .npz with labels",
            )
        return found

    @property
    def area(self) -> float:
        """The least area of a crop."""
        return default_crop(self.whole) if self.crop is None else self.crop

    @cached_property
    def framed(self) -> list[Batch]:
        """The calibration images, cropped and mirrored as in a stream, in batches."""
        frame = FlipCrop(smallest=self.area)
        chosen = self.whole.take(self.images, seed=self.seed)
        return [
            replace(batch, images=frame(batch.images, batch.keys, seed=self.seed))
            for batch in chosen.batches(self.batch_size, device=self.device)
        ]

    def measure(self, cell: Cell) -> Row:
        """Count the right answers under a shift."""
        label = cast(str, cell["shift"])
        shift = None if label == CLEAN else catalogue.parse(label)
        right = 0
        for batch in self.framed:
            images = batch.images if shift is None else shift(batch.images, batch.keys, seed=self.seed)
            if batch.labels is not None:
                right += int((logits(self.loaded, images).argmax(1) == batch.labels.cpu()).sum())
        return {"right": right}


def calibrate(
    model: Any,
    data: Any,
    *,
    out: str | FilePath,
    length: int,
    target: float = 0.34,
    speed: int = 1000,
    seed: int = 43,
    shifts: Sequence[str] | None = None,
    images: int = 1000,
    crop: float | None = None,
    rounds: int = ROUNDS,
    steady: float | None = STEADY,
    variant: Variant = "exact",
    device: str = "cpu",
    batch_size: int = 256,
    executor: Literal["inline", "processes"] = "inline",
    workers: int = 2,
    model_options: Mapping[str, Any] | None = None,
    data_options: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
) -> Calibration:
    """Calibrate a model for a CCC run of `length` images and write `calibration.json` to the folder `out`.

    `model` and `data` are what `load_model` and `load_data` take; `images` of the data are measured on. The same call
    goes on where an earlier one stopped, and a longer run, or another target, measures only what is missing. `shifts`
    names corruptions or families, `holdout` for choosing hyper-parameters. The places of the best path are measured and
    the path is sought again, `rounds` times; the notes of the result say how many of its places are interpolated.
    Where one corruption undoes part of the other, as blur does of noise, no path keeps the accuracy constant: a pair
    whose path strays by more than `steady` is avoided. None avoids none, as published.
    """
    if not 0 < target < 1:
        raise ConfigurationError(
            "A target is an accuracy.", expected="between 0 and 1, such as 0.34", came=f"{target:g}"
        )
    if length < 1 or speed < 1 or images < 1:
        raise ConfigurationError(
            "A calibration needs images.", expected="1 or more", came=f"length {length}, speed {speed}, images {images}"
        )
    probe = Probe(model, data, images, 0, crop, device, batch_size, model_options or {}, data_options or {})
    images = min(images, len(probe.whole))
    identity = {"model": fingerprint(probe.loaded), "data": probe.whole.fingerprint}
    subject = {"version": __version__, **identity, "calibration": digest([images, probe.area])}
    run: Executor = Inline() if executor == "inline" else Processes(workers)
    with Store(FilePath(out), subject) as store:
        survey = _Survey(probe, Plan((), subject), store, run, watch)
        noises, left_out = _who_reaches(survey, corruptions(shifts), images, target)
        goal = round(target * images)
        limit = None if steady is None else steady * images
        paths: dict[Pair, Path] = {}
        rough: dict[Pair, float] = {}
        while missing := _missing(Course(noises, paths, seed, rough), -(-length // speed)):
            found = _find_paths(survey, missing, goal, rounds, variant, limit)
            paths |= found
            strays = {pair: _straying(survey, pair, path, goal) for pair, path in found.items()}
            rough |= {pair: stray / images for pair, stray in strays.items() if limit is not None and stray > limit}
        made = Calibration(
            **identity,
            target=target,
            images=images,
            seed=0,
            crop=probe.area,
            variant=variant,
            noises=noises,
            left_out=left_out,
            measured=survey.counts,
            paths=paths,
            rough=rough,
        )
        made.save(FilePath(out) / FILE)
    return made


@dataclass
class _Survey:
    """The counts of right answers by shift, measured as they are asked for."""

    probe: Probe
    plan: Plan
    store: Store
    executor: Executor
    watch: Watch | None
    counts: dict[str, int] = field(default_factory=dict)
    asked: dict[Pair, set[Place]] = field(default_factory=lambda: defaultdict(set))

    def ask(self, places: Iterable[tuple[Pair, Place]]) -> None:
        """Measure pairs at some levels.

        What a pair asked for is kept apart: its path must not depend on which other pairs have been looked at.
        """
        wanted = list(places)
        for pair, place in wanted:
            self.asked[pair].add(place)
        self.measure(_label(pair, place) for pair, place in wanted)

    def measure(self, labels: Iterable[str]) -> None:
        """Measure the shifts that are not known yet."""
        wanted = [label for label in dict.fromkeys(labels) if label not in self.counts]
        plan = replace(self.plan, cells=tuple(Cell("calibration", shift=label) for label in wanted))
        done = 0

        def heard(result: Result) -> None:
            nonlocal done
            done += 1
            if self.watch is not None:
                self.watch(done, len(wanted), result)

        for result in drive(plan, self.store, self.probe, executor=self.executor, watch=heard):
            stop_at_failure(result, f"Measuring {result.cell['shift']}")
            if result.row is not None:
                self.counts[cast(str, result.cell["shift"])] = cast(int, result.row["right"])

    def known(self, pair: Pair) -> dict[Place, int]:
        """Return the counts at the levels a pair asked for."""
        return {place: self.counts[_label(pair, place)] for place in sorted(self.asked[pair])}


def _label(pair: Pair, place: Place) -> str:
    return CLEAN if place == (0, 0) else label_at(pair, place)


def _who_reaches(
    survey: _Survey, names: Sequence[str], images: int, target: float
) -> tuple[tuple[str, ...], dict[str, float]]:
    """Return the corruptions that bring the model down to the target alone, or the two that come nearest."""
    survey.measure([CLEAN, *(f"{name}@5" for name in names)])
    accuracy = {name: survey.counts[f"{name}@5"] / images for name in names}
    reaching = [name for name in names if accuracy[name] <= target + REACH]
    if len(reaching) < 2:
        reaching = sorted(names, key=lambda name: accuracy[name])[:2]
    return tuple(reaching), {name: accuracy[name] for name in names if name not in reaching}


def _missing(course: Course, steps: int) -> list[Pair]:
    """Return pairs without a path that a run of so many steps needs next; none when it is covered."""
    try:
        course.legs(steps)
    except MissingPairError as error:
        least = -(-(steps - course.reached()) // (2 * LEVELS - 1))  # no path is longer
        return course.wanted(least) or [error.pair]
    return []


def _find_paths(
    survey: _Survey, pairs: Sequence[Pair], goal: int, rounds: int, variant: Variant, limit: float | None
) -> dict[Pair, Path]:
    """Return the path of each pair; all pairs go through a stage together, so that executors have much to do."""
    survey.ask((pair, place) for pair in pairs for level in COARSE for place in ((level, 0), (0, level)))
    survey.ask((pair, place) for pair in pairs for place in _coarse_places(survey, pair, goal))
    found = {pair: _path(survey, pair, goal, variant) for pair in pairs}
    for _ in range(rounds):
        # Those that stray far by the coarse grid already are not worth a closer look.
        hopeful = [p for p in pairs if limit is None or _straying(survey, p, found[p], goal) <= 2 * limit]
        survey.ask((pair, place) for pair in hopeful for place in found[pair])
        found |= {pair: _path(survey, pair, goal, variant) for pair in hopeful}
    return found


def _straying(survey: _Survey, pair: Pair, path: Path, goal: int) -> float:
    """Return how far the mean count of two steps that follow each other is from the goal at most."""
    grid = _surface(survey, pair)
    counts = [int(grid[place]) for place in path]
    return max(abs((one + other) / 2 - goal) for one, other in pairwise(counts))


def _coarse_places(survey: _Survey, pair: Pair, goal: int) -> list[Place]:
    """Return the places of the coarse grid up to the first level at which each corruption alone passes the goal."""
    known = survey.known(pair)

    def reach(along: Callable[[int], Place]) -> list[int]:
        passed = [level for level in COARSE if known[along(level)] < goal]
        return [level for level in COARSE if level <= min(passed, default=COARSE[-1])]

    return [(i, j) for i in reach(lambda level: (level, 0)) for j in reach(lambda level: (0, level))]


def _path(survey: _Survey, pair: Pair, goal: int, variant: Variant) -> Path:
    found = find_path(_surface(survey, pair), goal, variant)
    if found is None:
        raise RunError("No path leads from one corruption to the other.", instead="calibrate with other shifts")
    return found


def _surface(survey: _Survey, pair: Pair) -> Grid:
    """Return the counts of a pair over all levels: measured ones, linear ones between them, and beyond them none."""
    from scipy.interpolate import griddata

    places = [(i, j) for i in range(LEVELS) for j in range(LEVELS)]
    known = survey.known(pair)
    between = griddata(list(known), list(known.values()), places, method="linear").reshape(LEVELS, LEVELS)
    inside = np.isfinite(between)
    grid: Grid = np.where(inside, np.rint(np.where(inside, between, 0)), FORBIDDEN).astype(np.int64)
    for place, count in known.items():
        grid[place] = count
    return grid
