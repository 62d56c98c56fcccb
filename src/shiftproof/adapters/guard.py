"""The guard: go back when the adapted model has become worse than the unadapted one would be, told without labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from shiftproof.adapters.resets import Reset
from shiftproof.errors import ConfigurationError

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

Signal: TypeAlias = Callable[["Adapter", Tensor, Tensor], float]
"""(adapter, images, logits it answered) -> how much worse than the anchor it seems: at most 1, below 0 better."""


def regret(judge: Tensor, anchor: Tensor, logits: Tensor) -> float:
    """Return the share of the anchor's accuracy that is lost by answering as `logits` do, by a judge's probabilities.

    By probabilities p of the judge the anchor's answers b are expected to be right on sum p_b images, and the answers y
    of `logits` on sum p_y. Where the judge is the anchor itself, on the same images, it is as sure of b as it can be,
    right or not, and whoever does better than the anchor seems worse. A judge of its own opinion does not have that
    bias: the anchor, seeing another view of the images.
    """
    p = judge.softmax(1)
    answered, kept = (p.gather(1, of.argmax(1, keepdim=True)).sum() for of in (logits, anchor))
    return float(1 - answered / kept.clamp_min(torch.finfo(p.dtype).tiny))


def narrowing(anchor: Tensor, logits: Tensor) -> float:
    """Return the share of the anchor's diversity that is lost, in [0, 1].

    Diversity is the effective number of classes answered, exp of the entropy of the counts of arg max. Counts, not mean
    probabilities: surer answers are no less diverse.
    """
    kept = torch.exp(_spread(logits) - _spread(anchor))
    return max(0.0, float(1 - kept))


def mirrored(images: Tensor) -> Tensor:
    """Return images [N, C, H, W] left to right; what has no width is returned as it is."""
    return images.flip(-1) if images.ndim == 4 else images


def worse_than_anchor(
    adapter: Adapter, images: Tensor, logits: Tensor, view: Callable[[Tensor], Tensor] = mirrored
) -> float:
    """Return the greater of regret and narrowing against the anchor: the start's parameters, norm policy unchanged.

    Its judge is the anchor on another view of the images, one under which they mean the same. Where mirror images do
    not, as with letters, give another: `Guard(partial(worse_than_anchor, view=...))`.
    """
    anchor, judge = adapter.anchor(images), adapter.anchor(view(images))
    return max(regret(judge, anchor, logits), narrowing(anchor, logits))


@dataclass(frozen=True)
class Guard(Reset):
    """Go back when a smoothed signal stays high.

    Every `interval` batches the signal is taken (two more forward passes without gradients: at 10 batches, 6 to 7 % of
    the cost of a gradient method) and averaged into a level, `smoothing` of it new. A level above `high` counts as an
    alarm, one under `low` takes all alarms back; after `patience` alarms the adapter goes back to its start, and the
    guard with it. Signals of `worse_than_anchor` around 0.15 belong to a model no better than the anchor.
    """

    signal: Signal = worse_than_anchor
    interval: int = 10
    high: float = 0.12
    low: float = 0.1
    smoothing: float = 0.2
    patience: int = 2

    def __str__(self) -> str:
        return "guard" if self == Guard() else repr(self)

    def __post_init__(self) -> None:
        counts = all(isinstance(count, int) and count >= 1 for count in (self.interval, self.patience))
        sound = counts and 0 < self.smoothing <= 1 and self.low <= self.high
        if not sound:
            raise ConfigurationError(
                "This guard cannot work.",
                expected="interval and patience whole and 1 or more, smoothing in (0, 1], low no higher than high",
                got=f"{self.interval}, {self.patience}, {self.smoothing:g}, {self.low:g}, {self.high:g}",
            )

    def due(self, adapter: Adapter) -> bool:
        """When enough alarms have come together."""
        return "guard/alarms" in adapter.memory and int(adapter.memory["guard/alarms"]) >= self.patience

    def observe(self, adapter: Adapter, images: Tensor, logits: Tensor) -> None:
        """Take the signal at its interval, if there is anything to go back from."""
        if not adapter.trained or adapter.steps % self.interval:
            return
        memory = adapter.memory
        new = logits.new_tensor(self.signal(adapter, images, logits))
        level = torch.lerp(memory["guard/level"], new, self.smoothing) if "guard/level" in memory else new
        alarms = memory.get("guard/alarms", torch.zeros_like(new, dtype=torch.int64))
        if level > self.high:
            alarms = alarms + 1
        elif level < self.low:
            alarms = torch.zeros_like(alarms)
        memory["guard/level"], memory["guard/alarms"] = level, alarms


def _spread(logits: Tensor) -> Tensor:
    """Return the entropy of how often each class is answered, []."""
    share = torch.bincount(logits.argmax(1), minlength=logits.shape[1]).double() / len(logits)
    entropy: Tensor = torch.special.entr(share).sum()
    return entropy
