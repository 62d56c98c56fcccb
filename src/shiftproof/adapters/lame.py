"""LAME: no learning; the outputs of a batch are smoothed over near neighbours (Boudiaf et al. 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from shiftproof.adapters.features import features_and_logits
from shiftproof.adapters.method import Method, Parts
from shiftproof.adapters.method_options import MethodOptions
from shiftproof.adapters.norms import SourceStatistics
from shiftproof.options import Count

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

TINY = 1e-10


def affinity(features: Tensor, neighbours: int) -> Tensor:
    """Return a Gaussian kernel between unit features, [N, N]; its width is the mean distance to the k-th nearest.

    The image itself counts as its nearest neighbour.
    """
    features = features / features.norm(dim=1, keepdim=True).clamp_min(TINY)
    distances = torch.cdist(features, features)
    width = distances.topk(min(neighbours, len(features)), dim=1, largest=False).values[:, -1].mean()
    return torch.exp(-distances.square() / (2 * width.square()).clamp_min(TINY))


def laplacian_smoothing(p: Tensor, kernel: Tensor, steps: int = 100, tolerance: float = 1e-8) -> Tensor:
    """Return the assignments [N, C] that a bound optimiser finds for probabilities and affinities."""
    unary = -torch.log(p + TINY)
    assignment, energy = (-unary).softmax(1), float("inf")
    for step in range(steps):
        pairwise = kernel @ assignment
        assignment = (-unary + pairwise).softmax(1)
        new = float((unary * assignment - pairwise * assignment + assignment * (assignment + 1e-20).log()).sum())
        if step > 1 and abs(new - energy) <= tolerance * abs(energy):
            break
        energy = new
    return assignment


class LameOptions(MethodOptions):
    """Options of LAME."""

    neighbours: Annotated[
        Count, "The kernel is as wide as the mean distance to the nearest neighbour of this number."
    ] = 5


def _lame(o: LameOptions) -> Parts:
    def learn(adapter: Adapter, images: Tensor) -> Tensor:
        features, logits = features_and_logits(adapter.model, adapter.run, images)
        smoothed = laplacian_smoothing(logits.softmax(1), affinity(features, o.neighbours))
        return torch.log(smoothed + TINY)

    return Parts(norm=SourceStatistics(), learn=learn, predict=learn)


LAME = Method(
    name="lame",
    paper="Boudiaf et al. 2022",
    parts=_lame,
    defaults=LameOptions(),
    needs_gradients=False,
    needs_norm_layers=False,
    needs_features=True,
    departures="returns the logarithm of the smoothed probabilities",
)
