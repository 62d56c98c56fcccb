"""SAR: entropy minimisation at sharpness-aware steps, with recovery (Niu et al. 2023)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shiftproof.adapters import losses
from shiftproof.adapters.method import Method, Options, Parts
from shiftproof.adapters.parts import norm_affine, optimizer

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter


def _sar(o: Options) -> Parts:
    def learn(adapter: Adapter, images: Tensor) -> Tensor:
        logits = adapter.run(images)
        if not bool(logits.isfinite().all()):
            return adapter.answer_with_source(images)
        margin = o.entropy_margin * math.log(logits.shape[1])
        parameters = list(adapter.trained.values())
        first = losses.entropy(logits)
        kept = first.detach() < margin
        if not bool(kept.any()):
            return logits
        gradients = torch.autograd.grad(first[kept].mean(), parameters)
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        climb = [gradient * (o.rho / (norm + 1e-12)) for gradient in gradients]
        _move(parameters, climb)
        second = losses.entropy(adapter.run(images))[kept]
        second = second[second.detach() < margin]
        loss = second.mean() if len(second) else None
        slopes = torch.autograd.grad(loss, parameters) if loss is not None else None
        _move(parameters, [-step for step in climb])
        if loss is None or slopes is None or adapter.optimizer is None:
            return logits
        for parameter, slope in zip(parameters, slopes, strict=True):
            parameter.grad = slope
        adapter.optimizer.step()
        adapter.updates += 1
        _recover(adapter, loss.detach())
        return logits

    def _recover(adapter: Adapter, loss: Tensor) -> None:
        """Go back when the running loss is too small to be anything but a collapse."""
        known = adapter.memory.get("mean_loss")
        mean = loss if known is None else 0.9 * known + 0.1 * loss
        adapter.memory["mean_loss"] = mean
        if mean < o.recover_below:
            adapter.reset(optimizer=o.reset_optimizer)

    return Parts(trains=norm_affine, learn=learn, optimizer=optimizer(o))


def _move(parameters: list[torch.nn.Parameter], by: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, step in zip(parameters, by, strict=True):
            parameter.add_(step)


SAR = Method(
    name="sar",
    paper="Niu et al. 2023",
    parts=_sar,
    defaults={
        "optimizer": "sgd",
        "lr": 2.5e-4,
        "momentum": 0.9,
        "entropy_margin": 0.4,
        "rho": 0.05,
        "recover_below": 0.2,
        "reset_optimizer": True,
    },
    presets={"imagenet_vit": {"lr": 1e-3}},
    release={"reset_optimizer": False},
    departures="the released code keeps the momentum when it recovers (variant='release'); all norm layers learn",
)
