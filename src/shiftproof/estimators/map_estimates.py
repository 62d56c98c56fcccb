"""`estimate` for label maps: the mIoU to expect without labels, from calibrated confidence and from shifted copies.

A pixel of predicted class k is right with its calibrated probability of k, which gives expected counts and so an
expected mIoU. Confidence does not know what it has never seen: a line through copies of labelled images under shifts of
known families corrects it, and families that are left out in turn tell how far off either is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.data import DataLike, Dataset, as_images, load_images
from shiftproof.data.images.mask_values import IGNORE
from shiftproof.data.images.maskset import MaskSet
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.estimators import families
from shiftproof.estimators.confidence import few
from shiftproof.estimators.fitting import CalibrationPlan
from shiftproof.estimators.results import Estimate
from shiftproof.measures.conformal import grouped_quantile, largest_level
from shiftproof.measures.estimation import fit_temperature
from shiftproof.measures.overlap import count_overlap, draws, mean_overlaps
from shiftproof.models import Model, ModelLike
from shiftproof.prediction_tasks import LABEL_MAPS, PredictionTask, present_classes
from shiftproof.runs import Json, OnProgress, Plan, Row, Store, Task, drive
from shiftproof.shifts import ImageShift, Shift
from shiftproof.subjects import Subject

PIXELS = 500
"""Pixels of an image that the temperature is fitted to."""
COPY_IMAGES = 48
"""Labelled images of each copy, and as many others that the temperature is fitted on, at most."""
MARGIN = 0.02
"""How far outside of those of all copies an expected mIoU may lie before the images are said to be unlike them."""
MEASURES = ("mIoU", "pixel accuracy")
EXPECTED, LINE = "expected_overlap", "line"
"""The methods: expected counts as they are, and corrected by a line through copies."""

Counts = NDArray[np.float64]


def expected_counts(scores: Tensor, known: Tensor) -> Counts:
    """Return expected counts [3, C] by the softmax of calibrated scores [N, C, H, W]: right, predicted, labelled.

    `known` are the pixels that count, [N, H, W]. A pixel of predicted class k is right with its probability of k, and
    is labelled k with it: the same ratio of sums as for labels gives the expected mIoU.
    """
    shares = scores.softmax(1).movedim(1, -1)[known]
    sure, predicted = shares.max(1)
    classes = scores.shape[1]
    right = torch.bincount(predicted, weights=sure.double(), minlength=classes)
    given = torch.bincount(predicted, minlength=classes).double()
    found: Counts = torch.stack([right, given, shares.double().sum(0)]).cpu().numpy()
    return found


def pixel_temperature(model: Model, data: MaskSet, *, batch_size: int, device: str, seed: int) -> float:
    """Return the temperature that fits some labelled pixels of every image."""
    logits, labels = [], []
    draw = torch.Generator().manual_seed(seed)
    for batch in data.batches(batch_size, device=device):
        scores = LABEL_MAPS.scores(model, batch.inputs).cpu()
        for one, truth in zip(
            scores.movedim(1, -1).flatten(1, 2), cast(Tensor, batch.labels).cpu().flatten(1), strict=True
        ):
            places = (truth != IGNORE).nonzero()[:, 0]
            chosen = places[torch.randperm(len(places), generator=draw)[:PIXELS]]
            logits.append(one[chosen])
            labels.append(truth[chosen].long())
    return float(fit_temperature(torch.cat(logits).numpy(), torch.cat(labels).numpy()))


@dataclass(frozen=True)
class MapCopy(Task["MapObserver"]):
    """Labelled images under a shift or none: what is expected of them, and what is true."""

    kind = "estimate.map_copies"
    shift: Shift | None
    seed: int

    def measure(self, subject: MapObserver) -> Row:
        """Return expected and true mIoU and pixel accuracy."""
        return subject.copied(self.shift, self.seed)


@dataclass(frozen=True)
class MapTarget(Task["MapObserver"]):
    """Images without labels, by their fingerprint."""

    kind = "estimate.map_target"
    data: str
    level: float
    seed: int

    def measure(self, subject: MapObserver) -> Row:
        """Return what is expected of them, and between what it lies over resampled images."""
        return subject.expected(self.level)


class MapObserver:
    """A worker over a segmenter, labelled images of which one half calibrates the other, and images without labels."""

    def __init__(self, subject: Subject, target: Dataset, seed: int) -> None:
        self.subject, self.target = subject, target
        labelled = subject.data
        if not isinstance(labelled, MaskSet) or len(labelled) < 2:
            raise DataError("The source is too small.", expected="two labelled images or more", got=f"{len(labelled)}")
        half = len(labelled) // 2
        self.copies, self.present = labelled.subset(range(half, len(labelled))), present_classes(labelled)
        self.temperature = pixel_temperature(
            subject.fast_model,
            labelled.subset(range(half)),
            batch_size=subject.batch_size,
            device=subject.device,
            seed=seed,
        )

    @property
    def task(self) -> PredictionTask:
        """What the labels ask."""
        return self.subject.task

    def measure(self, task: MapCopy | MapTarget) -> Row:
        """Let a task measure."""
        return task.measure(self)

    def copied(self, shift: Shift | None, seed: int) -> Row:
        """Return expected and true values of the copies under a shift."""
        soft, hard = np.zeros((3, len(self.present))), np.zeros((3, len(self.present)))
        for batch in self.copies.batches(self.subject.batch_size, device=self.subject.device):
            images, labels = batch.inputs, cast(Tensor, batch.labels)
            if shift is not None:
                labels = self.task.moved(shift, labels, batch.keys, seed)
                images = shift(images, batch.keys, seed=seed)
            scores = self.task.scores(self.subject.fast_model, images)
            soft += self._expected(scores)
            hard += count_overlap(labels, scores.argmax(1), scores.shape[1], IGNORE).sum(0)
        return {"expected": self._values(soft), "true": self._values(hard)}

    def expected(self, level: float) -> Row:
        """Return expected values of the unlabelled images, and their limits over resampled images."""
        parts = [
            self._expected(self.task.scores(self.subject.fast_model, image[None]))
            for batch in self.target.batches(self.subject.batch_size, device=self.subject.device)
            for image in batch.inputs
        ]
        counts = np.stack(parts)
        drawn = (draws(len(counts)) @ counts.reshape(len(counts), -1)).reshape(-1, *counts.shape[1:])
        values = np.stack([mean_overlaps(drawn, self.present), drawn[:, 0].sum(1) / drawn[:, 1].sum(1)], 1)
        tails = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return {"expected": self._values(counts.sum(0)), "limits": tails.tolist(), "images": len(counts)}

    def _expected(self, scores: Tensor) -> Counts:
        everywhere = torch.ones_like(scores[:, 0], dtype=torch.bool)
        return expected_counts(scores / self.temperature, everywhere)

    def _values(self, counts: Counts) -> Json:
        return [float(mean_overlaps(counts, self.present)), float(counts[0].sum() / max(1.0, counts[2].sum()))]


def estimate_maps(
    model: ModelLike,
    data: DataLike,
    source: DataLike,
    *,
    shifts: Sequence[Shift] | None = None,
    level: float,
    images: int | None,
    seed: int,
    device: str,
    batch_size: int | None,
    out: Path | None,
    on_progress: OnProgress | None,
    on_plan: Callable[[CalibrationPlan], None] | None = None,
) -> Estimate:
    """Return the mIoU to expect of a segmenter on images without label maps, from labelled images of the same kind."""
    subject = Subject.of(
        model,
        source,
        images=2 * COPY_IMAGES,
        seed=seed,
        device=device,
        batch_size=batch_size,
        tasks=(LABEL_MAPS.name,),
    )
    target = as_images(load_images(data)).take(images, seed=seed)
    wanted, got = as_images(subject.data).shape, target.shape
    if wanted[0] != got[0]:
        raise DataError(
            "The images and the source have different numbers of channels.", expected=str(wanted[0]), got=str(got[0])
        )
    chosen = tuple(shifts) if shifts is not None else map_shifts(subject.data)
    if on_plan is not None:
        groups = {families.family_of(shift) for shift in chosen}
        copies = len(subject.data) - len(subject.data) // 2
        on_plan(CalibrationPlan(1 + len(chosen), len(groups), (1 + len(chosen)) * copies + len(target)))
    tasks = (*(MapCopy(shift, seed) for shift in (None, *chosen)), MapTarget(target.fingerprint, level, seed))
    with ExitStack() as stack:
        folder = out if out is not None else Path(stack.enter_context(TemporaryDirectory()))
        store = stack.enter_context(Store(folder, subject.identity))
        subject.check_answers(store)
        results = drive(
            Plan(tasks, subject.fingerprints),
            store,
            lambda: MapObserver(subject, target, seed),
            on_progress=on_progress,
            essential="Estimating",
        )
    rows = {result.task: cast(Row, result.row) for result in results}
    return _concluded(
        {shift: rows[MapCopy(shift, seed)] for shift in (None, *chosen)}, rows[tasks[-1]], level, len(target)
    )


def check_map_options(method: str, *others: object) -> None:
    """Refuse options of `estimate` that say nothing of label maps."""
    names = ("other", "neighborhood", "sets", "calibration", "temperature")
    given = [name for name, value in zip(names, others, strict=True) if value is not None and value != ()]
    given += [] if method == "auto" else ["method"]
    if given:
        raise ConfigurationError(
            f"Not available for segmentation: {', '.join(given)}.",
            expected="shifts, level, images, seed",
            fix=f"leave them out: {EXPECTED} and {LINE} are both reported, the better one on unseen families first",
        )


def map_shifts(source: Dataset) -> tuple[Shift, ...]:
    """Return the shifts that label maps are calibrated on: those of which it is known what they do to labels."""
    return tuple(each for each in families.shifts_of(source) if isinstance(each, ImageShift) and each.moves is not None)


def _concluded(copies: Mapping[Shift | None, Row], target: Row, level: float, images: int) -> Estimate:
    """Return the method that is nearer on families it has not seen, with the other and pixel accuracy beside it."""
    shifted = [shift for shift in copies if shift is not None]
    groups = [families.family_of(shift) for shift in shifted]
    expected, true = (
        np.array([cast("list[float]", copies[shift][name]) for shift in (None, *shifted)])
        for name in ("expected", "true")
    )
    made: list[Estimate] = []
    for place, measure in enumerate(MEASURES):
        x, y = expected[:, place], true[:, place]
        now = cast("list[float]", target["expected"])[place]
        low, high = (cast("list[list[float]]", target["limits"])[end][place] for end in (0, 1))
        found = [_estimated(method, x, y, groups, (low, now, high), level, images) for method in (EXPECTED, LINE)]
        made += [replace(one, measure=measure) for one in sorted(found, key=lambda one: one.error or 0.0)]
    first, *others = made
    return replace(first, others=tuple(others))


def _estimated(
    method: str,
    expected: Counts,
    true: Counts,
    groups: Sequence[str],
    now: tuple[float, float, float],
    level: float,
    images: int,
) -> Estimate:
    """Return what a method says; the first of the copies has no shift and is in every calibration."""

    def read(through: NDArray[np.bool_], values: Counts) -> Counts:
        if method == EXPECTED:
            return values
        rows = np.stack([expected[through], np.ones(int(through.sum()))], 1)
        slope, level_ = np.linalg.lstsq(rows, true[through], rcond=None)[0]
        return np.asarray(np.clip(slope * values + level_, 0, 1))

    everything = np.ones(len(expected), bool)
    left_out = np.array(
        [
            read(np.array([True, *(other != group for other in groups)]), expected[place : place + 1])[0]
            for place, group in enumerate(groups, 1)
        ]
    )
    off = np.abs(left_out - true[1:])
    by_group = [float(off[[other == group for other in groups]].mean()) for group in dict.fromkeys(groups)]
    wide = grouped_quantile(off, list(groups), level) if len(groups) else 0.0
    low, value, high = read(everything, np.array(now))
    warnings = few(images, "inputs")
    if not np.isfinite(wide):
        most = 100 * largest_level(len(by_group))
        warnings += (f"The families calibrated on support no interval at {100 * level:.0f}%: at most {most:.0f}%.",)
    if not expected.min() - MARGIN <= now[1] <= expected.max() + MARGIN:
        warnings += ("The inputs are unlike every shifted copy of the source in their expected overlap.",)
    return Estimate(
        accuracy=float(value),
        low=float(np.clip(min(low, high) - wide, 0, value)),
        high=float(np.clip(max(low, high) + wide, value, 1)),
        method=method,
        inputs=images,
        error=float(np.mean(by_group)) if by_group else None,
        warnings=warnings,
        level=level,
    )
