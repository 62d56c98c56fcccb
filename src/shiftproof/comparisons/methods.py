"""Methods of adaptation side by side: each on the same images, shifted or as they are, from a fresh start."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any, cast

import numpy as np

from shiftproof.adapters import Counts, Method, with_source
from shiftproof.audits.auditing import CHECKS
from shiftproof.audits.sections.advice import diagnoses
from shiftproof.audits.sections.measuring import naming, preset_for
from shiftproof.audits.sections.scores_by_task import Score
from shiftproof.audits.sections.segmentation.map_measuring import overlap_of, present_of
from shiftproof.comparisons.adapted_images import AS_THEY_ARE, AdaptedImages, Serving, source_of
from shiftproof.comparisons.adapted_maps import AnsweredMaps
from shiftproof.comparisons.prediction_table import PREDICTIONS, Answers, Asked, write_predictions
from shiftproof.data import DataLike, as_images
from shiftproof.errors import ConfigurationError
from shiftproof.estimators import Estimate
from shiftproof.measures import Accuracy
from shiftproof.measures.intervals import Interval, difference_interval
from shiftproof.measures.overlap import Overlap
from shiftproof.models import ModelLike
from shiftproof.prediction_tasks import CLASSES, LABEL_MAPS
from shiftproof.registry import unknown
from shiftproof.runs import (
    Executor,
    Json,
    OnProgress,
    Plan,
    Result,
    Row,
    Store,
    choose_executor,
    drive,
    write_atomically,
)
from shiftproof.runs.files import expand
from shiftproof.shifts import Shift, as_shift
from shiftproof.subjects import Subject

ADAPTED: Mapping[str, type[AdaptedImages]] = {CLASSES.name: AdaptedImages, LABEL_MAPS.name: AnsweredMaps}
"""What labels ask of a model -> the task that lets a method answer."""
BATCH_SIZES = {CLASSES.name: 64, LABEL_MAPS.name: 8}
"""Images per batch where nothing else is said: a map has the statistics of all its pixels."""
TIMED_BATCHES = 3
"""Batches after the first, which warms up, that the time of a method is told of at least."""


@dataclass(frozen=True)
class MethodComparison:
    """Accuracy, cost and counts of each method under each shift, and why some methods do not apply.

    `accuracies` needs labels. `agreements` is the share of images on which a method predicts the same class as the
    source model, and `estimates` is the accuracy of the adapted model, estimated without labels. Predictions per image
    are in the file `predictions`. For segmentation, `measure` is mIoU, results are in `overlaps`, and there are no
    accuracies, agreements, estimates or predictions.

    Args:
        folder: The run directory.
        shifts: The shifts, by label.
        methods: The methods, the source model first.
        accuracies: Accuracy by (method, shift); empty without labels.
        agreements: Share of images with the source model's prediction, by (method, shift).
        estimates: Accuracy estimated without labels, by (method, shift).
        costs: Time per batch relative to the source model, by method; empty with fewer than four batches to time.
        reasons: Why a method does not apply, by method.
        counts: Batches, updates and resets, by (method, shift).
        images: Number of images, by (method, shift).
        preset: The preset that all methods used.
        measure: accuracy, or mIoU for label maps.
        overlaps: mIoU by (method, shift), for label maps.
        gain_intervals: 95% interval of the gain over the source model on images like these, by method; they hold
            for all methods together.
    """

    folder: Path
    shifts: tuple[str, ...]
    methods: tuple[str, ...]
    accuracies: Mapping[tuple[str, str], Accuracy]
    agreements: Mapping[tuple[str, str], float]
    estimates: Mapping[tuple[str, str], Estimate]
    costs: Mapping[str, float]
    reasons: Mapping[str, str]
    counts: Mapping[tuple[str, str], Counts]
    images: Mapping[tuple[str, str], int]
    preset: str
    measure: str = CLASSES.measure
    overlaps: Mapping[tuple[str, str], Overlap] = field(default_factory=dict)
    gain_intervals: Mapping[str, Interval] = field(default_factory=dict)

    @property
    def predictions(self) -> Path:
        """Path of the CSV with one row per image and shift: name, label, and the prediction of each method."""
        return self.folder / PREDICTIONS

    @property
    def scores(self) -> Mapping[tuple[str, str], Score]:
        """The accuracies, or the mIoUs of label maps; empty without labels."""
        return self.accuracies or self.overlaps

    def total(self, method: str) -> Counts:
        """Return batches, updates and resets of a method over all shifts."""
        return Counts(*map(sum, zip(*(each for (name, _), each in self.counts.items() if name == method), strict=True)))

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats on methods that hardly updated, and on estimates."""
        said = diagnoses({name: self.total(name) for name in self.methods if name not in self.reasons})
        for (name, shift), found in self.estimates.items():
            said += [f"{name} {shift}, estimate: {warning}" for warning in found.warnings]
        return tuple(said)

    def gain(self, method: str) -> float | None:
        """Return the mean gain in accuracy over the source model, over the shifts; None if the method did not run."""
        gains = [
            self.scores[method, shift].value - self.scores["source", shift].value
            for shift in self.shifts
            if (method, shift) in self.scores and ("source", shift) in self.scores
        ]
        return sum(gains) / len(gains) if gains else None

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one row per method and shift that was measured."""
        name = self.measure.lower()
        return [
            {
                "method": method,
                "shift": shift,
                **({name: self.scores[method, shift].value} if (method, shift) in self.scores else {}),
                **({"agreement": self.agreements[method, shift]} if (method, shift) in self.agreements else {}),
                **({"estimate": self.estimates[method, shift].to_row()} if (method, shift) in self.estimates else {}),
                "images": self.images[method, shift],
                **counts._asdict(),
            }
            for (method, shift), counts in self.counts.items()
        ]


def compare_methods(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    shifts: Sequence[str | Shift] = (),
    methods: Sequence[str | Method] = ("bn", "tent", "rdumb"),
    source: DataLike | None = None,
    preset: str | None = None,
    options: Mapping[str, object] | None = None,
    images: int | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: int | None = None,
    out: str | Path = "shiftproof-methods",
    executor: str | Executor = "inline",
    on_progress: OnProgress | None = None,
) -> MethodComparison:
    """Compare test-time adaptation methods on shifted images. Writes methods.json and predictions.csv.

    Without `shifts`, methods adapt to the images unchanged: your own shifted data, labelled or not. Every method is
    reset for every shift, and the source model is always included. Without labels, the result has the agreement of each
    method with the source model and, given a labelled `source`, the estimated accuracy before and after adaptation.

    Args:
        model: Anything `load_model` accepts.
        data: Anything `load_data` accepts.
        shifts: Shifts such as fog@3, contrast=0.8, 'fog@3 + jpeg_compression@2'; in Python also `Shift` objects.
            Default: the images unchanged.
        methods: Test-time adaptation methods to compare; `shiftproof list adapters` names them.
        source: Labelled images like those the model was trained on, used to estimate accuracy without labels. Default:
            no estimate.
        preset: Default settings of methods: imagenet, imagenet_vit, cifar, cifar100 or cifar_vit. Default: chosen by
            the number of classes and the normalisation layers.
        options: Options of methods, applied to each method that has them, such as prior=16; in Python also {"prior":
            16}.
        images: Number of inputs to use, drawn in proportion to the classes. Default: all.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Images per batch. Default: 64; with label maps 8.
        out: Run directory; the same call resumes it.
        executor: inline, processes, processes:4, ray or ray:16. Does not affect the numbers.
        on_progress: Called as on_progress(done, total, result).

    >>> found = compare_methods("demo", "demo", shifts=["contrast@5"], methods=["bn"], images=64, out=folder)
    >>> found.gain("bn") > 0.1
    True
    """
    tried = with_source(methods)  # what is wrong with one is told now
    names = tuple(each.name for each in tried)
    given = read_method_options(tried, options or {})
    made: dict[str, Shift | None] = {**_labelled([as_shift(shift) for shift in shifts])} or {AS_THEY_ARE: None}
    folder = expand(out)
    subject = Subject.of(
        model, data, images=images, seed=seed, device=device, batch_size=batch_size, tasks=tuple(ADAPTED)
    )
    batch_size = batch_size or BATCH_SIZES[subject.task.name]
    subject = subject.at_batch_size(batch_size)
    where = choose_executor(executor, device=subject.device)
    if subject.data.labels is not None:
        CHECKS[subject.task.name](subject)
    if source is not None and subject.task.per_pixel:
        raise ConfigurationError(
            "Not available for segmentation: source.",
            expected="data with label maps, by which methods are compared",
            fix="shiftproof estimate estimates the mIoU of the unadapted model without labels",
        )
    estimated_by = "" if source is None else source_of(subject, source).fingerprint
    count = len(subject.data)
    fixed = preset or preset_for(subject)
    tasks = tuple(
        ADAPTED[subject.task.name](method, count, seed, batch_size, fixed, shift, given, estimated_by)
        for shift in made.values()
        for method in tried
    )
    plan = Plan(tasks, subject.fingerprints)
    with Store(folder, subject.identity) as store:
        subject.check_answers(store)
        results = drive(plan, store, partial(Serving, subject, source), executor=where, on_progress=on_progress)
    comparison = _compared(folder, tuple(made), names, results, fixed, subject.task.measure)
    about = {"fingerprints": plan.fingerprints, "preset": fixed, "options": given}
    gains = {
        name: {"gain": comparison.gain(name), **each._asdict()} for name, each in comparison.gain_intervals.items()
    }
    found = {"notes": comparison.notes, "gains": gains, "rows": comparison.to_rows()}
    write_atomically(folder / "methods.json", json.dumps({**about, **found}, indent=1) + "\n")
    if not subject.task.per_pixel:
        _write_predictions(comparison, subject, results)
    return comparison


def read_method_options(methods: Sequence[Method], options: Mapping[str, object]) -> dict[str, Json]:
    """Return options, which may be texts, as the methods that have them read them; refuse those that none has.

    `variant` is one where the released code of a method differs from its paper.
    """
    known = {name: each for each in methods for name in each.defaults.to_dict()}
    released = next((each for each in methods if each.release), None)
    known |= {} if released is None else {"variant": released}
    for name in options:
        if name not in known:
            raise unknown("option of these methods", name, known)
    return {name: _read_option(known[name], name, value) for name, value in options.items()}


def _read_option(method: Method, name: str, value: object) -> Json:
    if name == "variant":
        method.options(None, str(value), {})  # refuses all but paper and release
        return str(value)
    read: Json = getattr(method.defaults.changed({name: value}, method.name), name)
    return read


def _labelled(shifts: Sequence[Shift]) -> dict[str, Shift]:
    """Return shifts by the labels that tables have; refuse different ones of one label."""
    made: dict[str, Shift] = {}
    for shift in shifts:
        if made.setdefault(shift.label, shift).content_digest() != shift.content_digest():
            raise ConfigurationError(
                "Two shifts have the same label.",
                expected="a different label for each shift",
                got=f"{shift.label} twice, for different shifts",
                fix="compare them in two calls, or let `label` say what is different",
            )
    return made


def _write_predictions(comparison: MethodComparison, subject: Subject, results: Sequence[Result]) -> None:
    rows = {
        (result.task.method.name, result.task.label): result.row
        for result in results
        if isinstance(result.task, AdaptedImages) and result.row is not None and result.row.get("applies", True)
    }
    unread = {file for row in rows.values() for file in cast("list[str]", row["unread"])}
    data = as_images(subject.labelled_data)
    names, labels = data.names, None if data.labels is None else data.labels.tolist()
    places = [place for place in subject.places.tolist() if names[place] not in unread]
    nothing: Row = {"predicted": [None] * len(places), "confidence": [None] * len(places)}
    write_predictions(
        comparison.predictions,
        naming(subject),
        [
            Asked(position, names[place], shift, None if labels is None else labels[place])
            for shift in comparison.shifts
            for position, place in enumerate(places)
        ],
        {
            name: Answers(
                _joined(rows, name, "predicted", comparison.shifts, nothing),
                cast("list[float | None]", _joined(rows, name, "confidence", comparison.shifts, nothing)),
            )
            for name in comparison.methods
            if name not in comparison.reasons
        },
    )


def _joined(
    rows: Mapping[tuple[str, str], Row], method: str, part: str, shifts: Sequence[str], nothing: Row
) -> list[int | None]:
    found = (cast("list[int | None]", rows.get((method, shift), nothing)[part]) for shift in shifts)
    return [value for some in found for value in some]


def _estimate(row: Row) -> Estimate:
    """Return an estimate that was stored as a row."""
    accuracy, low, high = (cast(float, row[part]) for part in ("accuracy", "low", "high"))
    warnings = tuple(cast("list[str]", row["warnings"]))
    error = cast("float | None", row["error"])
    return Estimate(accuracy, low, high, str(row["method"]), cast(int, row["inputs"]), error, warnings)


def _gain_intervals(rows: Mapping[tuple[str, str], Row], methods: Sequence[str]) -> dict[str, Interval]:
    """Return intervals of the mean gain over images, each image with its mean over the shifts that both met."""
    hits = {place: np.asarray(row.get("hits", ()), float) for place, row in rows.items()}
    found: dict[str, Interval] = {}
    for name in methods:
        shifts = [shift for own, shift in hits if own == name and ("source", shift) in hits]
        before, after = ([hits[each, shift] for shift in shifts] for each in ("source", name))
        if name != "source" and shifts and len({len(each) for each in (*before, *after)}) == 1:
            told = difference_interval(np.mean(before, 0), np.mean(after, 0), among=len(methods) - 1)
            found |= {} if told is None else {name: told}
    return found


def _compared(
    folder: Path,
    shifts: tuple[str, ...],
    methods: tuple[str, ...],
    results: Sequence[Result],
    preset: str,
    measure: str,
) -> MethodComparison:
    rows: dict[tuple[str, str], Row] = {}
    reasons: dict[str, str] = {}
    for result in results:
        if isinstance(result.task, AdaptedImages):
            row = result.row or {"applies": False, "reason": (result.error or "").strip().splitlines()[-1]}
            if row.get("applies", True):
                rows[result.task.method.name, result.task.label] = row
            else:
                reasons[result.task.method.name] = str(row["reason"])
    images = {place: cast(int, row["images"]) for place, row in rows.items()}
    answers = {place: cast("list[int]", row["predicted"]) for place, row in rows.items() if "predicted" in row}
    spent: dict[str, list[float]] = {name: [] for name in methods}
    for (name, _), row in rows.items():
        spent[name].append(cast(float, row["milliseconds"]))
    timed = min((cast(int, row["batches"]) - 1 for row in rows.values()), default=0)
    means = {name: sum(times) / len(times) for name, times in spent.items() if times}
    return MethodComparison(
        folder=folder,
        shifts=shifts,
        methods=methods,
        accuracies={
            place: Accuracy(cast(int, row["right"]), images[place])
            for place, row in rows.items()
            if row.get("right") is not None
        },
        agreements={
            (name, shift): sum(map(eq, own, answers["source", shift])) / len(own)
            for (name, shift), own in answers.items()
            if ("source", shift) in answers
        },
        estimates={place: _estimate(cast(Row, row["estimate"])) for place, row in rows.items() if "estimate" in row},
        costs={name: mean / means["source"] for name, mean in means.items()}
        if "source" in means and timed >= TIMED_BATCHES
        else {},
        reasons=reasons,
        counts={place: Counts(*(cast(int, row[part]) for part in Counts._fields)) for place, row in rows.items()},
        images=images,
        preset=preset,
        measure=measure,
        overlaps={
            place: found
            for place, row in rows.items()
            if "overlap" in row and (found := overlap_of([row], present_of(row))) is not None
        },
        gain_intervals=_gain_intervals(rows, methods),
    )
