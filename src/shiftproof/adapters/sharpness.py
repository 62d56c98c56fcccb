"""SAR: entropy minimisation at sharpness-aware steps, with recovery (Niu et al. 2023)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from torch import Tensor, nn

from shiftproof.adapters.method import Method, Parts
from shiftproof.adapters.method_options import EntropyMargin, GradientOptions
from shiftproof.adapters.parts import norm_affine, optimizer
from shiftproof.adapters.uncertainty import MEASURES, Uncertainty
from shiftproof.options import NotNegative, Words

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter


FIRST_UPDATES = 10
"""Updates whose mean entropy is what the model had at its start."""
COLLAPSED_SHARE = 1 / 4
"""A model that is surer than the published threshold from its start has collapsed below this share of it."""


def smallest_loss(classes: int) -> float:
    """Return the mean entropy under which a model counts as collapsed: the published 0.2 of ln 1000, of ln C."""
    return 0.2 * math.log(classes) / math.log(1000)


class SarOptions(GradientOptions):
    """Options of SAR."""

    uncertainty: Uncertainty = "entropy"
    entropy_margin: EntropyMargin = 0.4
    rho: Annotated[NotNegative, "How far the parameters climb before the step is taken."] = 0.05
    recover_below: Annotated[
        float | Literal["auto"],
        Words("a number, or auto: by the number of classes"),
        "The running mean entropy under which the model counts as collapsed and goes back.",
    ] = "auto"
    reset_optimizer: Annotated[bool, "Whether the momentum is forgotten with what was learnt."] = True


def _sar(o: SarOptions) -> Parts:
    measure = MEASURES[o.uncertainty]

    def learn(adapter: Adapter, images: Tensor) -> Tensor:
        logits = adapter.run(images)
        margin = o.entropy_margin * math.log(logits.shape[1])
        parameters = list(adapter.trained.values())
        first = measure(logits)
        kept = first.detach() < margin
        if not bool(kept.any()):
            return logits
        gradients = _gradients(first[kept].mean(), parameters)
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        with _climbed(parameters, [gradient * (o.rho / (norm + 1e-12)) for gradient in gradients]):
            second = measure(adapter.run(images))[kept]
            second = second[second.detach() < margin]
            slopes = _gradients(second.mean(), parameters) if len(second) else ()
        if slopes:
            adapter.descend(slopes)
            _recover(adapter, second.detach().mean(), logits.shape[1])
        return logits

    def _recover(adapter: Adapter, loss: Tensor, classes: int) -> None:
        """Go back when the running loss is too small to be anything but a collapse."""
        known = adapter.memory.get("mean_loss")
        mean = loss if known is None else 0.9 * known + 0.1 * loss
        adapter.memory["mean_loss"] = mean
        if mean < (_auto(adapter, loss, classes) if o.recover_below == "auto" else o.recover_below):
            adapter.reset(optimizer=o.reset_optimizer)

    def _auto(adapter: Adapter, loss: Tensor, classes: int) -> Tensor:
        """Return the threshold by the number of classes, or less for a model that was as sure when it began."""
        first = adapter.memory.get("first_losses", loss.new_empty(0))
        if len(first) < FIRST_UPDATES:
            first = adapter.memory["first_losses"] = torch.cat([first, loss[None]])
        return (COLLAPSED_SHARE * first.mean()).clamp(max=smallest_loss(classes))

    return Parts(trains=norm_affine, learn=learn, optimizer=optimizer(o))


def _gradients(loss: Tensor, parameters: list[nn.Parameter]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)


@contextmanager
def _climbed(parameters: list[nn.Parameter], climb: list[Tensor]) -> Iterator[None]:
    """Move parameters for a while, and back whatever happens: exactly, from a copy."""
    known = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        for parameter, step in zip(parameters, climb, strict=True):
            parameter.add_(step)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, old in zip(parameters, known, strict=True):
                parameter.copy_(old)


SAR = Method(
    name="sar",
    paper="Niu et al. 2023",
    parts=_sar,
    min_batch=2,
    defaults=SarOptions(),
    presets={"cifar": {"lr": 1e-3}, "imagenet_vit": {"lr": 1e-3}},
    release={"reset_optimizer": False},
    passes=(2, 2),
    recovers=True,
    departures="the released code keeps the momentum when it recovers (variant='release'); all norm layers learn, and "
    "the original leaves out the last stage of a ResNet, or the last blocks of a transformer; the loss that means a "
    "collapse follows the number of classes, the published 0.2 for 1000 and 0.067 for 10, and is a quarter of that of "
    "the first ten updates at most",
)
