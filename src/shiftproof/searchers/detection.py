"""How well a detector does: the share of the objects in images that it finds, at their places and of their classes.

Boxes are corners in pixels, x0, y0, x1, y1. They stay where they are, so spaces that move the content do not suit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shiftproof.errors import DataError, ModelError
from shiftproof.models.identity import digest
from shiftproof.searchers.fitness import DETECTION_SCORE, Counts, Fitness, Subject, answers, identity


class DetectionRecall(Fitness):
    """Detection recall: share of objects matched by a box of their class with an IoU of at least `iou`.

    A detector returns a mapping per image with `boxes` [n, 4] and, optionally, `labels` [n] and `scores` [n]; boxes
    with a score below 0.5 are ignored. Each box matches at most one object, in the order of scores. Without labels,
    only positions are compared.

    Args:
        model: The detector.
        targets: For each image, `boxes` [n, 4] and `labels` [n].
        iou: Smallest intersection over union of a match.

    >>> import torch
    >>> from shiftproof.searchers import Service
    >>> face = {"boxes": [[0, 0, 4, 4]], "labels": [1]}
    >>> recall = DetectionRecall(Service(lambda images: [face] * len(images)), [face, face])
    >>> recall.value(recall.tally(torch.zeros(2, 3, 8, 8), slice(0, 2))[0])
    1.0
    """

    name = "detection_recall"

    def __init__(self, model: Subject, targets: Sequence[Mapping[str, Any]], *, iou: float = 0.5) -> None:
        self.model, self.iou = model, iou
        self.boxes = [_array(each["boxes"]).reshape(-1, 4) for each in targets]
        self.labels = [np.asarray(_array(each["labels"]), np.int64) for each in targets]
        if any(len(boxes) != len(labels) for boxes, labels in zip(self.boxes, self.labels, strict=True)):
            raise DataError("Every box needs a label.", expected="as many labels as boxes for each image")

    def tally(self, images: Tensor, rows: slice) -> tuple[Counts, list[bool] | None]:
        """Count objects that are found, and objects; an image is right where all of its own are."""
        given = list(answers(self.model, images))
        if len(given) != len(images) or not all(isinstance(each, Mapping) and "boxes" in each for each in given):
            raise ModelError("The model does not return boxes.", expected="a mapping with boxes for each image")
        counts = [
            (matched(answer, boxes, labels, self.iou), len(boxes))
            for answer, boxes, labels in zip(given, self.boxes[rows], self.labels[rows], strict=True)
        ]
        return np.sum(counts, axis=0, dtype=np.float64), [found == there for found, there in counts]

    def value(self, counts: Counts) -> float:
        """Return objects that are found over objects; 1 where there are none."""
        return float(counts[0] / counts[1]) if counts[1] else 1.0

    @property
    def fingerprint(self) -> str:
        """The detector and the objects."""
        return digest([self.name, identity(self.model), self.boxes, self.labels, self.iou])


def matched(answer: Mapping[str, Any], boxes: NDArray[np.float64], labels: NDArray[np.int64], iou: float) -> int:
    """Return how many objects a detector found in an image."""
    found = _array(answer["boxes"]).reshape(-1, 4)
    scores = np.ones(len(found)) if answer.get("scores") is None else _array(answer["scores"])
    named = None if answer.get("labels") is None else _array(answer["labels"])
    overlap = overlaps(found, boxes)
    free = np.ones(len(boxes), bool)
    for place in np.argsort(-scores, kind="stable"):
        fits = free & (overlap[place] >= iou) & (True if named is None else labels == named[place])
        if scores[place] >= DETECTION_SCORE and fits.any():
            free[int(np.argmax(np.where(fits, overlap[place], -1.0)))] = False
    return int((~free).sum())


def overlaps(some: ArrayLike, others: ArrayLike) -> NDArray[np.float64]:
    """Return the intersection over union of boxes [n, 4] and [m, 4], [n, m].

    >>> overlaps([[0, 0, 2, 2]], [[1, 0, 3, 2], [5, 5, 6, 6]]).round(3).tolist()
    [[0.333, 0.0]]
    """
    first, second = (np.asarray(each, np.float64).reshape(-1, 4) for each in (some, others))
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.clip(high - low, 0.0, None).prod(2)
    areas = [np.clip(each[:, 2:] - each[:, :2], 0.0, None).prod(1) for each in (first, second)]
    union = areas[0][:, None] + areas[1][None, :] - shared
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0))


def _array(values: Any) -> NDArray[np.float64]:
    return np.asarray(values.cpu() if isinstance(values, Tensor) else values, np.float64)
