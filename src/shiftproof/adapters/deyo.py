"""DeYO: learn from sure images whose prediction depends on their shape (Lee et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from shiftproof.adapters.method import Method, Parts, Step
from shiftproof.adapters.method_options import EntropyMargin, GradientOptions
from shiftproof.adapters.parts import kept_entropy, norm_affine, optimizer, reliable
from shiftproof.options import NotNegative

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

GRID = 4


def shuffle_patches(images: Tensor, orders: Tensor) -> Tensor:
    """Exchange the patches of a 4 x 4 grid: patch j of image i becomes its patch orders[i, j].

    Rows and columns that do not fill the grid stay where they are.
    """
    count, channels, height, width = images.shape
    side = height // GRID, width // GRID
    inner = images[:, :, : side[0] * GRID, : side[1] * GRID]
    patches = inner.view(count, channels, GRID, side[0], GRID, side[1]).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    chosen = patches[torch.arange(count, device=images.device)[:, None], orders]
    shuffled = chosen.view(count, GRID, GRID, channels, *side).permute(0, 3, 1, 4, 2, 5).reshape(inner.shape)
    out = images.clone()
    out[:, :, : side[0] * GRID, : side[1] * GRID] = shuffled
    return out


class DeyoOptions(GradientOptions):
    """Options of DeYO."""

    entropy_margin: EntropyMargin = 0.5
    weight_margin: Annotated[NotNegative, "Images whose entropy is below this share of ln C weigh more than 1."] = 0.4
    drop: Annotated[float, "Learn from images whose class loses more probability when patches are shuffled."] = 0.2
    orders: Annotated[
        Callable[[int, int, torch.device], Tensor] | None,
        "What gives the orders of the patches, (count, step, device) -> [count, 16], in place of random ones.",
    ] = None


def _deyo(o: DeyoOptions) -> Parts:
    def shape_matters(step: Step, adapter: Adapter) -> None:
        """Keep images whose class loses more than `drop` of its probability when patches are shuffled."""
        if not len(step.kept):
            return
        images = step.images[step.kept]
        if o.orders:
            orders = o.orders(len(images), adapter.steps, images.device)
        else:
            orders = adapter.rng("deyo", len(images)).permutation(GRID * GRID)
        p = step.probabilities[step.kept]
        best = p.argmax(1, keepdim=True)
        with torch.no_grad():
            shuffled = adapter.run(shuffle_patches(images, orders)).softmax(1)
        drop = (p - shuffled).gather(1, best).squeeze(1)
        step.weights = drop[drop > o.drop]
        step.keep(drop > o.drop)

    def weigh(step: Step) -> Tensor:
        sure = torch.exp(o.weight_margin * math.log(step.classes) - step.entropy.detach()[step.kept])
        return sure + torch.exp(step.weights)

    return Parts(
        trains=norm_affine,
        keep=(reliable(o.entropy_margin), shape_matters),
        loss=kept_entropy,
        weigh=weigh,
        optimizer=optimizer(o),
    )


DEYO = Method(
    name="deyo",
    paper="Lee et al. 2024",
    parts=_deyo,
    min_batch=2,
    defaults=DeyoOptions(),
    presets={"cifar": {"optimizer": "adam", "lr": 1e-3}, "imagenet_vit": {"lr": 1e-3}},
    passes=(2, 1),
    departures="all norm layers learn; the original leaves out the last stage of a ResNet, or the last blocks of a "
    "transformer",
)
