"""What is minimised: how well a model does on transformed images, from 0 to 1.

A fitness is a quotient of counts that add up over images (right answers over answers, say), so that a tuple can be
evaluated on some images first and on the others later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.errors import INTERRUPTIONS, ConfigurationError, DataError, ModelError
from shiftproof.models import Model, device_of, fingerprint
from shiftproof.models.identity import digest
from shiftproof.models.outputs import check_finite, device_logits
from shiftproof.searchers.service import Service
from shiftproof.shifts.levels import to_bytes

Counts: TypeAlias = NDArray[np.float64]
Subject: TypeAlias = "Model | Service"

METRICS: Mapping[str, str] = {
    "accuracy": "the share of images given their label",
    "pixel_accuracy": "the share of pixels given their label, over all images",
    "mean_iou": "intersection over union of each class over all images, averaged over the classes that occur",
    "detection_rate": "the share of images in which anything is detected",
}
"""Name -> what it measures."""

DETECTION_SCORE = 0.5
"""From this score on, a box of a detector that scores its boxes counts as found."""


class Fitness(ABC):
    """How well a model does on images; `whole` asks for all images of an evaluation in one call."""

    name: str
    whole: bool = False

    @abstractmethod
    def tally(self, images: Tensor, rows: slice) -> tuple[Counts, list[bool] | None]:
        """Return counts for images [n, C, H, W] in [0, 1], those at `rows` of the data, and which of them are right."""

    @abstractmethod
    def value(self, counts: Counts) -> float:
        """Return the fitness that counts, added up over images, stand for."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A text that changes with the model and with what it is measured against."""


class Classification(Fitness):
    """Accuracy of a model that gives every image a class."""

    name = "accuracy"

    def __init__(self, model: Subject, labels: Tensor) -> None:
        self.model, self.labels = model, labels.cpu()

    def tally(self, images: Tensor, rows: slice) -> tuple[Counts, list[bool] | None]:
        """Count right answers."""
        right = self.ask(images, rows)()
        return np.array([sum(right), len(right)], dtype=np.float64), right

    def ask(self, images: Tensor, rows: slice | list[int]) -> Callable[[], list[bool]]:
        """Ask which images are given their label, each by itself, so that they may be of several tuples.

        What is returned waits for the answer, so that a GPU can be asked more meanwhile.
        """
        labels = self.labels[rows].numpy()
        if isinstance(self.model, Service):
            given: list[bool] = (classes(self.model, images) == labels).tolist()
            return lambda: given
        scores = device_logits(self.model, images, wait=False)
        found = scores.argmax(1)

        def answer() -> list[bool]:
            check_finite(scores)
            right: list[bool] = (found.cpu().numpy() == labels).tolist()
            return right

        return answer

    def value(self, counts: Counts) -> float:
        """Return right answers over images."""
        return float(counts[0] / counts[1])

    @property
    def fingerprint(self) -> str:
        """The model and the labels."""
        return digest([self.name, identity(self.model), self.labels])


class Segmentation(Fitness):
    """Pixel accuracy or mean intersection over union of label maps [N, H, W]; pixels labelled `ignore` do not count."""

    def __init__(
        self, model: Subject, masks: Tensor, metric: Literal["pixel_accuracy", "mean_iou"], ignore: int | None = None
    ) -> None:
        self.model, self.masks, self.name, self.ignore = model, masks.cpu(), metric, ignore
        counted = masks if ignore is None else masks[masks != ignore]
        self.classes = int(counted.max()) + 1 if counted.numel() else 1

    def tally(self, images: Tensor, rows: slice) -> tuple[Counts, list[bool] | None]:
        """Count pixels by true and predicted class, with a last column for predictions of no known class."""
        predicted, truth = label_maps(self.model, images), self.masks[rows].numpy()
        if predicted.shape != truth.shape:
            raise ModelError(
                "The model's label maps have the wrong shape.",
                expected=f"{truth.shape}, or scores for each class [N, K, H, W]",
                got=str(predicted.shape),
            )
        counted = np.ones(truth.shape, bool) if self.ignore is None else truth != self.ignore
        known = np.where((predicted >= 0) & (predicted < self.classes), predicted, self.classes)
        places = truth[counted].astype(np.int64) * (self.classes + 1) + known[counted]
        size = self.classes * (self.classes + 1)
        return np.bincount(places, minlength=size).astype(np.float64), None

    def value(self, counts: Counts) -> float:
        """Return the metric of a confusion matrix."""
        matrix = counts.reshape(self.classes, self.classes + 1)
        right = np.diagonal(matrix)
        if self.name == "pixel_accuracy":
            return float(right.sum() / max(matrix.sum(), 1.0))
        union = matrix.sum(axis=1) + matrix[:, :-1].sum(axis=0) - right
        return float((right[union > 0] / union[union > 0]).mean()) if (union > 0).any() else 1.0

    @property
    def fingerprint(self) -> str:
        """The model, the masks and the metric."""
        return digest([self.name, identity(self.model), self.masks, self.ignore])


class Detection(Fitness):
    """Share of images in which a detector finds anything, where every image holds something to be found."""

    name = "detection_rate"

    def __init__(self, model: Subject) -> None:
        self.model = model

    def tally(self, images: Tensor, rows: slice) -> tuple[Counts, list[bool] | None]:
        """Count images with a detection."""
        found = [detected(answer) for answer in answers(self.model, images)]
        return np.array([sum(found), len(found)], dtype=np.float64), found

    def value(self, counts: Counts) -> float:
        """Return images with a detection over images."""
        return float(counts[0] / counts[1])

    @property
    def fingerprint(self) -> str:
        """The detector."""
        return digest([self.name, identity(self.model)])


class Scored(Fitness):
    """A function of one's own: images, uint8 [N, H, W, C], and their labels (or None) to a number or one per image."""

    whole = True

    def __init__(self, function: Callable[..., Any], labels: Tensor | None) -> None:
        self.function, self.labels = function, labels
        self.name = getattr(function, "__name__", type(function).__name__)

    def tally(self, images: Tensor, rows: slice) -> tuple[Counts, list[bool] | None]:
        """Add up the scores."""
        labels = None if self.labels is None else self.labels[rows].numpy()
        scores = np.asarray(self.function(to_array(images), labels), dtype=np.float64)
        if scores.shape not in ((), (len(images),)):
            raise ConfigurationError(
                f"The fitness {self.name!r} returns the wrong shape.",
                expected=f"one number, or one per image: {len(images)}",
                got=f"shape {scores.shape}",
            )
        return np.array([float(scores.mean()) * len(images), len(images)]), None

    def value(self, counts: Counts) -> float:
        """Return the mean score."""
        return float(counts[0] / counts[1])

    @property
    def fingerprint(self) -> str:
        """The function."""
        return digest([self.function, self.labels])


def make_fitness(
    fitness: str | Callable[..., Any] | Fitness,
    model: Subject | None,
    labels: Tensor | None,
    *,
    images: int,
    ignore: int | None = None,
) -> Fitness:
    """Return a fitness by the name of its metric, or one's own function; `labels` are classes [N] or maps [N, H, W]."""
    if isinstance(fitness, Fitness):
        return fitness
    if callable(fitness):
        return Scored(fitness, labels)
    if fitness not in METRICS:
        from shiftproof.registry import unknown

        raise unknown("fitness", fitness, METRICS)
    if model is None:
        raise ConfigurationError(f"The fitness {fitness!r} needs a model.")
    if fitness == "detection_rate":
        return Detection(model)
    dimensions = 1 if fitness == "accuracy" else 3
    if labels is None or labels.ndim != dimensions or len(labels) != images:
        wanted = "a class for each image, [N]" if dimensions == 1 else "a label map for each image, [N, H, W]: targets="
        raise DataError(
            f"The fitness {fitness!r} has nothing to compare with.",
            expected=f"{wanted}, for {images} images",
            got="no labels" if labels is None else f"labels of shape {tuple(labels.shape)}",
            fix="one sub-folder per class, or --labels with a CSV (columns file, label)"
            if dimensions == 1
            else "--targets gives the label maps",
        )
    if fitness == "accuracy":
        return Classification(model, labels)
    return Segmentation(model, labels, "pixel_accuracy" if fitness == "pixel_accuracy" else "mean_iou", ignore)


def to_array(images: Tensor) -> NDArray[np.uint8]:
    """Return images [n, C, H, W] in [0, 1] as the array [n, H, W, C] of uint8 that other programs take."""
    array: NDArray[np.uint8] = to_bytes(images).permute(0, 2, 3, 1).contiguous().cpu().numpy()
    return array


def answers(model: Subject, images: Tensor) -> Any:
    """Return what a model says of images, whatever that is."""
    if isinstance(model, Service):
        return model(to_array(images))
    try:
        with torch.no_grad():
            out = model(images.to(device_of(model)))
    except INTERRUPTIONS:
        raise
    except BaseException as error:
        raise ModelError(
            "The model failed on a batch of images.",
            got=f"{type(error).__name__} on shape {tuple(images.shape)}: {error}",
        ) from error
    return out["out"] if isinstance(out, Mapping) and "out" in out else out


def classes(model: Subject, images: Tensor) -> NDArray[np.int64]:
    """Return the class of each image, [n]: the label a service gives, or the largest score."""
    if not isinstance(model, Service):
        found: NDArray[np.int64] = device_logits(model, images).argmax(1).cpu().numpy()
        return found
    given = np.asarray(model(to_array(images)))
    if given.ndim == 2:
        return np.asarray(given.argmax(1), dtype=np.int64)
    if given.ndim != 1 or given.dtype.kind not in "iub":
        raise ModelError(
            f"The black box {model.name!r} does not answer with labels.",
            expected="a whole number for each image, or a row of scores",
            got=f"{given.dtype} of shape {given.shape}",
        )
    return given.astype(np.int64)


def label_maps(model: Subject, images: Tensor) -> NDArray[np.int64]:
    """Return the class of each pixel, [n, H, W]."""
    given = answers(model, images)
    maps = given.cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    return np.asarray(maps.argmax(1) if maps.ndim == 4 else maps, dtype=np.int64)


def detected(answer: Any) -> bool:
    """Whether a detector found anything: a truth value, a number, boxes, or boxes with scores of at least one half.

    Boxes that come in a mapping may have no scores: then each of them counts.
    """
    if isinstance(answer, Mapping):
        scores = answer.get("scores")
        if scores is None:
            return len(answer.get("boxes", ())) > 0
        return bool((np.asarray(scores) >= DETECTION_SCORE).any())
    if isinstance(answer, Sequence | np.ndarray | Tensor) and np.ndim(answer):
        return len(answer) > 0
    return bool(answer)


def identity(model: Subject) -> str:
    """Return the fingerprint of a model or a service."""
    return model.fingerprint if isinstance(model, Service) else fingerprint(model)
