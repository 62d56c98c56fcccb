"""Statistics alone, no gradients: the source model, and batch normalisation with a source prior."""

from __future__ import annotations

from shiftproof.adapters.method import Method, Options, Parts
from shiftproof.adapters.norms import BatchStatistics, NormPolicy, RunningStatistics, SourceStatistics
from shiftproof.errors import ConfigurationError


def _source(o: Options) -> Parts:
    return Parts(norm=SourceStatistics())


def _bn(o: Options) -> Parts:
    if not isinstance(o.prior, int | float) or isinstance(o.prior, bool) or o.prior < 0:
        raise ConfigurationError(
            "The prior must be a number of images.", expected="0 or more; inf is the source alone", came=repr(o.prior)
        )
    if o.window and o.statistics != "batch":
        raise ConfigurationError(
            "A window and running statistics are two ways to the same end.",
            expected="statistics='batch' with a window, or no window",
            came=f"statistics={o.statistics!r} with window={o.window}",
        )
    return Parts(norm=_policy(o))


def _policy(o: Options) -> NormPolicy:
    if o.statistics == "batch":
        return BatchStatistics(float(o.prior), o.variance)
    if o.statistics == "ema":
        return RunningStatistics(momentum=o.ema)
    if o.statistics == "cumulative":
        return RunningStatistics(prior=float(o.prior))
    raise ConfigurationError(
        "There are no such statistics.", expected="batch, ema or cumulative", came=repr(o.statistics)
    )


SOURCE = Method(
    name="source",
    paper="none: the model as it is",
    parts=_source,
    needs_gradients=False,
    needs_norm_layers=False,
    own_memory=True,
)
BN = Method(
    name="bn",
    paper="Schneider et al. 2020; Nado et al. 2020",
    parts=_bn,
    defaults={"prior": 0, "statistics": "batch", "ema": 0.1, "variance": "biased"},
    release={"variance": "unbiased"},
    needs_gradients=False,
    min_batch=2,
    departures="the released code mixes in the unbiased variance of the batch (variant='release')",
)
