"""How much training fits into some minutes, and with which settings a short fine-tuning goes best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from shiftproof.data import ImageSet
from shiftproof.hardening.request import Request
from shiftproof.models.memory import BatchFitter
from shiftproof.runs import Json, Row
from shiftproof.training.feed import Feed
from shiftproof.training.rehearsal import TrainingPlan, step_seconds
from shiftproof.training.settings import TrainingSettings

EPOCHS = 30
"""The most passes over the images: more of a short fine-tuning only forgets."""
HORIZON = 0.1
"""The share of the steps that the average of the weights looks back over, in runs of 1,000 steps or more."""
LR, LR_ADAMW = 0.003, 1e-4
"""Learning rates of SGD for networks with batch normalisation, and of AdamW for others, which is not measured.

In a run of a hundred steps 0.01, with a shorter average, lost twelve points of clean accuracy; in 800 both did well.
"""
USED, MEASURED = 0.8, 0.95
"""The share of the minutes that steps may take, by a few that were tried, and by the first epoch; the rest is for
checkpoints, and for steps that take longer later."""


def epochs_in(minutes: float, spent: float, epoch: float, planned: int) -> int:
    """Return how many epochs of so many seconds fit where the first took `spent`: two, where more than one was planned.

    A few steps that were timed while other runs began took twice as long as later. The first epoch tells better, and
    its learning rate hardly depends on the number that was planned; but it has to fall in the end.

    >>> epochs_in(10.0, 270.0, 250.0, 1), epochs_in(10.0, 270.0, 50.0, 1), epochs_in(1.0, 270.0, 250.0, 6)
    (2, 7, 2)
    """
    more = int(max(0.0, MEASURED * 60 * minutes - spent) / epoch)
    return min(EPOCHS, max(1 + more, min(planned, 2)))


@dataclass(frozen=True)
class Fitted:
    """How long a network is trained: passes over so many images, None for all, at a learning rate, with an average.

    `seconds` is what a step took when it was tried.
    """

    epochs: int
    images: int | None
    optimizer: str
    lr: float
    ema: float
    batch_size: int
    seconds: float

    def plan(self, images: int) -> TrainingPlan:
        """Return the forecast of training on that many images, or on those that fit."""
        steps = self.epochs * self.steps_per_epoch(images)
        return TrainingPlan(steps, self.batch_size, self.epochs, steps * self.seconds)

    def steps_per_epoch(self, images: int) -> int:
        """Return how many steps a pass takes over that many images, or over those that fit."""
        return min(self.images or images, images) // self.batch_size

    def settings(self, seed: int) -> dict[str, Any]:
        """Return the settings of the loop."""
        used = {name: value for name, value in asdict(self).items() if name not in ("images", "seconds")}
        return {**used, "schedule": "cosine", "weight_decay": 5e-4, "seed": seed, "log_every": 20}

    def to_row(self) -> dict[str, Json]:
        """Return it as JSON-compatible values."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Return it from a row."""
        images = row["images"]
        numbers: Mapping[str, float] = {name: float(str(row[name])) for name in ("lr", "ema", "seconds")}
        whole = {name: int(str(row[name])) for name in ("epochs", "batch_size")}
        taken = None if images is None else int(str(images))
        return cls(images=taken, optimizer=str(row["optimizer"]), **numbers, **whole)  # type: ignore[arg-type]


def fit(network: nn.Module, data: ImageSet, request: Request, augment: str, device: torch.device) -> Fitted:
    """Time a few steps, and return how many epochs fit; where less than one does, of how many images.

    Where a step takes more memory than there is, batches are smaller.
    """
    recipe = request.recipe_on(augment)

    def timed(size: int) -> tuple[Feed, float]:
        feed = Feed(data, recipe, TrainingSettings(epochs=1, batch_size=size, seed=request.seed), device=device)
        return feed, step_seconds(network, feed, sigma=recipe.sigma(None))

    feed, seconds = BatchFitter(min(request.batch_size, len(data)))(timed)
    size, epochs, images = feed.batch, request.epochs, None
    if epochs is None:
        steps = int(USED * 60 * request.minutes / seconds)
        epochs = min(EPOCHS, steps // feed.steps_per_epoch)
        if epochs == 0:
            epochs, images = 1, max(2 * size, steps * size)
    steps = max(1, epochs * (len(data) if images is None else min(images, len(data))) // size)
    normalised = any(isinstance(layer, _BatchNorm) for layer in network.modules())
    lr = request.lr or (LR if normalised else LR_ADAMW)
    ema = round(min(0.999, max(0.99, 1.0 - 1.0 / (HORIZON * steps))), 5)
    return Fitted(epochs, images, "sgd" if normalised else "adamw", lr, ema, size, seconds)
