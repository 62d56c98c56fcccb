"""Norm policies: which statistics batch normalisation uses while adapting.

The batch norms of the adapted copy are replaced by `AdaptiveBatchNorm`, which keeps the source statistics for good and
asks its policy for the statistics to normalise with. Group and layer normalisation take theirs from each image and are
left alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from shiftproof.models.moments import batch_norm, batch_norm_with, moments

Variance = Literal["biased", "unbiased"]


class Gathered(NamedTuple):
    """Statistics of the target gathered so far, [C] each, and from how many images, []."""

    target_mean: Tensor
    target_var: Tensor
    seen: Tensor


class NormPolicy(Protocol):
    """Chooses the statistics of a batch norm."""

    def normalise(self, norm: AdaptiveBatchNorm, x: Tensor) -> Tensor:
        """Return the normalised and scaled input."""

    def statistics(self, norm: AdaptiveBatchNorm, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and variance to normalise an input with, [C] each."""


class AdaptiveBatchNorm(nn.Module):
    """A batch norm (of any number of dimensions) that keeps its source statistics and normalises by a policy.

    `weight` and `bias` are those of the layer it replaces, `then` the layers that one held itself (activations, in
    timm's fused layers). `target_mean`, `target_var` and `seen` hold gathered statistics for the policies that use
    them, and start at those of the source; a forward pass proposes new ones as `pending`, and `commit_all` makes them
    last, so that a batch that is only predicted, or turns out to be unusable, leaves nothing behind.
    """

    source_mean: Tensor | None
    source_var: Tensor | None
    target_mean: Tensor
    target_var: Tensor
    seen: Tensor

    def __init__(self, norm: _BatchNorm, policy: NormPolicy) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.then = nn.ModuleList(norm.children())
        self.policy = policy
        self.pending: Gathered | None = None
        like = next((each for each in (norm.running_mean, norm.weight) if each is not None), torch.empty(0))
        nothing = like.detach().new_zeros(norm.num_features)
        for name, source in (("mean", norm.running_mean), ("var", norm.running_var)):
            self.register_buffer(f"source_{name}", None if source is None else source.detach().clone())
            self.register_buffer(f"target_{name}", (nothing if source is None else source.detach()).clone())
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64, device=like.device))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise over all dimensions but the second."""
        x = self.policy.normalise(self, x)
        for layer in self.then:
            x = layer(x)
        return x

    @property
    def gathered(self) -> Gathered:
        """The statistics gathered so far, those of the last forward pass included."""
        return self.pending or Gathered(self.target_mean, self.target_var, self.seen)

    def with_batch(self, x: Tensor) -> Tensor:
        """Normalise with the biased statistics of this very input."""
        return batch_norm(x, self.weight, self.bias, self.eps)

    def with_statistics(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """Normalise with given statistics, [C] each, letting gradients through them."""
        return batch_norm_with(x, mean, var, self.weight, self.bias, self.eps)

    def with_source(self, x: Tensor) -> Tensor:
        """Normalise with the source statistics; with the batch's own where the layer never had any."""
        if self.source_mean is None or self.source_var is None:
            return self.with_batch(x)
        return self.with_statistics(x, self.source_mean, self.source_var)


def batch_statistics(x: Tensor, variance: Variance = "biased") -> tuple[Tensor, Tensor]:
    """Return the mean and variance of an input over all dimensions but the second, [C] each, float32 or wider."""
    several = x.numel() > x.shape[1]
    return moments(x, correction=1 if variance == "unbiased" and several else 0)


@dataclass(frozen=True)
class SourceStatistics:
    """Normalise with the statistics of the training data, as the model does unadapted."""

    def normalise(self, norm: AdaptiveBatchNorm, x: Tensor) -> Tensor:
        """Use the source statistics."""
        return norm.with_source(x)

    def statistics(self, norm: AdaptiveBatchNorm, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return those of the source, or of the batch where the layer never had any."""
        if norm.source_mean is None or norm.source_var is None:
            return batch_statistics(x)
        return norm.source_mean, norm.source_var


@dataclass(frozen=True)
class BatchStatistics:
    """Normalise with the batch, mixed with the source as if it were `prior` more images (Schneider et al. 2020).

    mean = N / (N + n) mu_source + n / (N + n) mu_batch, the same for the variance, n being the images of this batch,
    or `images` where the batch is made of views of so many. A prior of 0 is the batch alone, of infinity the source
    alone. The paper's release mixes in the unbiased variance of the batch; the gradient methods use the biased one.
    """

    prior: float = 0.0
    variance: Variance = "biased"
    images: int | None = None

    def normalise(self, norm: AdaptiveBatchNorm, x: Tensor) -> Tensor:
        """Mix source and batch statistics."""
        if norm.source_mean is None or norm.source_var is None or (self.prior == 0 and self.variance == "biased"):
            return norm.with_batch(x)
        if math.isinf(self.prior):
            return norm.with_source(x)
        return norm.with_statistics(x, *self.statistics(norm, x))

    def statistics(self, norm: AdaptiveBatchNorm, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mixture."""
        mean, var = batch_statistics(x, self.variance)
        if norm.source_mean is None or norm.source_var is None:
            return mean, var
        share = 1.0 if math.isinf(self.prior) else self.prior / (self.prior + (self.images or len(x)))
        return torch.lerp(mean, norm.source_mean, share), torch.lerp(var, norm.source_var, share)


@dataclass(frozen=True)
class PartStatistics:
    """Normalise each of several equal parts of a batch with its own statistics, as if it had come by itself."""

    parts: int

    def normalise(self, norm: AdaptiveBatchNorm, x: Tensor) -> Tensor:
        """Make the channels of every part channels of their own."""
        weight, bias = (None if given is None else given.repeat(self.parts) for given in (norm.weight, norm.bias))
        made = batch_norm(self._side_by_side(x), weight, bias, norm.eps)
        return made.view(len(made), self.parts, *x.shape[1:]).transpose(0, 1).flatten(0, 1)

    def statistics(self, norm: AdaptiveBatchNorm, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return those of every part, one after another, [parts * C] each."""
        return batch_statistics(self._side_by_side(x))

    def _side_by_side(self, x: Tensor) -> Tensor:
        """Return [N / parts, parts * C, ...] of [N, C, ...]."""
        return x.reshape(self.parts, -1, *x.shape[1:]).transpose(0, 1).flatten(1, 2)


@dataclass(frozen=True)
class RunningStatistics:
    """Normalise with target statistics gathered over the stream so far, this batch included.

    `momentum` is the share of the new batch in an exponential average that starts at the source statistics; None is
    the cumulative mean over all images seen, mixed with the source as `prior` more images.
    """

    momentum: float | None = None
    prior: float = 0.0

    def normalise(self, norm: AdaptiveBatchNorm, x: Tensor) -> Tensor:
        """Propose statistics that include this batch and use them."""
        return norm.with_statistics(x, *self.statistics(norm, x))

    def statistics(self, norm: AdaptiveBatchNorm, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return those of the stream with this batch, and propose them to be kept."""
        mean, var, seen = self._with(norm, *batch_statistics(x), len(x))
        norm.pending = Gathered(mean.detach(), var.detach(), seen)
        if norm.source_mean is not None and norm.source_var is not None and self.momentum is None and self.prior:
            share = self.prior / (self.prior + seen.to(mean.dtype))
            mean, var = torch.lerp(mean, norm.source_mean, share), torch.lerp(var, norm.source_var, share)
        return mean, var

    def _with(self, norm: AdaptiveBatchNorm, mean: Tensor, var: Tensor, images: int) -> Gathered:
        old_mean, old_var, seen = norm.gathered
        if self.momentum is not None:
            if norm.source_mean is not None and norm.source_var is not None:
                share: float | Tensor = self.momentum
            else:
                share = torch.where(seen == 0, 1.0, self.momentum).to(mean.dtype)
            return Gathered(torch.lerp(old_mean, mean, share), torch.lerp(old_var, var, share), seen + images)
        share = images / (seen + images).to(mean.dtype)
        # The variance of a union is the mean variance and the variance of the means (Chan et al. 1979).
        between = (mean - old_mean).square() * share * (1 - share)
        return Gathered(torch.lerp(old_mean, mean, share), torch.lerp(old_var, var, share) + between, seen + images)


@dataclass(frozen=True)
class GatheredStatistics:
    """Normalise with the target statistics gathered so far, without this batch; with the source before there are any.

    Nothing here gathers: methods do that at moments of their own choice, with `RunningStatistics`.
    """

    def normalise(self, norm: AdaptiveBatchNorm, x: Tensor) -> Tensor:
        """Use the gathered statistics."""
        return norm.with_statistics(x, *self.statistics(norm, x))

    def statistics(self, norm: AdaptiveBatchNorm, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return those gathered; before there are any, the source's, or the batch's where it never had any."""
        if norm.source_mean is not None and norm.source_var is not None:
            return norm.target_mean, norm.target_var
        mean, var = batch_statistics(x)
        first = norm.seen == 0
        return torch.where(first, mean, norm.target_mean), torch.where(first, var, norm.target_var)


@dataclass(frozen=True)
class Fixing:
    """Normalise as another policy does, and keep the statistics it used."""

    policy: NormPolicy

    def normalise(self, norm: AdaptiveBatchNorm, x: Tensor) -> Tensor:
        """Keep, and use what is kept."""
        for kept, used in zip((norm.target_mean, norm.target_var), self.statistics(norm, x), strict=True):
            kept.copy_(used)
        norm.seen.fill_(len(x))
        return norm.with_statistics(x, norm.target_mean, norm.target_var)

    def statistics(self, norm: AdaptiveBatchNorm, x: Tensor) -> tuple[Tensor, Tensor]:
        """Ask the other policy."""
        return self.policy.statistics(norm, x)


def commit_all(norms: Collection[AdaptiveBatchNorm]) -> None:
    """Make the statistics last that the last forward pass proposed, all at once: devices are slow to start copies."""
    proposed = [(norm, norm.pending) for norm in norms if norm.pending is not None]
    for part in Gathered._fields if proposed else ():
        torch._foreach_copy_([getattr(norm, part) for norm, _ in proposed], [getattr(new, part) for _, new in proposed])
    for norm, _ in proposed:
        norm.pending = None


def replace_batch_norms(model: nn.Module, policy: NormPolicy) -> dict[str, AdaptiveBatchNorm]:
    """Replace every batch norm inside a model, in place, and return those put there; a shared one stays shared."""
    found = [pair for pair in model.named_modules(remove_duplicate=False) if isinstance(pair[1], _BatchNorm)]
    made: dict[nn.Module, AdaptiveBatchNorm] = {}
    named: dict[str, AdaptiveBatchNorm] = {}
    for name, norm in found:
        if norm not in made:
            named[name] = made[norm] = AdaptiveBatchNorm(norm, policy).train(norm.training)
        parent_name, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent_name), child, made[norm])
    return named
