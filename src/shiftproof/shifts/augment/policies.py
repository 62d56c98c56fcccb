"""Augmentation policies as shifts: RandAugment, AutoAugment and AugMix, built from the operations.

The images of one batch get different operations. Which image gets which is drawn on the CPU (the numbers are few, and
the same on every device), so that `apply_each_` runs every operation once, on its images, without waiting for a device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import Ge, Le, Lt
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.registry import unknown
from shiftproof.shifts import tables
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.levels import to_levels
from shiftproof.shifts.operations.geometric import Fill, Filled
from shiftproof.shifts.operations.operation import GEOMETRIC, apply_each_, origins_each
from shiftproof.shifts.origins import in_turn, unmoved
from shiftproof.shifts.parametric import Parametric

RAND_AUGMENT_BINS = 30
AUTO_AUGMENT_BINS = 9
AUGMIX_BINS = 10


class Steps(NamedTuple):
    """Operations in turn: for each image and step a place in `Menu.names` and a level, both [N, steps] on the CPU."""

    which: Tensor
    level: Tensor


@dataclass(frozen=True, eq=False)
class Menu:
    """Operations to choose from and how a magnitude becomes a level; one entry per operation in every tensor."""

    names: tuple[str, ...]
    start: Tensor
    span: Tensor
    signed: Tensor
    rounded: Tensor
    truncated: Tensor

    def draw(self, rng: Keyed, shape: tuple[int, ...], *, without: str, still: bool = False) -> Tensor:
        """Draw operations, all but one equally likely, as places in `names`, [N, *shape]; `still` ones move nothing."""
        left_out = {without, *(GEOMETRIC if still else ())}
        places = torch.tensor([place for place, name in enumerate(self.names) if name not in left_out])
        return places[rng.integers(0, len(places), shape)]

    def level(self, which: Tensor, share: Tensor | float, negative: Tensor) -> Tensor:
        """Return the levels of operations at a share of their largest magnitude, float64."""
        change = self.span[which] * share
        change = torch.where(self.rounded[which], change.round(), change)
        change = torch.where(self.truncated[which], change.trunc(), change)
        return self.start[which] + torch.where(self.signed[which] & negative, -change, change)


@cache
def menu(section: str) -> Menu:
    """Return a section of the table of policies."""
    rows = tables.table("policies")[section]

    def column(key: str) -> Tensor:
        return torch.tensor([row.get(key, 0.0) for row in rows.values()], dtype=torch.float64)

    whole = [row.get("whole") for row in rows.values()]
    return Menu(
        names=tuple(rows),
        start=column("start"),
        span=column("span"),
        signed=column("signed").bool(),
        rounded=torch.tensor([each == "rounded" for each in whole]),
        truncated=torch.tensor([each == "truncated" for each in whole]),
    )


@dataclass(frozen=True)
class RandAugment(Parametric):
    """`n` operations drawn at random, all at one magnitude, 0..30 (Cubuk et al. 2020).

    With `spread="uniform"` every operation's magnitude is drawn between 0 and `magnitude`: a neighbourhood of that
    largest magnitude.
    """

    moves = True
    name: str = field(default="rand_augment", init=False)
    n: Annotated[int, Ge(1), Le(16), "How many operations are drawn."] = 2
    magnitude: Annotated[float, Ge(0), Le(RAND_AUGMENT_BINS), "How strong the operations are, at most."] = 9.0
    spread: Annotated[Literal["fixed", "uniform"], "Whether magnitudes are drawn, up to the largest."] = "fixed"
    fill: Filled = "black"

    def draw(self, rng: Keyed, shape: Shape) -> Steps:
        """Draw the operations, their signs and, where they vary, their magnitudes."""
        rng, choice = _on_cpu(rng), menu("magnitudes")
        which = choice.draw(rng, (self.n,), without="invert")
        negative = rng.integers(0, 2, (self.n,)).bool()
        share = rng.uniform(shape=(self.n,)).double() if self.spread == "uniform" else 1.0
        return Steps(which, choice.level(which, share * (self.magnitude / RAND_AUGMENT_BINS), negative))

    def origins(self, rng: Keyed, shape: Shape) -> Tensor:
        """Follow the moves among the operations in turn."""
        return _step_origins(menu("magnitudes"), self.draw(rng, shape), shape, rng.device)

    def transform(self, images: Tensor, drawn: Steps) -> Tensor:
        """Apply the operations in turn."""
        return _apply_steps_(menu("magnitudes"), to_levels(images), drawn, self.fill).div_(255.0)


@dataclass(frozen=True)
class AutoAugment(Parametric):
    """One of 25 learned pairs of operations, each applied with its probability (Cubuk et al. 2019)."""

    moves = True
    name: str = field(default="auto_augment", init=False)
    policy: Annotated[str, "The data set that the pairs were learned on."] = "cifar10"
    fill: Filled = "grey"

    def __post_init__(self) -> None:
        super().__post_init__()
        policies = tables.table("policies")["policies"]
        if self.policy not in policies:
            raise unknown("AutoAugment policy", self.policy, policies)

    def draw(self, rng: Keyed, shape: Shape) -> Steps:
        """Draw the pair, whether each of its operations happens, and the signs."""
        rng, choice = _on_cpu(rng), menu("magnitudes")
        operations, chances, shares = _policy(self.policy)
        pair = rng.integers(0, len(operations))
        happens = rng.uniform(shape=(2,)) < chances[pair]
        which = torch.where(happens, operations[pair], choice.names.index("identity"))
        negative = rng.integers(0, 2, (2,)).bool()
        return Steps(which, choice.level(which, shares[pair], negative))

    def origins(self, rng: Keyed, shape: Shape) -> Tensor:
        """Follow the moves among the operations in turn."""
        return _step_origins(menu("magnitudes"), self.draw(rng, shape), shape, rng.device)

    def transform(self, images: Tensor, drawn: Steps) -> Tensor:
        """Apply the operations in turn."""
        return _apply_steps_(menu("magnitudes"), to_levels(images), drawn, self.fill).div_(255.0)


class Mixture(NamedTuple):
    """What AugMix draws: the chains of operations, [N, width, depth], and their weights, [N, width], all on the CPU.

    The weights already hold the share of the mixture in the result; the rest is the image itself, `kept` [N].
    """

    which: Tensor
    level: Tensor
    weights: Tensor
    kept: Tensor


@dataclass(frozen=True)
class AugMix(Parametric):
    """Mix `width` chains of 1 to `depth` operations with each other and the image (Hendrycks et al. 2020).

    The chains' weights are Dirichlet(1), their share against the image Beta(1, 1). `strength` is what the paper calls
    the severity of an operation, up to 10. The consistency loss that goes with it in training is not part of the shift.
    Without `geometric` operations no content moves, as labels that are maps need it.
    """

    name: str = field(default="augmix", init=False)
    width: Annotated[int, Ge(1), Le(8), "How many chains are mixed."] = 3
    depth: Annotated[int, Ge(1), Le(8), "The operations of a chain, at most."] = 3
    strength: Annotated[float, Ge(0.1), Lt(AUGMIX_BINS), "How strong the operations are, at most."] = 3.0
    fill: Filled = "black"
    geometric: Annotated[bool, "Whether operations that move content are among them."] = True

    @property
    def moves(self) -> bool:
        """Whether some operations move content."""
        return self.geometric

    def draw(self, rng: Keyed, shape: Shape) -> Mixture:
        """Draw the chains, their lengths and their weights."""
        rng, choice = _on_cpu(rng), menu("augmix")
        chains = (self.width, self.depth)
        which = choice.draw(rng, chains, without="identity", still=not self.geometric)
        length = rng.integers(1, self.depth + 1, (self.width, 1))
        which = torch.where(torch.arange(self.depth) < length, which, choice.names.index("identity"))
        share = rng.uniform(0.1, self.strength, chains).double() / AUGMIX_BINS
        level = choice.level(which, share, rng.integers(0, 2, chains).bool())
        mixed = rng.uniform()
        # Normalised exponentials are Dirichlet(1, ..., 1); 1 - u is in (0, 1].
        weights = (1.0 - rng.uniform(shape=(self.width,)).double()).log().neg()
        weights = weights / weights.sum(dim=1, keepdim=True).clamp_min(1e-12) * mixed[:, None]
        return Mixture(which, level, weights.float(), 1.0 - mixed)

    def transform(self, images: Tensor, drawn: Mixture) -> Tensor:
        """Run all chains as one batch, one after the other in memory, and mix them."""
        levels = to_levels(images)
        steps = Steps(*(each.transpose(0, 1).flatten(0, 1) for each in drawn[:2]))
        chains = _apply_steps_(menu("augmix"), levels.repeat(self.width, 1, 1, 1), steps, self.fill)
        weights, kept = (each.to(images.device, non_blocking=True) for each in drawn[2:])
        mixed = levels.mul_(kept[:, None, None, None])
        for chain, weight in zip(chains.chunk(self.width), weights.unbind(1), strict=True):
            mixed.add_(chain.mul_(weight[:, None, None, None]))
        return mixed.div_(255.0)


@cache
def _policy(name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return a policy's operations, probabilities and shares of the largest magnitude, each [pairs, 2]."""
    names = menu("magnitudes").names
    pairs = tables.table("policies")["policies"][name]
    operations = torch.tensor([[names.index(step[0]) for step in pair] for pair in pairs])
    chances = torch.tensor([[step[1] for step in pair] for pair in pairs])
    shares = torch.tensor([[step[2] for step in pair] for pair in pairs], dtype=torch.float64) / AUTO_AUGMENT_BINS
    return operations, chances, shares


def _apply_steps_(choice: Menu, levels: Tensor, steps: Steps, fill: Fill) -> Tensor:
    """Apply operations in turn, in place."""
    for which, level in zip(steps.which.unbind(1), steps.level.unbind(1), strict=True):
        apply_each_(choice.names, levels, which, level, fill)
    return levels


def _step_origins(choice: Menu, steps: Steps, shape: Shape, device: torch.device) -> Tensor:
    """Return where the pixels come from after operations in turn."""
    found = unmoved(len(steps.which), *shape.spatial, device)
    for which, level in zip(steps.which.unbind(1), steps.level.unbind(1), strict=True):
        found = in_turn(found, origins_each(choice.names, which, level, shape, device))
    return found


class _Brought(Keyed):
    """The same generator, with its numbers brought to the CPU: few enough to be the same bits wherever they are made.

    A device makes them in one kernel, the CPU in hundreds of passes that hold up whoever launches kernels.
    """

    def _unit(self, count: int) -> Tensor:
        return super()._unit(count).cpu()


def _on_cpu(rng: Keyed) -> Keyed:
    """Return the same generator with its numbers on the CPU."""
    return _Brought(rng.seed, rng.keys, path=rng.path)
