"""Neighbourhood invariance: how often a model keeps its answer when an input changes a little (Ng et al. 2023)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from shiftproof.estimators import neighborhoods
from shiftproof.estimators.evidence import BATCH_SIZE, as_batches, observe
from shiftproof.estimators.neighborhoods import NeighborhoodLike
from shiftproof.estimators.results import DRAWS
from shiftproof.measures.estimation import (
    Array,
    bootstrap_means,
    decision_negative_entropy,
    modal_share,
    percentile_interval,
)
from shiftproof.models import device_of
from shiftproof.runs import Json

LABELS_DESTROYED = 0.1
"""Outputs on views may be so much less certain, in nats, before the views count as destroying labels (figure 5)."""


@dataclass(frozen=True, eq=False)
class Invariance:
    """The invariance of a model on N inputs over a neighbourhood.

    `per_input` [N] is the share of the most common prediction among n views and the input itself, from 1/K to 1; low
    values mark unusual inputs.

    Args:
        per_input: The share of the most common prediction among the views, [N].
        negative_entropy: Negative entropy of the predicted classes over the views, [N].
        entropy_difference: Increase in predictive entropy from inputs to views, in nats.
        n: Number of views.
        neighborhood: Neighbourhood that the views are drawn from.
    """

    per_input: Array
    negative_entropy: Array
    entropy_difference: float
    n: int
    neighborhood: str

    @property
    def value(self) -> float:
        """The mean over inputs."""
        return float(self.per_input.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the mean, by bootstrap over inputs."""
        return percentile_interval(bootstrap_means(self.per_input, draws=DRAWS))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons not to trust the value."""
        return destroyed(self.entropy_difference, self.neighborhood)

    def to_row(self) -> dict[str, Json]:
        """Return the numbers as JSON-compatible values, without those per input."""
        low, high = self.interval
        return {
            "invariance": self.value,
            "low": low,
            "high": high,
            "negative_entropy": float(self.negative_entropy.mean()),
            "entropy_difference": self.entropy_difference,
            "inputs": len(self.per_input),
            "views": self.n,
            "neighborhood": self.neighborhood,
            "warnings": list(self.warnings),
        }


def neighborhood_invariance(
    model: Callable[..., Any],
    inputs: Any,
    neighborhood: NeighborhoodLike = "randaugment",
    *,
    n: int = 10,
    keys: Tensor | None = None,
    seed: int = 0,
    batch_size: int = BATCH_SIZE,
) -> Invariance:
    """Return how invariant a model's predictions are in a neighbourhood of each input, without labels or gradients.

    The views of an input depend on its key and the seed, not on its batch.

    Args:
        model: A callable from inputs to logits [N, K].
        inputs: Images [N, C, H, W] in [0, 1], a `Dataset`, or a list of texts.
        neighborhood: One of `NEIGHBORHOODS`, a shift, or a function `(inputs, keys, n, seed) -> views`.
        n: Number of views of each input.
        keys: One integer per input, which determines its views.
        seed: The seed of the views.
        batch_size: Inputs and views per forward pass.
    """
    chosen = neighborhoods.neighborhood(neighborhood)
    batches = as_batches(inputs, keys=keys, batch_size=batch_size, device=device_of(model))
    found = observe(model, batches, neighborhood=chosen, n=n, seed=seed, batch_size=batch_size)
    return Invariance(
        per_input=modal_share(found.shares),
        negative_entropy=decision_negative_entropy(found.shares),
        entropy_difference=found.entropy_difference or 0.0,
        n=n,
        neighborhood=str(neighborhood) if isinstance(neighborhood, str) else str(chosen),
    )


def destroyed(entropy_difference: float | None, neighborhood: str) -> tuple[str, ...]:
    """Return the warning that a neighbourhood destroys labels, if it does."""
    if entropy_difference is None or entropy_difference <= LABELS_DESTROYED:
        return ()
    return (
        f"The neighbourhood {neighborhood!r} seems to destroy labels: outputs on views have {entropy_difference:.2f} "
        f"nats more entropy than on the inputs, where up to about {LABELS_DESTROYED} has been seen to work.",
    )
