"""ROID: weighted likelihood ratios, source weight averaging and prior correction (Marsden et al. 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.adapters import losses
from shiftproof.adapters.method import Method, Options, Parts, Step
from shiftproof.adapters.parts import norm_affine, optimizer
from shiftproof.keyed import Keyed

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter


def _roid(o: Options) -> Parts:
    def certain_and_diverse(step: Step, adapter: Adapter) -> None:
        """Weigh images by certainty and by distance from the mean prediction; drop the less diverse half."""
        p = step.probabilities
        mean = step.memory.get("mean_prediction")
        if mean is None:
            mean = torch.full_like(p[0], 1 / step.classes)
        diverse = _unit_range(1 - F.cosine_similarity(mean[None], p, dim=1))
        certain = _unit_range(-step.entropy.detach())
        step.weights = torch.exp(diverse * certain / o.temperature)
        step.keep(diverse >= diverse.mean())
        step.memory["mean_prediction"] = 0.9 * mean + 0.1 * p.mean(0)

    def loss(step: Step) -> Tensor:
        return losses.clipped_likelihood_ratio(step.logits[step.kept])

    def consistency(step: Step, adapter: Adapter) -> Tensor:
        if not o.consistency:
            return step.logits.new_zeros(())
        views = _augmented(step.images[step.kept], adapter.steps)
        each = losses.symmetric_cross_entropy(adapter.run(views), step.logits[step.kept])
        return (each * step.weights[step.kept]).sum() / len(step.images)

    def average(step: Step, adapter: Adapter) -> None:
        with torch.no_grad():
            for name, parameter in adapter.trained.items():
                parameter.lerp_(adapter.start(name), 1 - o.keep_weights)

    def corrected(step: Step, adapter: Adapter) -> Tensor:
        prior = step.probabilities.mean(0)
        smooth = max(1 / len(step.images), 1 / step.classes) / prior.max()
        return step.logits * ((prior + smooth) / (1 + smooth * step.classes))

    return Parts(
        trains=norm_affine,
        keep=(certain_and_diverse,),
        loss=loss,
        weigh=lambda step: step.weights[step.kept],
        divide_by=lambda step: len(step.images),
        regularise=consistency,
        optimizer=optimizer(o),
        after=(average,),
        answer=corrected if o.prior_correction else None,
    )


def _augmented(images: Tensor, step: int) -> Tensor:
    """Return the images flipped at random and with changed contrast and brightness, in [0, 1]."""
    rng = Keyed(step, torch.arange(len(images)), device=images.device).fork("roid")
    flip = rng.uniform() < 0.5
    images = torch.where(flip[:, None, None, None], images.flip(3), images)
    contrast, brightness = (rng.uniform(0.6, 1.4).view(-1, 1, 1, 1).to(images.dtype) for _ in range(2))
    mean = images.mean((1, 2, 3), keepdim=True)
    return ((images - mean) * contrast + mean * brightness).clamp(0, 1)


def _unit_range(values: Tensor) -> Tensor:
    """Scale values to [0, 1]; equal ones become 0."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low).clamp_min(torch.finfo(values.dtype).tiny)


ROID = Method(
    name="roid",
    paper="Marsden et al. 2024",
    parts=_roid,
    defaults={
        "optimizer": "sgd",
        "lr": 2.5e-4,
        "momentum": 0.9,
        "temperature": 1 / 3,
        "keep_weights": 0.99,
        "consistency": True,
        "prior_correction": True,
    },
    presets={"cifar": {"optimizer": "adam", "lr": 1e-3}},
    departures="the consistency view is a flip with changed contrast and brightness; the sum is divided by the images "
    "of this batch, not by a fixed batch size",
)
