"""ROID: weighted likelihood ratios, source weight averaging and prior correction (Marsden et al. 2024).

CMF is ROID with a Kalman filter in place of the average with the source weights (Lee & Chang 2024).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.adapters import losses, views
from shiftproof.adapters.method import Method, Parts, Step
from shiftproof.adapters.method_options import Augmentation, GradientOptions, KeepWeights, Temperature
from shiftproof.adapters.parts import norm_affine, optimizer
from shiftproof.options import NotNegative, Share

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter


class RoidOptions(GradientOptions):
    """Options of ROID."""

    temperature: Temperature = 1 / 3
    keep_weights: KeepWeights = 0.99
    consistency: Annotated[bool, "Whether views of the images are to be answered alike."] = True
    prior_correction: Annotated[bool, "Whether answers are scaled by how often the batch has each class."] = True
    augment: Augmentation = "jitter"


def _roid(o: RoidOptions) -> Parts:
    augment = views.parse(o.augment)

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
        seen = views.view(augment, step.images[step.kept], adapter)
        each = losses.symmetric_cross_entropy(adapter.run(seen), step.logits[step.kept])
        return (each * step.weights[step.kept]).sum() / len(step.images)

    def average(step: Step, adapter: Adapter) -> None:
        with torch.no_grad():
            for name, parameter in adapter.trained.items():
                parameter.lerp_(adapter.starts[name], 1 - o.keep_weights)

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


class CmfOptions(RoidOptions):
    """Options of CMF."""

    keep_hidden: Annotated[Share, "How much of the hidden weights a step keeps; the rest is the source's."] = 0.99
    noise: Annotated[NotNegative, "The variance by which the hidden weights drift in a step."] = 0.005


def _cmf(o: CmfOptions) -> Parts:
    def filtered(step: Step, adapter: Adapter) -> None:
        """Take the weights for a noisy look at hidden ones, which drift back to the source; estimate and mix these."""
        variance = o.keep_hidden**2 * step.memory.get("hidden_variance", step.logits.new_zeros(())) + o.noise
        gain = variance / (variance + 1 - o.noise)
        with torch.no_grad():
            for name, parameter in adapter.trained.items():
                start = adapter.starts[name]
                hidden = torch.lerp(start, step.memory.get(f"hidden/{name}", start), o.keep_hidden)
                hidden = torch.lerp(hidden, parameter.detach(), gain.to(parameter.dtype))
                step.memory[f"hidden/{name}"] = hidden
                parameter.lerp_(hidden, 1 - o.keep_weights)
        step.memory["hidden_variance"] = ((1 - gain) * variance).detach()

    return replace(_roid(o), after=(filtered,))


def _unit_range(values: Tensor) -> Tensor:
    """Scale values to [0, 1]; equal ones become 0."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low).clamp_min(torch.finfo(values.dtype).tiny)


ROID = Method(
    name="roid",
    paper="Marsden et al. 2024",
    parts=_roid,
    min_batch=2,
    defaults=RoidOptions(),
    presets={"cifar": {"optimizer": "adam", "lr": 1e-3}},
    passes=(2, 2),
    departures="the consistency view has no change of hue and no blur; the sum is divided by the images of this batch, "
    "not by a fixed batch size",
)
CMF = Method(
    name="cmf",
    paper="Lee & Chang 2024",
    parts=_cmf,
    min_batch=2,
    defaults=CmfOptions(),
    presets=ROID.presets,
    passes=ROID.passes,
    departures=f"loss and answer are those of roid; one variance for all weights, which starts at 0; {ROID.departures}",
)
