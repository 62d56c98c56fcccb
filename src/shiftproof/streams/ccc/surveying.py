"""Right answers under pairs of corruptions, counted on ever more images where it matters, and fitted between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, cast

import numpy as np

from shiftproof.errors import RunError
from shiftproof.runs import OnProgress, Plan, Result, Store, WorkerPool, drive
from shiftproof.streams.ccc.paths import FORBIDDEN, Path, Place, find_path
from shiftproof.streams.ccc.probing import CLEAN, Condition, ConditionCount
from shiftproof.streams.ccc.schedule import LEVELS, Pair
from shiftproof.streams.ccc.steadiness import Values, find_steady_path, straying
from shiftproof.streams.ccc.stream_calibration import Variant, shift_at
from shiftproof.streams.ccc.surfaces import Counted, Surface, fit_surface

FIRST = 125
"""Images for a first look at a place; each closer look doubles them."""
COARSE = (0, 5, 10, 15, 20)
"""Levels of the coarse grid: severities 0, 1.25, 2.5, 3.75 and 5."""
AXIS_LOOKS = 2
"""A corruption alone serves many pairs, and tells how far their grids go: it is looked at twice."""
PAST_TARGET = 0.05
"""The coarse grid ends where a corruption alone is this far under the target: chance does not make it end sooner."""
GIVE_UP = 0.5
"""Standard errors by which a stretch must be beyond the limit for a pair to be given up. The promise is about pairs
that are kept; one given up by chance costs the next pair, a closer look at many that stray a little costs more."""
FINE = 1000
"""Searches over whole numbers see accuracies in thousandths."""

Looks: TypeAlias = dict[Place, int]
"""How closely each place was looked at: 1 for the first images, one more for each doubling."""


@dataclass(frozen=True)
class Route:
    """The path of a pair, the fitted accuracy at each of its places, and the standard error over each stretch of it.

    A stretch is so many places in a row as are judged `together`.
    """

    path: Path
    accuracy: tuple[float, ...]
    error: tuple[float, ...]
    together: int

    def straying(self, target: float) -> float:
        """Return how far the mean of a stretch is from the target at most."""
        return straying(self.accuracy, target, self.together)

    def unsure(self, target: float, limit: float, precision: float) -> set[Place]:
        """Return the places worth a closer look: those of stretches that are not known to within the precision.

        Where stretches may be beyond the limit it is only those, and where one probably is none: the pair is given up.
        """
        stretches = [slice(first, first + self.together) for first in range(len(self.error))]
        beyond = [abs(sum(self.accuracy[here]) / self.together - target) - limit for here in stretches]
        if any(miss > max(0.0, GIVE_UP * error) for miss, error in zip(beyond, self.error, strict=True)):
            return set()
        return {
            place
            for here, miss, error in zip(stretches, beyond, self.error, strict=True)
            if error > precision and (miss > 0 or max(beyond) <= 0)
            for place in self.path[here]
        }


@dataclass
class Survey:
    """Counts by shift, measured as they are asked for, on `images` images at most."""

    pool: WorkerPool
    plan: Plan
    store: Store
    on_progress: OnProgress | None
    images: int
    forecast: int = 0
    """How many images will have been counted in the end, about."""
    looks: dict[Pair, Looks] = field(default_factory=lambda: defaultdict(dict))
    classes: int = 0
    _right: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _heard_of: int = 0

    @property
    def edges(self) -> list[int]:
        """How many images each look goes up to: 125, 250, 500 and so on."""
        found = [min(FIRST, self.images)]
        while found[-1] < self.images:
            found.append(min(2 * found[-1], self.images))
        return found

    def measure(self, conditions: Iterable[Condition], looks: int) -> None:
        """Count right answers under shifts, as far as they are not known yet."""
        edges = self.edges[:looks]
        tasks = tuple(
            ConditionCount(condition, start, stop)
            for condition in {each.label: each for each in conditions}.values()
            for start, stop in list(zip([0, *edges], edges, strict=False))[len(self._right[condition.label]) :]
        )
        plan, self._heard_of = replace(self.plan, tasks=tasks), self.spent
        for result in drive(plan, self.store, self.pool, on_progress=self._heard, essential="Measuring a shift"):
            if result.row is not None and isinstance(result.task, ConditionCount):
                self._right[result.task.condition.label].append(cast(int, result.row["right"]))
                self.classes = cast(int, result.row["classes"])

    @property
    def spent(self) -> int:
        """How many images were counted so far."""
        return sum(self.edges[len(parts) - 1] for parts in self._right.values() if parts)

    def _heard(self, done: int, total: int, result: Result | None) -> None:
        """Pass on how far the calibration is, in images of about how many, where something new was counted."""
        if self.on_progress is not None and result is not None and isinstance(result.task, ConditionCount):
            self._heard_of += result.task.stop - result.task.start
            self.on_progress(self._heard_of, max(self.forecast, self._heard_of), result)

    def finish(self) -> None:
        """Say that all is counted, whatever the forecast was."""
        if self.on_progress is not None:
            self.on_progress(self.spent, self.spent, None)

    def counted(self, condition: Condition, looks: int | None = None) -> Counted:
        """Return what was counted under a condition, in all or in the first looks."""
        return self._counted(condition.label, looks)

    def _counted(self, label: str, looks: int | None = None) -> Counted:
        parts = self._right[label][:looks]
        return Counted(sum(parts), self.edges[len(parts) - 1])

    @property
    def measured(self) -> dict[str, Counted]:
        """All that was counted, by shift."""
        return {label: self._counted(label) for label in self._right}

    def look(self, pair: Pair, places: Iterable[Place]) -> list[tuple[Condition, int]]:
        """Note that a pair wants to see places, or to see them more closely, and return what to measure.

        What a pair has asked for is kept apart: its path must not depend on which other pairs have been looked at.
        """
        wanted = []
        for place in places:
            looks = self.looks[pair][place] = self.looks[pair].get(place, 0) + 1
            wanted.append((_condition(pair, place), looks))
        return wanted

    def see(self, wanted: Iterable[tuple[Condition, int]]) -> None:
        """Measure shifts, each with as many looks."""
        by_looks = defaultdict(list)
        for condition, looks in wanted:
            by_looks[looks].append(condition)
        for looks, conditions in sorted(by_looks.items()):
            self.measure(conditions, looks)

    def surface(self, pair: Pair) -> Surface:
        """Return the accuracy of a pair over all levels, fitted to what it asked for."""
        seen = {
            place: self.counted(_condition(pair, place), looks) for place, looks in sorted(self.looks[pair].items())
        }
        return fit_surface(seen, (LEVELS, LEVELS))

    def route(self, pair: Pair, target: float, variant: Variant, together: int) -> Route:
        """Return the best path of a pair by what is known of it; it stays within what was looked at."""
        fitted = self.surface(pair)
        both = [place for place in self.looks[pair] if min(place) > 0]
        inside = np.zeros((LEVELS, LEVELS), dtype=bool)
        inside[: 1 + max((i for i, _ in both), default=LEVELS), : 1 + max((j for _, j in both), default=LEVELS)] = True
        inside[0, 0] = False  # no corruption at all
        path = _search(np.where(inside, fitted.accuracy, np.nan), target, variant, together)
        if path is None:
            raise RunError("No path leads from one corruption to the other.", fix="calibrate with other shifts")
        along = tuple(np.array(path).T)
        return Route(path, tuple(fitted.accuracy[along].tolist()), fitted.errors_along(path, together), together)


def find_routes(
    survey: Survey,
    pairs: Sequence[Pair],
    target: float,
    *,
    variant: Variant,
    together: int,
    precision: float,
    limit: float,
) -> dict[Pair, Route]:
    """Return the route of each pair, looked at closely wherever its accuracy is not known to within `precision`.

    That is the standard error over so many places `together` as the path is judged by. A pair with a stretch that is
    probably beyond the limit is not worth a closer look, and one that may be beyond it is worth one only there: most
    pairs end so.
    """
    for _ in range(AXIS_LOOKS):
        survey.see(want for pair in pairs for want in survey.look(pair, _axes()))
    survey.see(want for pair in pairs for want in survey.look(pair, _coarse_places(survey, pair, target)))
    found: dict[Pair, Route] = {}
    open_pairs = list(pairs)
    while open_pairs:
        found |= {pair: survey.route(pair, target, variant, together) for pair in open_pairs}
        unsure = {
            pair: [
                place
                for place in sorted(found[pair].unsure(target, limit, precision))
                if survey.looks[pair].get(place, 0) < len(survey.edges)
            ]
            for pair in open_pairs
        }
        open_pairs = [pair for pair, places in unsure.items() if places]
        survey.see(want for pair in open_pairs for want in survey.look(pair, unsure[pair]))
    return found


def _condition(pair: Pair, place: Place) -> Condition:
    return CLEAN if place == (0, 0) else Condition.of(shift_at(pair, place))


def _axes() -> list[Place]:
    """Return the places of the coarse grid at which one corruption is alone, and the one without any."""
    return [(0, 0), *((level, 0) for level in COARSE[1:]), *((0, level) for level in COARSE[1:])]


def _coarse_places(survey: Survey, pair: Pair, target: float) -> list[Place]:
    """Return the places of the coarse grid up to the first levels at which each corruption alone is past the target."""

    def reach(along: Callable[[int], Place]) -> list[int]:
        seen = {level: survey.counted(_condition(pair, along(level)), AXIS_LOOKS) for level in COARSE[1:]}
        past = [level for level, (right, images) in seen.items() if right / images < target - PAST_TARGET]
        return [level for level in COARSE[1:] if level <= min(past, default=COARSE[-1])]

    return [(i, j) for i in reach(lambda level: (level, 0)) for j in reach(lambda level: (0, level))]


def _search(accuracy: Values, target: float, variant: Variant, together: int) -> Path | None:
    if variant == "steady":
        return find_steady_path(accuracy, target, together)
    counts = np.where(np.isnan(accuracy), FORBIDDEN, np.rint(FINE * np.nan_to_num(accuracy))).astype(np.int64)
    return find_path(counts, FINE * target, variant)
