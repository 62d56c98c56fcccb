"""What the sections on segmentation measure: pixels by class, and how sure the model is of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.audits.sections.measuring import naming
from shiftproof.data.images.mask_values import IGNORE
from shiftproof.measures.overlap import Overlap, count_overlap, unpack
from shiftproof.models import Model
from shiftproof.runs import Json, Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

BINS = 15
"""Bins of confidence that the calibration error is over."""
Present: TypeAlias = NDArray[np.bool_]


def predicted_maps(
    subject: Subject, places: Sequence[int], shift: Shift | None, seed: int, model: Model | Any = None
) -> dict[str, Json]:
    """Return the counts of images at some places after a shift: pixels by class, and by confidence.

    Label maps move with content that moves. `model` answers in the place of the subject's.
    """
    counts, bins, ignored = [], np.zeros((3, BINS)), 0.0
    asked = subject.fast_model if model is None else model
    for batch in subject.data.subset(places).batches(subject.batch_size, device=subject.device):
        images, labels = shifted_batch(subject, batch, shift, seed)
        scores = subject.task.scores(asked, images)
        counts.append(count_overlap(labels, scores.argmax(1), scores.shape[1], IGNORE))
        bins += confidence_bins(labels, scores)
        ignored += float((labels == IGNORE).double().mean((1, 2)).sum())
    found = Overlap(np.concatenate(counts))
    return {
        "images": found.images,
        "classes": found.counts.shape[2],
        "overlap": found.pack(),
        "present": [] if subject.data.known_labels is None else subject.data.known_labels.tolist(),
        "confidence": bins.round(3).tolist(),
        "ignored": round(ignored / max(1, found.images), 6),
        "pixel_accuracy": round(found.pixel_accuracy, 6),
        "miou": round(found.value, 6),
    }


def shifted_batch(subject: Subject, batch: Any, shift: Shift | None, seed: int) -> tuple[Tensor, Tensor]:
    """Return the images and label maps of a batch after a shift."""
    if shift is None:
        return batch.inputs, batch.labels
    labels = subject.task.moved(shift, batch.labels, batch.keys, seed)
    return shift(batch.inputs, batch.keys, seed=seed), labels


def confidence_bins(labels: Tensor, scores: Tensor) -> NDArray[np.float64]:
    """Return labelled pixels by bin of confidence, [3, BINS]: how many, how many right, and the sum of confidences."""
    sure, predicted = scores.softmax(1).max(1)
    where = labels != IGNORE
    sure, right = sure[where], (predicted == labels)[where]
    place = (sure * BINS).long().clamp(max=BINS - 1)
    sums = [
        torch.bincount(place, weights=each.double(), minlength=BINS) for each in (torch.ones_like(sure), right, sure)
    ]
    found: NDArray[np.float64] = torch.stack(sums).cpu().numpy()
    return found


def overlap_of(rows: Sequence[Row], present: Present | None = None) -> Overlap | None:
    """Return what rows over different images come to; None where there is no image."""
    counts = [counts_of(row) for row in rows]
    return Overlap(np.concatenate(counts), present) if counts else None


def counts_of(row: Row) -> NDArray[np.int64]:
    """Return the counts of a row, [N, 3, C]."""
    return unpack(str(row["overlap"]), int(str(row["classes"])))


def present_of(row: Row) -> Present:
    """Return which classes the clean label maps of an audit contain, [C]: those that means are over."""
    present = np.zeros(int(str(row["classes"])), bool)
    present[cast("list[int]", row["present"])] = True
    return present


def part_of(row: Row, name: str) -> Row:
    """Return a row of counts that is a part of another."""
    return cast("Row", row[name])


def bins_of(rows: Sequence[Row]) -> NDArray[np.float64]:
    """Return labelled pixels by bin of confidence over rows, [3, BINS]."""
    return np.asarray(sum(np.asarray(cast("list[list[float]]", row["confidence"])) for row in rows))


def calibration_error(bins: NDArray[np.float64]) -> float:
    """Return the expected calibration error of pixels: |accuracy - confidence| over bins, weighted by their pixels."""
    return float(np.abs(bins[1] - bins[2]).sum() / max(1.0, bins[0].sum()))


def class_list(subject: Subject) -> list[str]:
    """Return the names of classes, in the order of the model's outputs."""
    name = naming(subject)
    return [name(place) for place in range(len(subject.data.classes))]
