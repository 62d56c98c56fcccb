"""Overlap of predicted and true label maps: pixel accuracy, intersection over union by class, its mean, and intervals.

Everything is made of counts by image and class, [N, 3, C]: pixels of the intersection, predicted pixels, labelled
pixels, all among pixels that have a label. They are summed over images first, so that a class that is rare in an image
weighs as much as its pixels.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shiftproof.measures.intervals import CONFIDENCE, MIN_IMAGES, Interval

Counts: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]

DRAWS = 1000
"""Resampled sets of images that an interval is made of."""
MIN_CLASS_IMAGES = 30
"""Fewer images that contain a class are too few for an interval of its intersection over union."""


def count_overlap(labels: Tensor, predicted: Tensor, classes: int, ignore: int) -> Counts:
    """Return the pixels of each image [N, 3, C]: right ones by class, predicted, labelled; maps are [N, H, W].

    >>> labels, predicted = torch.tensor([[[0, 1, 255]]]), torch.tensor([[[0, 0, 0]]])
    >>> count_overlap(labels, predicted, 2, 255).tolist()
    [[[1, 0], [2, 0], [1, 1]]]
    """
    images = torch.arange(len(labels), device=labels.device)[:, None, None] * classes
    counted = labels != ignore
    truth, guess = (images + maps.long() for maps in (labels, predicted))
    right = counted & (labels == predicted)
    size = len(labels) * classes
    parts = [torch.bincount(maps[where], minlength=size) for maps, where in _kinds(truth, guess, right, counted)]
    found: Counts = torch.stack(parts).view(3, len(labels), classes).transpose(0, 1).cpu().numpy()
    return found


def _kinds(truth: Tensor, guess: Tensor, right: Tensor, counted: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(truth, right), (guess, counted), (truth, counted)]


@dataclass(frozen=True, eq=False)
class Overlap:
    """How well label maps are predicted: counts [N, 3, C] by image and class, and the classes that their mean is over.

    `present` [C] says which classes count. They are those of the labels of the clean images, the same for every shift:
    a class that a shift brings into predictions must not change what is averaged. None: those of these labels.
    `Overlap.anything` is the rule of mmsegmentation's tables, the classes that occur in labels or predictions.

    >>> labels, predicted = torch.tensor([[[0, 0, 1, 1]]]), torch.tensor([[[0, 1, 1, 1]]])
    >>> found = Overlap(count_overlap(labels, predicted, 3, 255))
    >>> found.value, found.pixel_accuracy, found.classes
    (0.5833333333333333, 0.75, 2)
    """

    counts: Counts
    present: NDArray[np.bool_] | None = None

    @property
    def images(self) -> int:
        """How many images there are."""
        return len(self.counts)

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """Which classes the mean is over, [C]."""
        found: NDArray[np.bool_] = self.counts[:, 2].sum(0) > 0 if self.present is None else self.present
        return found

    @property
    def labels(self) -> list[int]:
        """The classes that the mean is over, by number."""
        found: list[int] = self.counted.nonzero()[0].tolist()
        return found

    @property
    def classes(self) -> int:
        """How many classes the mean is over."""
        return int(self.counted.sum())

    @cached_property
    def by_class(self) -> FloatArray:
        """Intersection over union of each class, [C]; NaN where it is neither labelled nor predicted."""
        return class_overlaps(self.counts.sum(0))

    @property
    def value(self) -> float:
        """The mean of intersection over union over the classes that count (mIoU)."""
        return float(mean_overlaps(self.counts.sum(0), self.counted))

    @property
    def anything(self) -> float:
        """The mean over all classes that are labelled or predicted, as mmsegmentation has it."""
        return float(mean_overlaps(self.counts.sum(0), np.ones(self.counts.shape[2], bool)))

    @property
    def pixel_accuracy(self) -> float:
        """The share of labelled pixels that are given their class."""
        return float(self.counts[:, 0].sum() / max(1, self.counts[:, 2].sum()))

    @property
    def per_image(self) -> FloatArray:
        """The mean intersection over union of each image over its own classes, [N] (mIoU^I)."""
        overlaps = class_overlaps(self.counts)
        own = (self.counts[:, 2] > 0) & self.counted
        return np.asarray(np.where(own, overlaps, 0.0).sum(1) / np.maximum(1, own.sum(1)))

    def containing(self, label: int) -> int:
        """Return how many images contain a class."""
        return int((self.counts[:, 2, label] > 0).sum())

    @cached_property
    def resampled(self) -> FloatArray:
        """Counts of sets of images drawn with replacement, [DRAWS, 3, C]; the same draws for every shift."""
        weights = draws(self.images)
        flat = self.counts.reshape(self.images, -1).astype(np.float64)
        sums: FloatArray = (weights @ flat).reshape(len(weights), *self.counts.shape[1:])
        return sums

    def interval(self, confidence: float = CONFIDENCE, among: float = 1) -> Interval | None:
        """Return the percentile interval of the mean over images drawn like these; None where they are too few."""
        if self.images < MIN_IMAGES:
            return None
        return percentiles(mean_overlaps(self.resampled, self.counted), self.images, self.value, confidence, among)

    def class_interval(self, label: int, confidence: float = CONFIDENCE, among: float = 1) -> Interval | None:
        """Return the interval of a class's intersection over union; None where too few images contain it."""
        if self.containing(label) < MIN_CLASS_IMAGES:
            return None
        drawn = class_overlaps(self.resampled)[:, label]
        return percentiles(drawn[~np.isnan(drawn)], self.images, float(self.by_class[label]), confidence, among)

    def loss(self, other: Overlap) -> tuple[float, Interval | None]:
        """Return how much higher this mean is than that of the same images under a shift, with its paired interval."""
        drawn = mean_overlaps(self.resampled, self.counted) - mean_overlaps(other.resampled, other.counted)
        lost = self.value - other.value
        few = self.images != other.images or self.images < MIN_IMAGES
        return lost, None if few else percentiles(drawn, self.images, lost)

    def influence(self) -> FloatArray:
        """Return what each image adds to the mean, [N], to first order: their mean is the mean over classes itself.

        The ratio of sums is linear near its value, so that the spread of these numbers is that of the mean over images
        drawn like these; two audits of the same images are compared by them.
        """
        used = self.counted & ~np.isnan(self.by_class)
        union = _union(self.counts).astype(np.float64)
        apart = self.counts[:, 0] - np.where(used, self.by_class, 0.0) * union
        shares = apart / np.maximum(1.0, union.sum(0)) * self.images
        return np.asarray(self.value + shares[:, used].mean(1))

    def pack(self) -> str:
        """Return the counts as a short text; `unpack` reads it."""
        return base64.b64encode(zlib.compress(self.counts.astype("<i4").tobytes())).decode()


def unpack(text: str, classes: int) -> Counts:
    """Return the counts of a text, [N, 3, C]."""
    found = np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i4")
    return found.astype(np.int64).reshape(-1, 3, classes)


def class_overlaps(counts: ArrayLike) -> FloatArray:
    """Return intersection over union by class, [..., C], of counts [..., 3, C]; NaN where there is no union."""
    table = np.asarray(counts, np.float64)
    union = _union(table)
    with np.errstate(invalid="ignore"):
        found: FloatArray = table[..., 0, :] / np.where(union > 0, union, np.nan)
    return found


def mean_overlaps(counts: ArrayLike, counted: NDArray[np.bool_]) -> FloatArray:
    """Return the mean over the classes that count, [...]; one without labels and predictions is left out of its mean.

    0 where no class is left.
    """
    overlaps = class_overlaps(counts)
    used = counted & ~np.isnan(overlaps)
    return np.asarray(np.where(used, overlaps, 0.0).sum(-1) / np.maximum(1, used.sum(-1)))


@lru_cache(maxsize=4)
def draws(images: int, seed: int = 0) -> FloatArray:
    """Return how often each image is in each resampled set, [DRAWS, N]: the same for the same number of images."""
    rng = np.random.default_rng([seed, images])
    return rng.multinomial(images, np.full(images, 1 / images), DRAWS).astype(np.float64)


def percentiles(
    drawn: FloatArray, images: int, value: float, confidence: float = CONFIDENCE, among: float = 1
) -> Interval:
    """Return the middle part of values over resampled sets of so many images, around the `value` of the images.

    Its tails are Student's, in normal units, and wider by the share that resampling loses (Hesterberg 2015, the
    expanded percentile interval): plain percentiles of 20 images hold 92.7% of the time. With `among` intervals to
    choose from it is stretched from the value, as resampled sets are too few for such tails.
    """
    from scipy.stats import norm, t

    tail = (1 - confidence) / 2
    reach = t.ppf(1 - tail, images - 1)
    expanded = norm.cdf(-np.sqrt(images / (images - 1)) * reach)
    low, high = np.quantile(drawn, [expanded, 1 - expanded])
    stretch = t.ppf(1 - tail / among, images - 1) / reach
    return Interval(float(value + stretch * min(0.0, low - value)), float(value + stretch * max(0.0, high - value)))


def _union(counts: NDArray[np.float64] | Counts) -> NDArray[np.float64] | Counts:
    return counts[..., 1, :] + counts[..., 2, :] - counts[..., 0, :]
