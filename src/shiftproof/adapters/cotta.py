"""CoTTA: learn from a slow teacher's answers to many views, and forget at random (Wang et al. 2022)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from torch import Tensor

from shiftproof.adapters import losses, views
from shiftproof.adapters.method import Method, Parts
from shiftproof.adapters.method_options import Augmentation, GradientOptions, KeepWeights, Views
from shiftproof.adapters.norms import PartStatistics
from shiftproof.adapters.parts import all_parameters, optimizer
from shiftproof.adapters.pixel_rows import averaged_maps
from shiftproof.adapters.teacher import follow, predict, teacher
from shiftproof.options import NotNegative, Share

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

BUSY = 2**23
"""Numbers in the images of one pass over several views, which are 42 views of 64 images of CIFAR, or one of ImageNet's.

A CPU is busy with one view, and its caches hold no more."""


class CottaOptions(GradientOptions):
    """Options of CoTTA."""

    nesterov: Annotated[bool, "Whether the momentum of SGD is Nesterov's."] = True
    keep_weights: KeepWeights = 0.999
    restore: Annotated[Share, "The share of weights that go back to the start after every batch, at random."] = 0.001
    confidence: Annotated[NotNegative, "Under this mean confidence of the start, many views are averaged."] = 0.1
    views: Views = 32
    augment: Augmentation = "jitter"
    average: Annotated[Literal["probabilities", "logits"], "What is averaged over views."] = "probabilities"

    def check(self) -> None:
        """Nesterov's momentum has to be one."""
        self.require(self.momentum > 0 or not self.nesterov, "a momentum above 0, or nesterov=False")


def _cotta(o: CottaOptions) -> Parts:
    augment = views.parse(o.augment)

    def learn(adapter: Adapter, images: Tensor) -> Tensor:
        known = teacher(adapter)
        with torch.no_grad():
            first = adapter.anchor(images)
            sure = first.softmax(1).amax(1).mean() >= o.confidence
            many = averaged if len(first) == len(images) else averaged_maps
            target = adapter.run(images, known) if sure else many(adapter, images, known)
        adapter.update(losses.cross_entropy(adapter.run(images), target).mean())
        follow(adapter, known, o.keep_weights)
        restore(adapter, o.restore)
        return target

    def averaged(adapter: Adapter, images: Tensor, known: dict[str, Tensor]) -> Tensor:
        """Return the logits of the mean answer to many views."""
        at_once, answers = together(images), []
        for first in range(0, o.views, at_once):
            numbers = range(first, min(first + at_once, o.views))
            with adapter.normalising(PartStatistics(len(numbers))):
                answers.append(adapter.run(views.several(augment, images, adapter, numbers), known))
        stacked = torch.cat(answers).view(o.views, len(images), -1)
        if o.average == "logits":
            return stacked.mean(0)
        return stacked.log_softmax(2).logsumexp(0) - math.log(o.views)

    return Parts(trains=all_parameters, learn=learn, predict=predict, optimizer=optimizer(o, nesterov=o.nesterov))


def together(images: Tensor) -> int:
    """Return how many views of a batch go through the network at once: on a GPU, as many as keep it busy."""
    return max(1, BUSY // images.numel()) if images.is_cuda else 1


def restore(adapter: Adapter, share: float) -> None:
    """Put a random share of every trained parameter's elements back to the start."""
    with torch.no_grad():
        sizes = [parameter.numel() for parameter in adapter.trained.values()]
        chosen = adapter.rng("restore", 1).uniform(shape=(sum(sizes),))[0] < share
        for (name, parameter), part in zip(adapter.trained.items(), torch.split(chosen, sizes), strict=True):
            parameter.copy_(torch.where(part.view_as(parameter), adapter.starts[name], parameter))


COTTA = Method(
    name="cotta",
    paper="Wang et al. 2022",
    parts=_cotta,
    needs_norm_layers=False,
    min_batch=2,
    defaults=CottaOptions(lr=0.01),
    presets={
        "cifar": {"optimizer": "adam", "lr": 1e-3, "restore": 0.01, "confidence": 0.92},
        "cifar100": {"confidence": 0.72},
    },
    release={"average": "logits"},
    passes=(34, 1),
    per_pixel=True,
    departures="the released code averages the views' logits (variant='release'); views have no change of hue and no "
    "blur; Press et al. 2023 restore 1 % on ImageNet (restore=0.01)",
)
