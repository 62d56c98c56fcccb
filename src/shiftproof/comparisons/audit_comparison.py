"""Two or more audits of the same images beside each other: what got better, what got worse, and how sure that is."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from shiftproof.audits.audit_record import AuditRecord, understood
from shiftproof.audits.numbers import find
from shiftproof.audits.sections import section
from shiftproof.audits.sections.base import PerImage
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.measures.intervals import CONFIDENCE, Interval, difference_interval, student_interval
from shiftproof.runs import AnyTask, Json, Store, write_atomically

OUT = "shiftproof-compare"
ROUNDING = 1e-9
"""No more than this is a residue of summing in floating point: one image of a million adds a thousand times as much."""

Verdict: TypeAlias = Literal["better", "worse", "changed", "equal", "unclear", "no interval"]


@dataclass(frozen=True)
class Difference:
    """A number of two audits, and the interval of other - one where it is a mean over images that both measured.

    `same` says that no image differs: then there is an interval all the same, of images that are not among these.
    """

    name: str
    section: str
    better: Literal["higher", "lower"] | None
    one: float
    other: float
    low: float | None = None
    high: float | None = None
    same: bool = False

    @property
    def value(self) -> float:
        """By how much the other is higher."""
        return self.other - self.one

    @property
    def verdict(self) -> Verdict:
        """What can be said: better or worse where the interval excludes zero and one way is known to be better."""
        if self.same:
            return "equal"
        if self.low is None or self.high is None:
            return "equal" if abs(self.value) <= ROUNDING else "no interval"
        if self.low <= ROUNDING and self.high >= -ROUNDING:
            return "unclear"
        if self.better is None:
            return "changed"
        return "better" if (self.value > 0) == (self.better == "higher") else "worse"

    def to_row(self) -> dict[str, Json]:
        """Return the difference as JSON values."""
        return {**asdict(self), "difference": self.value, "verdict": self.verdict}


@dataclass(frozen=True)
class Side:
    """One of the audits: what to call it, its model, and its numbers on the cells that all have."""

    label: str
    folder: Path
    model: str
    record: AuditRecord


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison: the differences of every audit from the baseline.

    Args:
        folder: Folder of the report.
        labels: The names of the runs, the baseline first.
        models: The model audited in each run.
        data: The data set that all runs share.
        images: The number of images that all runs share.
        differences: Differences from the baseline, by run.
        notes: Caveats on the results.
    """

    folder: Path
    labels: tuple[str, ...]
    models: tuple[str, ...]
    data: str
    images: int
    differences: Mapping[str, tuple[Difference, ...]]
    notes: tuple[str, ...]

    @property
    def report(self) -> Path:
        """Path of the HTML report."""
        return self.folder / "report.html"

    def with_verdict(self, label: str, verdict: Verdict) -> tuple[Difference, ...]:
        """Return the differences from the baseline that have this verdict."""
        return tuple(one for one in self.differences[label] if one.verdict == verdict)

    def to_row(self) -> dict[str, Json]:
        """Return the comparison as JSON-compatible values."""
        return {
            "runs": list(self.labels),
            "models": list(self.models),
            "data": self.data,
            "images": self.images,
            "confidence": CONFIDENCE,
            "differences": {label: [one.to_row() for one in found] for label, found in self.differences.items()},
            "notes": list(self.notes),
        }


def compare(*runs: str | Path, out: str | Path = OUT, command: str | None = None) -> Comparison:
    """Compare audits of the same images: what got better or worse, with intervals. Writes report.html.

    Only tasks that all audits measured are compared, so audits with different shifts or sections are compared on what
    they share. Means over images get a confidence interval of the paired difference; the intervals of a family, such as
    `accuracy.*`, hold simultaneously.

    Args:
        runs: Run directories of audits; the first is the baseline.
        out: Folder for the report and comparison.json.
        command: The command line that the report shows.

    >>> import shiftproof
    >>> small = {"images": 20, "shifts": ["contrast"], "sections": ["clean", "corruptions"]}
    >>> for model in ("demo", "cifar10-gaussian"):
    ...     result = shiftproof.audit(model, "demo", out=folder / model, **small)
    >>> found = compare(folder / "demo", folder / "cifar10-gaussian", out=folder / "comparison")
    >>> found.labels, found.images
    (('demo', 'cifar10-gaussian'), 20)
    """
    if len(runs) < 2:
        raise ConfigurationError(
            "A comparison needs two audits.", expected="two run directories or more", got=f"{len(runs)}"
        )
    sides = [_read(label, Path(run)) for label, run in zip(_labels(runs), runs, strict=True)]
    for side in sides[1:]:
        _check_same_images(sides[0], side)
    shared = _shared(sides)
    numbers = [_numbers(side, shared) for side in sides]
    per_image = [_per_image(side, shared) for side in sides]
    differences = {
        side.label: _differences(numbers[0], numbers[place], per_image[0], per_image[place], sides[0])
        for place, side in enumerate(sides[1:], start=1)
    }
    found = Comparison(
        folder=Path(out),
        labels=tuple(side.label for side in sides),
        models=tuple(side.model for side in sides),
        data=sides[0].record.about["data"],
        images=sides[0].record.scope.images,
        differences=differences,
        notes=_notes(sides, shared),
    )
    _write(found, command or f"shiftproof.compare({', '.join(repr(str(run)) for run in runs)})")
    return found


def _read(label: str, folder: Path) -> Side:
    with Store(folder) as store, understood(folder):
        record = AuditRecord.of(store)
        return Side(label, folder, record.about["model"], record)


def _labels(runs: Sequence[str | Path]) -> list[str]:
    """Return short names for run directories: their own names where those differ, else as they were given."""
    names = [Path(run).absolute().name for run in runs]
    if len(set(names)) == len(names):
        return names
    given = [str(run) for run in runs]
    return given if len(set(given)) == len(given) else [f"{name} ({place})" for place, name in enumerate(given, 1)]


def _check_same_images(one: Side, other: Side) -> None:
    """Refuse audits of other data, or of other images of the same data: no pair of them could be compared."""
    data, sample = ([side.record.about["fingerprints"][kind] for side in (one, other)] for kind in ("data", "sample"))
    if data[0] != data[1]:
        raise DataError(
            f"The audits {one.label!r} and {other.label!r} are of different data.",
            expected=f"{one.record.about['data']!r}, with fingerprint {data[0]}",
            got=f"{other.record.about['data']!r}, with fingerprint {data[1]}",
            fix="audit both models on the same data",
        )
    if sample[0] != sample[1]:
        images = [side.record.scope.images for side in (one, other)]
        raise DataError(
            f"The audits {one.label!r} and {other.label!r} are of different images of the same data.",
            expected=f"{images[0]:,} images, seed {one.record.scope.settings.seed}",
            got=f"{images[1]:,} images, seed {other.record.scope.settings.seed}",
            fix=f"audit both with --images {min(images)} and the same --seed",
        )


def _shared(sides: Sequence[Side]) -> dict[str, set[AnyTask]]:
    """Return the tasks of each section that every audit has measured."""
    found: dict[str, set[AnyTask]] = {}
    for name in sides[0].record.scope.settings.sections:
        measured = [
            {result.task for result in side.record.results.get(name, ()) if result.row is not None} for side in sides
        ]
        if common := set.intersection(*measured):
            found[name] = common
    if not found:
        raise ConfigurationError(
            "The audits have nothing in common.",
            expected="the same sections, shifts and severities, at least some of them",
            got="; ".join(f"{side.label}: {', '.join(side.record.results)}" for side in sides),
        )
    return found


def _numbers(side: Side, shared: Mapping[str, set[AnyTask]]) -> dict[str, tuple[str, float]]:
    """Return the numbers of an audit on the shared cells, with the section of each."""
    return {
        number: (name, value)
        for name, cells in shared.items()
        for number, value in section(name, task=side.record.scope.task)
        .view([result for result in side.record.results[name] if result.task in cells])
        .numbers.items()
    }


def _per_image(side: Side, shared: Mapping[str, set[AnyTask]]) -> dict[str, PerImage]:
    """Return what each image adds to numbers of an audit, on the shared cells."""
    found: dict[str, PerImage] = {}
    for name, cells in shared.items():
        results = [result for result in side.record.results[name] if result.task in cells]
        found |= section(name, task=side.record.scope.task).per_image(results)
    return found


def _differences(
    one: Mapping[str, tuple[str, float]],
    other: Mapping[str, tuple[str, float]],
    per_image: Mapping[str, PerImage],
    other_per_image: Mapping[str, PerImage],
    side: Side,
) -> tuple[Difference, ...]:
    """Return the difference of every number that both have, with its interval where it has one."""
    sections = [section(name, task=side.record.scope.task) for name in side.record.results]
    known = {name: number for name in one if (number := find(name, sections)) is not None}
    family = Counter(known[name][1].name for name in per_image if name in known)
    made = []
    for name, (owner, value) in one.items():
        if name not in other or not (math.isfinite(value) and math.isfinite(other[name][1])):
            continue
        before, after = per_image.get(name), other_per_image.get(name)
        better = known[name][1].better if name in known else None
        interval, same = None, False
        if before is not None and after is not None and len(before.values) == len(after.values):
            interval = _interval(before, after, among=family[known[name][1].name] if name in known else 1)
            same = bool(np.abs(after.values - before.values).max() <= ROUNDING)
        low, high = interval or (None, None)
        made.append(Difference(name, owner, better, value, other[name][1], low, high, same))
    return tuple(made)


def _interval(one: PerImage, other: PerImage, among: int) -> Interval | None:
    """Return the interval of a paired difference, which is one of so many that are looked at together."""
    if not one.limited:
        return student_interval(other.values - one.values, among=among)
    return difference_interval(one.values, other.values, other.low - one.high, other.high - one.low, among=among)


def _notes(sides: Sequence[Side], shared: Mapping[str, set[AnyTask]]) -> tuple[str, ...]:
    """Say what was left out, and what else differs."""
    notes = []
    for side in sides:
        lacking = {
            name: len(left)
            for name, results in side.record.results.items()
            if (left := {result.task for result in results} - shared.get(name, set()))
        }
        if lacking:
            told = ", ".join(f"{count} of {name}" for name, count in lacking.items())
            notes.append(f"{side.label}: cells that not all audits measured are left out ({told}).")
    versions = {side.record.about["fingerprints"]["version"] for side in sides}
    if len(versions) > 1:
        notes.append(f"The audits were made by different versions: {', '.join(sorted(versions))}.")
    return tuple(notes)


def _write(found: Comparison, command: str) -> None:
    from shiftproof.comparisons.audit_views import masthead, views
    from shiftproof.comparisons.side_by_side import side_by_side
    from shiftproof.reports import html

    write_atomically(found.folder / "comparison.json", json.dumps(found.to_row(), indent=1) + "\n")
    together = (side_by_side(found),) if len(found.labels) > 2 else ()
    html.write(found.report, masthead(found, command), (*together, *views(found)))
