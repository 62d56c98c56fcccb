"""The prior of batch normalisation that suits small batches, chosen on corruptions held out for such choices."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from shiftproof import shifts
from shiftproof.adapters.catalogue import adapt
from shiftproof.data import Dataset, as_images
from shiftproof.errors import DataError

PRIORS = (0, *(2**power for power in range(11)))
"""The grid of Schneider et al. 2020, and no prior."""


@dataclass(frozen=True)
class PriorChoice:
    """Accuracy of each prior over all hold-out corruptions, for one batch size.

    Args:
        batch: Images in a batch.
        accuracies: Accuracy by prior.
    """

    batch: int
    accuracies: Mapping[float, float]

    @property
    def best(self) -> float:
        """The prior with the highest accuracy; the smallest of ties."""
        return max(sorted(self.accuracies), key=lambda prior: self.accuracies[prior])

    def to_row(self) -> dict[str, Any]:
        """Return the choice as JSON values."""
        grid = {f"{prior:g}": value for prior, value in self.accuracies.items()}
        return {"batch": self.batch, "best": self.best, "accuracies": grid}


def choose_prior(
    model: nn.Module,
    data: Dataset,
    *,
    batch: int = 8,
    shifts_used: Sequence[str] | None = None,
    severity: float = 3.0,
    priors: Sequence[float] = PRIORS,
    seed: int = 0,
) -> PriorChoice:
    """Measure the accuracy of each prior on labelled images under hold-out corruptions, at a given batch size.

    Do not include corruptions that you test on later.

    Args:
        model: A module with batch normalisation.
        data: Labelled images.
        batch: Images per batch, as in deployment.
        shifts_used: Names of corruptions to select on. Default: the four hold-out corruptions.
        severity: Their severity.
        priors: The priors to try.
        seed: The seed of what shifts draw.
    """
    if data.labels is None:
        raise DataError("Choosing a prior needs labels.", expected="a labelled set", got=data.name)
    device = next((tensor.device for tensor in model.parameters()), "cpu")
    adapters = {prior: adapt(model, "bn", prior=prior) for prior in priors}
    hits, images = dict.fromkeys(priors, 0), 0
    mixed = as_images(data).take(
        seed=seed
    )  # a folder is in the order of its classes, and a batch of one class misleads
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # single images without a prior are measured on purpose
        for name in shifts_used or shifts.names("holdout"):
            shift = shifts.corruption(name, severity)
            for part in mixed.batches(batch, device=device):
                shifted = shift(part.inputs, part.keys, seed=seed)
                images += len(shifted)
                for prior, adapter in adapters.items():
                    hits[prior] += int((adapter(shifted).argmax(1) == part.labels).sum())
    return PriorChoice(batch, {prior: hits[prior] / images for prior in priors})
