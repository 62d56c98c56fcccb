"""Help for black boxes, by their outputs alone: the classes of a batch estimated from it, or its outputs smoothed.

Both help where images of a class come together and harm where they do not, so they are to be switched on by evidence:
as candidates of `safe`, for instance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import torch
from torch import Tensor, nn

from shiftproof.adapters.lame import TINY, LameOptions, affinity, laplacian_smoothing
from shiftproof.adapters.method import Method, Parts
from shiftproof.adapters.method_options import MethodOptions
from shiftproof.adapters.norms import SourceStatistics
from shiftproof.models.blackbox import BlackBox
from shiftproof.models.outputs import are_probabilities
from shiftproof.options import Count, NotNegative

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter


class Outputs(nn.Module):
    """A black box as a module without layers, for methods that need outputs alone."""

    def __init__(self, box: BlackBox) -> None:
        super().__init__()
        self.box = box

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores, where the images are."""
        return self.box(images).to(images.device)

    def __deepcopy__(self, memo: dict[int, object]) -> Outputs:
        """Return a module over the same box: it does not change, and a service cannot be copied."""
        return Outputs(self.box)

    def get_extra_state(self) -> str:
        """Return what tells the box from others."""
        return self.box.fingerprint

    def set_extra_state(self, state: str) -> None:
        """Leave the box as it is; an adapter compares its source before."""


def log_probabilities(scores: Tensor) -> Tensor:
    """Return logarithms of probabilities, [N, C], of logits or of probabilities themselves."""
    return scores.clamp_min(TINY).log() if are_probabilities(scores) else scores.log_softmax(1)


def estimated_prior(logs: Tensor, rounds: int, pseudo_counts: float) -> Tensor:
    """Return the shares of the classes in a batch of log-probabilities [N, C], by expectation maximisation.

    Saerens et al. 2002, from a model trained on classes in equal shares: the probabilities of an image are weighted by
    the shares so far, and the shares are their mean, in which equal shares count for `pseudo_counts` images.
    """
    count, classes = logs.shape
    prior = logs.new_full((classes,), 1 / classes)
    for _ in range(rounds):
        weights = (logs + prior.log()).softmax(1)
        prior = (weights.sum(0) + pseudo_counts / classes) / (count + pseudo_counts)
        prior = prior.clamp_min(TINY)
    return prior


def smoothed_prior(logs: Tensor) -> Tensor:
    """Return the mean prediction of a batch, smoothed towards equal shares (Marsden et al. 2024, ROID)."""
    prior = logs.exp().mean(0)
    smooth = max(1 / len(logs), 1 / logs.shape[1]) / prior.max()
    return (prior + smooth) / (1 + smooth * logs.shape[1])


class PriorOptions(MethodOptions):
    """Options of the prior correction."""

    estimate: Annotated[
        Literal["em", "smoothed"], "How shares of classes are estimated: by em, or as the smoothed mean prediction."
    ] = "em"
    rounds: Annotated[Count, "Rounds of em."] = 20
    pseudo_counts: Annotated[NotNegative, "For how many images equal shares count, per image of the batch."] = 0.5


def _prior(o: PriorOptions) -> Parts:
    def learn(adapter: Adapter, images: Tensor) -> Tensor:
        logs = log_probabilities(adapter.run(images))
        em = o.estimate == "em"
        prior = estimated_prior(logs, o.rounds, o.pseudo_counts * len(logs)) if em else smoothed_prior(logs)
        return (logs + prior.log()).log_softmax(1)

    return Parts(norm=SourceStatistics(), learn=learn, predict=learn)


def _lame_outputs(o: LameOptions) -> Parts:
    def learn(adapter: Adapter, images: Tensor) -> Tensor:
        logs = log_probabilities(adapter.run(images))
        centred = logs - logs.mean(1, keepdim=True)
        return torch.log(laplacian_smoothing(logs.exp(), affinity(centred, o.neighbours)) + TINY)

    return Parts(norm=SourceStatistics(), learn=learn, predict=learn)


PRIOR = Method(
    name="prior",
    paper="Saerens et al. 2002; Marsden et al. 2024",
    parts=_prior,
    defaults=PriorOptions(),
    needs_gradients=False,
    needs_norm_layers=False,
    departures="equal shares count for half a batch, so that mixed batches lose less; the training data are taken to "
    "have classes in equal shares; shares multiply probabilities, where ROID's released code multiplies logits",
)
LAME_OUTPUTS = Method(
    name="lame_outputs",
    paper="Boudiaf et al. 2022",
    parts=_lame_outputs,
    defaults=LameOptions(),
    needs_gradients=False,
    needs_norm_layers=False,
    departures="neighbours are those of the outputs, centred log-probabilities, in place of features",
)
