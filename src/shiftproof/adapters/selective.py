"""ASR: adaptive and selective resets of ETA when predictions concentrate (arXiv 2603.03796)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from shiftproof.adapters import losses
from shiftproof.adapters.entropy import COSINE, ETA, EtaOptions, eta_parts
from shiftproof.adapters.fisher import joined
from shiftproof.adapters.learning import total_loss
from shiftproof.adapters.method import Memory, Method, Parts, Step
from shiftproof.options import NotNegative, Positive, Share

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

VIT_B_16 = {"follow": 0.99, "level_share": 0.005, "keep_slope": 50.0}
"""What the release sets for ViT-B/16 with ETA on CCC-Easy and Medium; its level starts at ln 5 for 1,000 classes."""
KEEP_ANCHOR = 0.9
"""How much of what mattered before is kept at a reset."""


class SelectiveOptions(EtaOptions):
    """Options of ASR."""

    follow: Annotated[Share, "How much of the level a batch replaces that is answered as the start would."] = 0.15
    level_share: Annotated[Positive, "The level starts at ln(this times the number of classes)."] = 0.5
    keep_share: Annotated[NotNegative, "The share of layers, from the input, that a reset keeps at most."] = 0.5
    keep_slope: Annotated[NotNegative, "How much less it keeps for each nat under the level."] = 20.0
    anchor_weight: Annotated[NotNegative, "The weight of what mattered before, times squared disagreement."] = 5.0


def _selective(o: SelectiveOptions) -> Parts:
    def learn(adapter: Adapter, images: Tensor) -> Tensor:
        step = Step(images, adapter.run(images), adapter.memory, adapter.parts.entropy)
        for narrow in adapter.parts.keep:
            narrow(step, adapter)
        if len(step.kept):
            gradients = torch.autograd.grad(
                total_loss(step, adapter), list(adapter.trained.values()), allow_unused=True, materialize_grads=True
            )
            with torch.no_grad():
                pulled = remember_and_pull(adapter, gradients)
            adapter.descend(pulled)
        with torch.no_grad():
            judge(adapter, images, step.logits.detach())
        return step.logits

    def judge(adapter: Adapter, images: Tensor, logits: Tensor) -> None:
        """Go back in part where the mean answer is surer than the level; else let the level follow it."""
        memory = adapter.memory
        memory["asr/steps"] = memory.get("asr/steps", torch.zeros(())) + 1
        differs = (adapter.anchor(images).argmax(1) != logits.argmax(1)).to(logits.dtype).mean()
        memory["asr/pull"] = o.anchor_weight * differs.square()
        now = losses.entropy(logits.mean(0, keepdim=True))[0]
        level = memory.get("asr/level", torch.full_like(now, math.log(o.level_share * logits.shape[1])))
        if now < level:
            merge(memory)
            return_part(adapter, max(0.0, o.keep_share - o.keep_slope * float(level - now)))
        else:
            keep = 1 - o.follow * (1 - differs)
            memory["asr/level"] = keep * level + (1 - keep) * now

    return replace(eta_parts(o), learn=learn)


def remember_and_pull(adapter: Adapter, gradients: tuple[Tensor, ...]) -> list[Tensor]:
    """Add squared gradients and parameters to what is averaged, and return gradients with the pull to earlier ones.

    The pull is the gradient of weight * sum F (theta - mean)^2. All parameters are one vector here, as in EATA.
    """
    memory, parameters = adapter.memory, adapter.trained.values()
    now, slope = joined(parameter.detach() for parameter in parameters), joined(gradients)
    for kind, new in (("fisher", slope.square()), ("mean", now)):
        memory[f"asr/{kind}"] = memory.get(f"asr/{kind}", torch.zeros_like(new)) + new
    if "asr/kept_fisher" in memory and "asr/pull" in memory:
        slope = slope + 2 * memory["asr/pull"] * memory["asr/kept_fisher"] * (now - memory["asr/kept_mean"])
    parts = torch.split(slope, [parameter.numel() for parameter in parameters])
    return [part.view_as(parameter).to(parameter.dtype) for part, parameter in zip(parts, parameters, strict=True)]


def merge(memory: Memory) -> None:
    """Merge the averages since the last reset into those kept."""
    steps = memory.pop("asr/steps")
    for kind in ("fisher", "mean"):
        total = memory.pop(f"asr/{kind}", None)
        if total is not None:
            new = total / steps.to(total)
            known = memory.get(f"asr/kept_{kind}", new)
            memory[f"asr/kept_{kind}"] = KEEP_ANCHOR * known + (1 - KEEP_ANCHOR) * new


def return_part(adapter: Adapter, share: float) -> None:
    """Put all parameters back but the first share of them, in the order of the network, with a new optimiser."""
    kept = {name: parameter.detach().clone() for name, parameter in adapter.trained.items()}
    adapter.restart()
    for number, (name, parameter) in enumerate(adapter.trained.items()):
        if number < share * len(kept):
            parameter.copy_(kept[name])
    for name in ("mean_prediction", "asr/level"):
        adapter.memory.pop(name, None)
    adapter.resets += 1


ASR = Method(
    name="asr",
    paper="ASR, arXiv 2603.03796",
    parts=_selective,
    min_batch=2,
    defaults=SelectiveOptions(),
    presets={**ETA.presets, "imagenet_vit": {**ETA.presets["imagenet_vit"], **VIT_B_16}},
    passes=(2, 1),
    recovers=True,
    departures="the constants were published for 1,000 classes: of ResNet-50, and with the preset imagenet_vit those "
    "of ViT-B/16 on CCC-Easy and Medium (Hard has others); other models take those of ResNet-50, whose level starts at "
    "90% of the highest entropy for 1,000 classes, 70% for 10, and 0 for 2, which never resets; a batch without a kept "
    f"image leaves no gradients behind; {COSINE}",
)
