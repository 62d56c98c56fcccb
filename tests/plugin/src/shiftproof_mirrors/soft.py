"""A recipe of training: cross-entropy with smoothed labels."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from shiftproof.training import Recipe
from shiftproof.training.objectives import Moment, Objective


class SoftLabels(Objective):
    """Cross-entropy with labels of which `amount` is spread over all classes."""

    amount: float = 0.1

    def loss(self, moment: Moment) -> Tensor:
        """Return the loss of every image."""
        return functional.cross_entropy(
            moment.logits()[0, 0], moment.labels, label_smoothing=self.amount, reduction="none"
        )


SOFT = Recipe("soft", "cross-entropy of smoothed labels", "Szegedy et al. 2016", SoftLabels())
