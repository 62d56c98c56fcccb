"""What a step is to answer: labels, softened, weighted by class, and mixed where images are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from scipy.stats import beta
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.training import losses
from shiftproof.training.settings import TrainingSettings


@dataclass(frozen=True, eq=False)
class Targets:
    """The labels of a batch, [N]; of mixed images also the others' and the share of their own; and how both count.

    `weights` are those of the classes, [K]; `smoothing` is the share of the target that all classes have alike.
    """

    labels: Tensor
    others: Tensor | None = None
    share: float = 1.0
    weights: Tensor | None = None
    smoothing: float = 0.0

    def cross_entropy(self, logits: Tensor, *, averaged: bool = True) -> Tensor:
        """Return the cross-entropy of every image, [..., N, K] -> [N], or [..., N] if it is not `averaged`."""
        own = self._of(logits, self.labels, averaged)
        if self.others is None:
            return own
        return self.share * own + (1.0 - self.share) * self._of(logits, self.others, averaged)

    def missed(self, answers: Tensor) -> Tensor:
        """Return which answers [N] are none of their labels: of a mixed image either is right."""
        wrong = answers != self.labels
        return wrong if self.others is None else wrong & (answers != self.others)

    def part(self, some: slice) -> Targets:
        """Return the targets of a part of the batch."""
        return replace(self, labels=self.labels[some], others=None if self.others is None else self.others[some])

    def _of(self, logits: Tensor, labels: Tensor, averaged: bool) -> Tensor:
        loss = losses.cross_entropy(logits, labels, smoothing=self.smoothing, averaged=averaged)
        return loss if self.weights is None else loss * self.weights[labels]


def class_weights(labels: Tensor, classes: int) -> Tensor:
    """Return weights that are inverse to how often a class occurs, 1 on average over images, [K]; 1 for those absent.

    >>> class_weights(torch.tensor([0, 0, 0, 1]), 3).tolist()
    [0.6666666865348816, 2.0, 1.0]
    """
    counts = torch.bincount(labels, minlength=classes)
    present = counts > 0
    made = len(labels) / (int(present.sum()) * counts.clamp_min(1).float())
    return torch.where(present, made, torch.ones_like(made))


def mixed(views: Tensor, targets: Targets, settings: TrainingSettings, step: int) -> tuple[Tensor, Targets]:
    """Mix every image of views [V, N, C, H, W] with its neighbour in the batch, by one share for the step.

    mixup (Zhang et al. 2018) averages images; cutmix (Yun et al. 2019) puts a rectangle of the one into the other.
    """
    if settings.mix == "none":
        return views, targets
    rng = Keyed(settings.seed, [step]).fork("train/mix")
    number, right, down = rng.uniform(shape=(3,))[0].tolist()
    share = float(beta.ppf(max(number, 1e-6), settings.mix_alpha, settings.mix_alpha))
    others = views.roll(1, dims=1)
    if settings.mix == "mixup":
        made = torch.lerp(others, views, share)
    else:
        height, width = views.shape[3:]
        tall, wide = (round(side * math.sqrt(1.0 - share)) for side in (height, width))
        top, left = round(down * (height - tall)), round(right * (width - wide))
        made = views.clone()
        box = (..., slice(top, top + tall), slice(left, left + wide))
        made[box] = others[box]
        share = 1.0 - tall * wide / (height * width)
    return made, replace(targets, others=targets.labels.roll(1), share=share)
