"""Go back when the adapted model is shown to be worse than its start, without labels, by a sequential test.

What can be said without labels: the adapted model and its start, the anchor, differ on no more images than the two get
wrong together. So a model at least as good as its anchor differs on twice the anchor's errors at most. Those are not
known, but how often the anchor contradicts itself on another view of the images is. **The assumption**: the anchor's
error rate is at most `ratio` times that share, plus `slack`. Under it a model that is at least as good as the anchor,
perfect ones included, raises an alarm within `horizon` looks with probability `alpha` at most, whatever labels come
together. An anchor that contradicts itself on a third of the images never raises one: who knows little must not judge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.adapters.resets import Reset
from shiftproof.errors import ConfigurationError
from shiftproof.measures.betting import bet_again, new_capital

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

GROUP = 8
"""So many images of a batch, which depend on each other, count as one outcome."""


def mirrored(images: Tensor) -> Tensor:
    """Return images [N, C, H, W] left to right; what has no width is returned as it is."""
    return images.flip(-1) if images.ndim == 4 else images


def excess(answers: Tensor, anchor: Tensor, seen: Tensor, ratio: float, slack: float) -> NDArray[np.float64]:
    """Return by how much the answers differ from the anchor's beyond what a model as good could, in groups of images.

    `answers`, `anchor` and `seen`, the anchor's for another view, are logits [N, C]. Of a model at least as good as the
    anchor the mean is 0 or less, where the anchor's error rate is at most ratio * P(seen != anchor) + slack. The values
    lie between -1 and 1.
    """
    chosen, own, other = (logits.argmax(1) for logits in (answers, anchor, seen))
    most = 2 * (ratio + slack)
    each = ((chosen != own).double() - 2 * ratio * (own != other).double() - 2 * slack) / max(1.0, most)
    return np.array([float(group.mean()) for group in torch.split(each.cpu(), GROUP)])


@dataclass(frozen=True)
class Guard(Reset):
    """Go back when the model is shown to be worse than its start, and in any case after `every` batches, as RDumb does.

    Every `interval` batches the anchor answers them too, as they are and through another `view` under which they mean
    the same: two more forward passes without gradients, 6 to 7 % of the cost of a gradient method at 10 batches. Where
    mirror images mean something else, as with letters, give another view. `excess` says what is tested and under which
    assumption. Its `ratio` and `slack` were fixed on the hold-out corruptions, where the demo network's error rate is
    1.0 to 1.4 times the share of images that it contradicts itself on, and 1.2 to 1.7 times where batches hold two
    classes alone.

    Args:
        interval: Batches between two looks.
        alpha: The probability of a false alarm, under the assumption, within `horizon` looks.
        horizon: Looks that `alpha` is about.
        every: Batches after which it goes back in any case.
        ratio: The assumed error rate of the anchor, as a multiple of how often it contradicts itself.
        slack: Added to that error rate.
        view: From images to other images that mean the same; mirror images by default.

    >>> Guard(interval=20).every
    1000
    """

    interval: int = 10
    alpha: float = 0.05
    horizon: int = 1000
    every: int = 1000
    ratio: float = 1.5
    slack: float = 0.05
    view: Callable[[Tensor], Tensor] = mirrored

    def __str__(self) -> str:
        return "guard" if self == Guard() else repr(self)

    def __post_init__(self) -> None:
        counts = all(isinstance(count, int) and count >= 1 for count in (self.interval, self.horizon, self.every))
        if not (counts and 0 < self.alpha < 1 and self.ratio > 0 and self.slack >= 0):
            raise ConfigurationError(
                "Invalid guard settings.",
                expected="interval, horizon and every whole and 1 or more, alpha between 0 and 1, a positive ratio",
                got=f"{self.interval}, {self.horizon}, {self.every}, {self.alpha:g}, {self.ratio:g}, {self.slack:g}",
            )

    def due(self, adapter: Adapter) -> bool:
        """When there is evidence, or after so many batches."""
        known = adapter.memory.get("guard/capital")
        shown = known is not None and float(known.double().mean()) >= 1 / self.alpha
        return shown or (adapter.steps > 0 and adapter.steps % self.every == 0)

    def observe(self, adapter: Adapter, images: Tensor, logits: Tensor) -> None:
        """Take a look at its interval, if there is anything to go back from."""
        if not adapter.trained or adapter.steps % self.interval:
            return
        anchor, seen = adapter.anchor(images), adapter.anchor(self.view(images))
        known = adapter.memory.get("guard/capital")
        capital = new_capital() if known is None else known.double().cpu().numpy()
        outcomes = excess(logits, anchor, seen, self.ratio, self.slack)
        for outcome in outcomes:
            capital = bet_again(capital, outcome, self.horizon * len(outcomes))
        # More than is needed would only overflow, in whatever precision it is kept.
        adapter.memory["guard/capital"] = torch.from_numpy(np.minimum(capital, 1e4)).to(images.device)
