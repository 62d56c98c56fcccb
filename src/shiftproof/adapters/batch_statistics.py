"""Statistics alone, no gradients: the source model, and batch normalisation with a source prior."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from torch import Tensor

from shiftproof.adapters.method import Method, Parts
from shiftproof.adapters.method_options import MethodOptions, Prior, RunningShare
from shiftproof.adapters.norms import (
    BatchStatistics,
    GatheredStatistics,
    NormPolicy,
    RunningStatistics,
    SourceStatistics,
)
from shiftproof.errors import ConfigurationError
from shiftproof.measures.prior_bounds import optimal_prior
from shiftproof.models.statistics import collect_statistics, source_statistics
from shiftproof.options import Words

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter


def _source(o: MethodOptions) -> Parts:
    return Parts(norm=SourceStatistics())


class BnOptions(MethodOptions):
    """Options of batch normalisation at test time."""

    prior: Prior = 0
    statistics: Annotated[
        Literal["batch", "ema", "cumulative", "full"],
        Words(headline="There are no such statistics."),
        "Which images normalise: the batch, the stream so far (ema, cumulative), or all of a target set (full).",
    ] = "batch"
    ema: RunningShare = 0.1
    target: Annotated[Any, "The images of the target set, a tensor or batches, for its full statistics."] = None
    variance: Annotated[Literal["biased", "unbiased"], "Which variance of a batch is mixed in."] = "biased"


def _bn(o: BnOptions) -> Parts:
    chosen_later = o.prior == "auto"
    if o.target is not None and o.statistics != "full":
        raise ConfigurationError(
            "A target set needs statistics='full'.",
            expected="statistics='full' with a target, or no target",
            got=f"statistics={o.statistics!r}",
        )
    if o.window and o.statistics != "batch":
        raise ConfigurationError(
            "A window cannot be combined with running statistics.",
            expected="statistics='batch' with a window, or no window",
            got=f"statistics={o.statistics!r} with window={o.window}",
        )
    if chosen_later and o.statistics != "batch":
        raise ConfigurationError(
            "prior='auto' works only with the statistics of single batches.",
            expected="prior='auto' with statistics='batch', or a number",
            got=f"prior='auto' with statistics={o.statistics!r}",
        )
    if chosen_later:
        learn, predict = (partial(_with_best_prior, o=o, remember=remember) for remember in (True, False))
        return Parts(learn=learn, predict=predict)
    if o.statistics == "full":
        return Parts(norm=GatheredStatistics(), start=partial(_take_statistics, o=o))
    return Parts(norm=_policy(o))


def _policy(o: BnOptions) -> NormPolicy:
    if o.statistics == "batch":
        return BatchStatistics(float(o.prior), o.variance)
    return RunningStatistics(momentum=o.ema) if o.statistics == "ema" else RunningStatistics(prior=float(o.prior))


def _with_best_prior(adapter: Adapter, images: Tensor, *, o: BnOptions, remember: bool) -> Tensor:
    """Answer with the prior that makes the upper bound of Proposition 1 least for the first batch since the start."""
    prior = adapter.memory.get("prior")
    if prior is None:
        source = copy.deepcopy(adapter.source).to(images.device)  # the adapter may have moved since
        target = collect_statistics(source, [images])
        prior = torch.tensor(optimal_prior(source_statistics(source), target, n=len(images)), dtype=torch.float64)
        if remember:
            adapter.memory["prior"] = prior
    with adapter.normalising(BatchStatistics(float(prior), o.variance)):
        return adapter.run(images)


def _take_statistics(adapter: Adapter, *, o: BnOptions) -> None:
    """Take the exact statistics of the whole target set, layer by layer, mixed with the source's as `prior` images."""
    target, prior = o.target, float(o.prior)
    if target is None:
        raise ConfigurationError(
            "Statistics of the whole target set need its images.",
            expected="target=images, a tensor or a list of batches, with statistics='full'",
            got="no target",
        )
    taken = collect_statistics(adapter.source, [target] if isinstance(target, Tensor) else target, exact=True)
    for layer in taken:
        norm = adapter.norms[layer.name]
        share = 1.0 if math.isinf(prior) else prior / (prior + (layer.images or 0))
        for name, kept, source in (
            ("mean", norm.target_mean, norm.source_mean),
            ("var", norm.target_var, norm.source_var),
        ):
            values = torch.from_numpy(getattr(layer, name)).to(kept)
            kept.copy_(values if source is None else torch.lerp(values, source, share))
        norm.seen.fill_(layer.images or 0)


SOURCE = Method(
    name="source",
    paper="none: the model as it is",
    per_pixel=True,
    parts=_source,
    needs_gradients=False,
    needs_norm_layers=False,
    own_memory=True,
)
BN = Method(
    name="bn",
    paper="Schneider et al. 2020; Nado et al. 2020",
    per_pixel=True,
    parts=_bn,
    defaults=BnOptions(),
    release={"variance": "unbiased"},
    needs_gradients=False,
    needs_batch_norm=True,
    min_batch=2,
    departures="the released code mixes in the unbiased variance of the batch (variant='release')",
)
