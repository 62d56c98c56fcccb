"""Norm policies: which statistics batch normalisation uses while adapting.

The batch norms of the adapted copy are replaced by `AdaptiveBatchNorm`, which keeps the source statistics for good and
asks its policy for the statistics to normalise with. Group and layer normalisation take theirs from each image and are
left alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Variance = Literal["biased", "unbiased"]


class NormPolicy(Protocol):
    """Chooses the statistics of a batch norm."""

    def normalise(self, norm: AdaptiveBatchNorm, x: Tensor) -> Tensor:
        """Return the normalised and scaled input."""


class AdaptiveBatchNorm(nn.Module):
    """A batch norm (of any number of dimensions) that keeps its source statistics and normalises by a policy.

    `weight` and `bias` are those of the layer it replaces. `target_mean`, `target_var` and `seen` accumulate target
    statistics for the policies that use them.
    """

    source_mean: Tensor | None
    source_var: Tensor | None
    target_mean: Tensor
    target_var: Tensor
    seen: Tensor

    def __init__(self, norm: _BatchNorm, policy: NormPolicy) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.policy = policy
        for name, source in (("source_mean", norm.running_mean), ("source_var", norm.running_var)):
            self.register_buffer(name, None if source is None else source.detach().clone())
        start = torch.zeros(norm.num_features) if norm.running_mean is None else norm.running_mean.detach()
        self.register_buffer("target_mean", torch.zeros_like(start))
        self.register_buffer("target_var", torch.zeros_like(start))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64, device=start.device))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise over all dimensions but the second."""
        return self.policy.normalise(self, x)

    def with_batch(self, x: Tensor) -> Tensor:
        """Normalise with the biased statistics of this very input."""
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)

    def with_statistics(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """Normalise with given statistics, [C] each."""
        return F.batch_norm(x, mean, var, self.weight, self.bias, training=False, eps=self.eps)

    def with_source(self, x: Tensor) -> Tensor:
        """Normalise with the source statistics; with the batch's own where the layer never had any."""
        if self.source_mean is None or self.source_var is None:
            return self.with_batch(x)
        return self.with_statistics(x, self.source_mean, self.source_var)


def batch_statistics(x: Tensor, variance: Variance = "biased") -> tuple[Tensor, Tensor]:
    """Return the mean and variance of an input over all dimensions but the second, [C] each."""
    others = [dim for dim in range(x.ndim) if dim != 1]
    var, mean = torch.var_mean(x, others, correction=1 if variance == "unbiased" else 0)
    return mean, var


@dataclass(frozen=True)
class SourceStatistics:
    """Normalise with the statistics of the training data, as the model does unadapted."""

    def normalise(self, norm: AdaptiveBatchNorm, x: Tensor) -> Tensor:
        """Use the source statistics."""
        return norm.with_source(x)


@dataclass(frozen=True)
class BatchStatistics:
    """Normalise with the batch, mixed with the source as if it were `prior` more images (Schneider et al. 2020).

    mean = N / (N + n) mu_source + n / (N + n) mu_batch, the same for the variance, n being the images of this batch.
    A prior of 0 is the batch alone, of infinity the source alone. The paper's release mixes in the unbiased variance of
    the batch; the gradient methods use the biased one.
    """

    prior: float = 0.0
    variance: Variance = "biased"

    def normalise(self, norm: AdaptiveBatchNorm, x: Tensor) -> Tensor:
        """Mix source and batch statistics."""
        if norm.source_mean is None or norm.source_var is None or (self.prior == 0 and self.variance == "biased"):
            return norm.with_batch(x)
        if math.isinf(self.prior):
            return norm.with_source(x)
        mean, var = batch_statistics(x, self.variance)
        share = self.prior / (self.prior + len(x))
        return norm.with_statistics(
            x, torch.lerp(mean, norm.source_mean, share), torch.lerp(var, norm.source_var, share)
        )


@dataclass(frozen=True)
class RunningStatistics:
    """Normalise with target statistics gathered over the stream so far, this batch included.

    `momentum` is the share of the new batch in an exponential average that starts at the source statistics; None is
    the cumulative mean over all images seen, mixed with the source as `prior` more images.
    """

    momentum: float | None = None
    prior: float = 0.0

    def normalise(self, norm: AdaptiveBatchNorm, x: Tensor) -> Tensor:
        """Update the gathered statistics with this batch and use them."""
        mean, var = batch_statistics(x)
        with torch.no_grad():
            self._gather(norm, mean.detach(), var.detach(), len(x))
        if norm.source_mean is None or norm.source_var is None or self.momentum is not None or self.prior == 0:
            return norm.with_statistics(x, norm.target_mean, norm.target_var)
        share = self.prior / (self.prior + int(norm.seen))
        return norm.with_statistics(
            x,
            torch.lerp(norm.target_mean, norm.source_mean, share),
            torch.lerp(norm.target_var, norm.source_var, share),
        )

    def _gather(self, norm: AdaptiveBatchNorm, mean: Tensor, var: Tensor, images: int) -> None:
        seen = int(norm.seen)
        if self.momentum is not None:
            if seen == 0 and norm.source_mean is not None and norm.source_var is not None:
                norm.target_mean.copy_(norm.source_mean)
                norm.target_var.copy_(norm.source_var)
            share = self.momentum if seen or norm.source_mean is not None else 1.0
            norm.target_mean.lerp_(mean, share)
            norm.target_var.lerp_(var, share)
        else:
            share = images / (seen + images)
            # The variance of a union is the mean variance and the variance of the means (Chan et al. 1979).
            gap = mean - norm.target_mean
            norm.target_var.lerp_(var, share).add_(gap.square() * share * (1 - share))
            norm.target_mean.lerp_(mean, share)
        norm.seen += images


def replace_batch_norms(model: nn.Module, policy: NormPolicy) -> list[str]:
    """Replace every batch norm inside a model, in place, and return the names of those replaced."""
    found = [name for name, module in model.named_modules() if isinstance(module, _BatchNorm)]
    for name in found:
        parent_name, _, child = name.rpartition(".")
        parent = model.get_submodule(parent_name)
        setattr(parent, child, AdaptiveBatchNorm(getattr(parent, child), policy))
    return found
