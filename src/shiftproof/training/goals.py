"""What the best checkpoint is best by, and when there will be no better one.

Nothing here is what an audit measures by itself: the corruptions are the four kept for choosing hyper-parameters, the
chains are drawn at random, and the images are those of the validation set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from shiftproof.certificates.radius import radius
from shiftproof.data import ImageSet
from shiftproof.keyed import Keyed
from shiftproof.measures.intervals import lower_bound
from shiftproof.models import logits
from shiftproof.runs import Row
from shiftproof.searchers import make_space
from shiftproof.searchers.uniform import draw_tuples
from shiftproof.shifts import ImageShift, corruption, names
from shiftproof.shifts.levels import from_levels, to_bytes
from shiftproof.training.settings import GoalName

IMAGES = 500
"""Validation images that a goal looks at, at most, under every shift."""
SEVERITIES = (2.0, 4.0)
CHAINS, LENGTH = 16, 3
NOISES, CONFIDENCE_LEFT = 32, 0.05
SIGMA = 0.25
"""The noise of the goal `certified` where the recipe has none."""


class GoalScore:
    """The number that a checkpoint is chosen by: higher is better."""

    def __init__(self, name: GoalName, data: ImageSet, *, sigma: float, seed: int, batch_size: int) -> None:
        self.name, self.sigma, self.seed, self.batch_size = name, sigma or SIGMA, seed, batch_size
        self.data = data.take(IMAGES, seed=seed)

    def __call__(self, network: nn.Module) -> float:
        """Return the score of a network in evaluation mode."""
        if self.name == "certified":
            return self._radius(network)
        shares = [self._share(network, pixels) for pixels in self._pixels]
        return min(shares) if self.name == "worst_case" else sum(shares) / len(shares)

    @cached_property
    def _clean(self) -> tuple[Tensor, Tensor, Tensor]:
        """The images as bytes, their labels and their keys."""
        parts = [(to_bytes(batch.inputs), batch.labels, batch.keys) for batch in self.data.batches(256)]
        images, labels, keys = (torch.cat(some) for some in zip(*parts, strict=True))
        return images, labels, keys

    @cached_property
    def _pixels(self) -> list[Tensor]:
        """The images under every shift, as bytes: made once."""
        images, _, keys = self._clean
        if self.name == "accuracy":
            return [images]
        return [to_bytes(shift(from_levels(images), keys, seed=self.seed)) for shift in self._shifts()]

    def _shifts(self) -> list[ImageShift]:
        if self.name == "corruptions":
            return [corruption(name, severity) for name in names("holdout") for severity in SEVERITIES]
        space = make_space("cifar")
        drawn = draw_tuples(space, LENGTH, range(CHAINS), seed=self.seed, stream="train/goal")
        return [space.chain(genes) for genes in drawn]

    def _share(self, network: nn.Module, pixels: Tensor) -> float:
        _, labels, _ = self._clean
        said = [logits(network, from_levels(some)).argmax(1).cpu() for some in torch.split(pixels, self.batch_size)]
        return int((torch.cat(said) == labels).sum()) / len(labels)

    def _radius(self, network: nn.Module) -> float:
        """Return the mean certified radius by a few draws: a scale for checkpoints, not a certificate."""
        images, labels, keys = self._clean
        hits = torch.zeros(len(labels), dtype=torch.int64)
        for number in range(NOISES):
            for start in range(0, len(labels), self.batch_size):
                some = slice(start, start + self.batch_size)
                clean = from_levels(images[some])
                noise = (
                    Keyed(self.seed + number, keys[some]).fork("train/goal").normal(0.0, self.sigma, clean.shape[1:])
                )
                hits[some] += logits(network, clean + noise).argmax(1).cpu() == labels[some]
        return float(radius(lower_bound(hits.numpy(), NOISES, CONFIDENCE_LEFT), self.sigma).mean())


def best_step(log: Sequence[Row]) -> int | None:
    """Return the step with the highest goal of a log, the first of equals; None without any."""
    scored = _scored(log)
    return None if not scored else max(scored, key=lambda step: (scored[step], -step))


def stalled(log: Sequence[Row], patience: int | None) -> bool:
    """Whether so many checkpoints came after the best one.

    >>> rows = [{"step": step, "goal": value} for step, value in enumerate((0.1, 0.5, 0.4, 0.3), start=1)]
    >>> stalled(rows, 2), stalled(rows, 3), best_step(rows)
    (True, False, 2)
    """
    best = best_step(log)
    return patience is not None and best is not None and sum(step > best for step in _scored(log)) >= patience


def _scored(log: Sequence[Row]) -> Mapping[int, float]:
    return {int(str(row["step"])): float(str(row["goal"])) for row in log if "goal" in row}
