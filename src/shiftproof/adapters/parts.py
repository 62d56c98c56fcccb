"""The parts methods are put together from: what learns, which images count and for how much, and optimisers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shiftproof.adapters.method import Filter, Named, Step, Weight
from shiftproof.adapters.method_options import GradientOptions
from shiftproof.adapters.norms import AdaptiveBatchNorm

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

NORMS = (
    AdaptiveBatchNorm,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
)


def norm_affine(model: nn.Module) -> Named:
    """Return the scale and shift of every normalisation layer, by name."""
    return {
        f"{name}.{part}": parameter
        for name, module in model.named_modules()
        if isinstance(module, NORMS)
        for part, parameter in module.named_parameters(recurse=False)
    }


def norm_affine_but_last_stage(model: nn.Module) -> Named:
    """Return the scales and shifts of all stages but the last: the children of the first module that has several.

    Of a model whose normalisation layers are all in one stage, all of them.
    """
    named = norm_affine(model)
    paths = {name: name.split(".")[:-1] for name in named}
    depth = 0
    while all(len(path) > depth + 1 for path in paths.values()) and len({p[depth] for p in paths.values()}) == 1:
        depth += 1
    stages = list(dict.fromkeys(path[depth] for path in paths.values()))
    return {name: each for name, each in named.items() if len(stages) == 1 or paths[name][depth] != stages[-1]}


def all_parameters(model: nn.Module) -> Named:
    """Return every parameter, by name."""
    return dict(model.named_parameters())


def reliable(margin: float) -> Filter:
    """Keep images whose entropy is under a share of the largest possible, margin * ln C (Niu et al. 2022)."""

    def narrow(step: Step, adapter: Adapter) -> None:
        step.keep(step.entropy.detach()[step.kept] < margin * math.log(step.classes))

    return narrow


def largest_cosine(classes: int) -> float:
    """Return the cosine with the mean prediction under which a prediction is new, by the number of classes.

    A sure prediction has a cosine of 1 / sqrt(C) with a uniform mean, so a smaller threshold keeps nothing. To two
    digits this is the published value for 10 and for 1000 classes.

    >>> [largest_cosine(classes) for classes in (2, 10, 100, 1000)]
    [0.81, 0.4, 0.14, 0.05]
    """
    return float(f"{(1.1 + 0.16 * math.log10(classes)) / math.sqrt(classes):.2g}")


def novel(similarity: float | str, momentum: float = 0.9) -> Filter:
    """Keep images whose prediction has |cosine| < similarity with the running mean prediction (Niu et al. 2022).

    The mean is that of kept images; the first batch that has any starts it and is kept whole. `auto` is the
    `largest_cosine` for the model's number of classes. Pixels are not narrowed: neighbours are alike by their nature.
    """

    def narrow(step: Step, adapter: Adapter) -> None:
        if not len(step.kept) or step.per_pixel:
            return
        mean = step.memory.get("mean_prediction")
        if mean is not None:
            alike = F.cosine_similarity(mean[None], step.probabilities[step.kept], dim=1)
            step.keep(alike.abs() < (largest_cosine(step.classes) if isinstance(similarity, str) else similarity))
        if len(step.kept):
            new = step.probabilities[step.kept].mean(0)
            step.memory["mean_prediction"] = new if mean is None else momentum * mean + (1 - momentum) * new

    return narrow


def by_entropy(margin: float) -> Weight:
    """Weigh an image by exp(margin * ln C - entropy): the surer, the more (Niu et al. 2022)."""

    def weigh(step: Step) -> Tensor:
        return torch.exp(margin * math.log(step.classes) - step.entropy.detach()[step.kept])

    return weigh


def optimizer(
    o: GradientOptions, *, nesterov: bool = False, weight_decay: float = 0.0
) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
    """Return what makes the optimiser of the options `optimizer`, `lr` and `momentum`."""

    def make(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        fused = True if all(parameter.is_cuda for parameter in parameters) else None
        if o.optimizer == "sgd":
            return torch.optim.SGD(
                parameters, lr=o.lr, momentum=o.momentum, nesterov=nesterov, weight_decay=weight_decay, fused=fused
            )
        kind = torch.optim.Adam if o.optimizer == "adam" else torch.optim.AdamW
        return kind(parameters, lr=o.lr, betas=(o.momentum, 0.999), weight_decay=weight_decay, fused=fused)

    return make


def kept_entropy(step: Step) -> Tensor:
    """Return the entropies of the kept images."""
    # Picking out all of them would cost a device as much as a layer, on the way back.
    return step.entropy if len(step.kept) == len(step.entropy) else step.entropy[step.kept]
