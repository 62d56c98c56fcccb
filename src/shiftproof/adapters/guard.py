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
"""(adapter, images, logits it answered) -> how much worse than the anchor it seems, from 0, not at all, to 1."""


def regret(anchor: Tensor, logits: Tensor) -> float:
    """Return the share of the anchor's expected accuracy that is lost by answering as `logits` do, in [0, 1].

    By its own probabilities p the anchor expects to be right on sum max p images, and the answers y to be right on
    sum p_y. Disagreement counts by how sure the anchor is: next to nothing on a tie.
    """
    p = anchor.softmax(1)
    expected = p.gather(1, logits.argmax(1, keepdim=True)).sum()
    return float(1 - expected / p.amax(1).sum())


def narrowing(anchor: Tensor, logits: Tensor) -> float:
    """Return the share of the anchor's diversity that is lost, in [0, 1].

    Diversity is the effective number of classes answered, exp of the entropy of the counts of arg max. Counts, not mean
    probabilities: surer answers are no less diverse.
    """
    kept = torch.exp(_spread(logits) - _spread(anchor))
    return max(0.0, float(1 - kept))


def worse_than_anchor(adapter: Adapter, images: Tensor, logits: Tensor) -> float:
    """Return the greater of regret and narrowing against the anchor: the start's parameters, norm policy unchanged."""
    anchor = adapter.anchor(images)
    return max(regret(anchor, logits), narrowing(anchor, logits))


@dataclass(frozen=True)
class Guard(Reset):
    """Go back when a smoothed signal stays high.

    Every `interval` batches the signal is taken (one more forward pass without gradients: at 5 batches, 6 to 7 % of the
    cost of a gradient method) and averaged into a level, `smoothing` of it new. A level above `high` counts as an
    alarm, one under `low` takes all alarms back; after `patience` alarms the adapter goes back to its start, and the
    guard with it.
    """

    signal: Signal = worse_than_anchor
    interval: int = 5
    high: float = 0.35
    low: float = 0.25
    smoothing: float = 0.5
    patience: int = 2

    def __post_init__(self) -> None:
        sound = self.interval >= 1 and self.patience >= 1 and 0 < self.smoothing <= 1 and self.low <= self.high
        if not sound:
            raise ConfigurationError(
                "This guard cannot work.",
                expected="interval and patience of 1 or more, smoothing in (0, 1], low no higher than high",
                came=f"{self.interval}, {self.patience}, {self.smoothing:g}, {self.low:g}, {self.high:g}",
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
