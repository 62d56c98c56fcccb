"""Losses of robust training as pure functions of logits: one number per image, gradients let through.

Views and noisy copies of an image come first, images second to last: `logits` are [copies, N, K] or
[views, copies, N, K]. Every function returns [N].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

Direction: TypeAlias = Literal["to_mean", "from_mean"]
"""`to_mean` is KL(p_i || p_bar), the half of a Jensen-Shannon divergence; `from_mean` is KL(p_bar || p_i)."""

PROBABILITY_FLOOR = 1e-7
"""Probabilities are held this far from 0 and 1 where their Gaussian quantile is taken."""


def cross_entropy(logits: Tensor, labels: Tensor, *, smoothing: float = 0.0, averaged: bool = True) -> Tensor:
    """Cross-entropy of labels [N], averaged over any leading dimensions of the logits, [..., N, K] -> [N].

    Leading dimensions stay if it is not `averaged`. A share `smoothing` of the target is spread over all classes
    alike (Szegedy et al. 2016).
    """
    logs = logits.log_softmax(-1)
    picked = logs.gather(-1, labels.expand(logits.shape[:-1])[..., None])[..., 0]
    if smoothing:
        picked = (1.0 - smoothing) * picked + smoothing * logs.mean(-1)
    return -picked.flatten(0, -2).mean(0) if averaged and logits.ndim > 2 else -picked


def log_mean(logs: Tensor, dim: int = 0) -> Tensor:
    """Return the logarithm of the mean of probabilities given by their logarithms."""
    return logs.logsumexp(dim) - math.log(logs.shape[dim])


def kl(first: Tensor, second: Tensor) -> Tensor:
    """Kullback-Leibler divergence KL(first || second) over the last dimension, of logarithms of probabilities."""
    return (first.exp() * (first - second)).sum(-1)


def spread(logs: Tensor, mean: Tensor, direction: Direction = "to_mean") -> Tensor:
    """Mean over the first dimension of the divergence between distributions and one mean, [M, ..., K] -> [...]."""
    if direction == "to_mean":
        return kl(logs, mean).mean(0)
    return kl(mean.expand_as(logs), logs).mean(0)


def jsd(logits: Tensor) -> Tensor:
    """Jensen-Shannon divergence of M predictions, in nats, [M, N, K] -> [N] (Hendrycks et al. 2020, AugMix)."""
    logs = logits.log_softmax(-1)
    return spread(logs, log_mean(logs))


def consistency(logits: Tensor, *, lam: float, eta: float) -> Tensor:
    """Consistency under noise: lam mean_i KL(p_bar || p_i) + eta H(p_bar), [M, N, K] -> [N] (Jeong & Shin 2020)."""
    logs = logits.log_softmax(-1)
    mean = log_mean(logs)
    entropy = -(mean.exp() * mean).sum(-1)
    return lam * spread(logs, mean, "from_mean") + eta * entropy


def hcr(logits: Tensor, *, lam: float, eta: float, direction: Direction = "to_mean") -> Tensor:
    """Hierarchical consistency of J views with S noises each, [J, S, N, K] -> [N] (Sun et al. 2022, equations 3, 4).

    eta mean_j mean_i KL(p_ji || p_j) + lam mean_j KL(p_j || p), where p_j is the mean over a view's noises and p the
    mean over views: two levels of Jensen-Shannon divergence. `direction="from_mean"` turns both divergences round.
    """
    logs = logits.log_softmax(-1)
    views = log_mean(logs, 1)
    within = spread(logs.transpose(0, 1), views, direction).mean(0)
    return eta * within + lam * spread(views, log_mean(views), direction)


def macer(logits: Tensor, labels: Tensor, *, sigma: float, lam: float, gamma: float, beta: float) -> Tensor:
    """Maximise the certified radius, from k noisy copies [k, N, K] -> [N] (Zhai et al. 2020).

    The cross-entropy of the mean prediction and, where the mean of the predictions at inverse temperature `beta` is
    right, lam sigma / 2 max(0, gamma - xi), with xi the difference of the Gaussian quantiles of the label's probability
    and the runner-up's: sigma xi / 2 is the soft certified radius.
    """
    smoothed = log_mean(logits.log_softmax(-1))
    classified = F.nll_loss(smoothed, labels, reduction="none")
    chances = (beta * logits).softmax(-1).mean(0)
    place = labels[:, None]
    own = chances.gather(1, place)[:, 0]
    other = chances.scatter(1, place, -1.0).amax(1)
    quantiles = torch.special.ndtri(torch.stack([own, other]).clamp(PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR))
    short = (gamma - (quantiles[0] - quantiles[1])).clamp_min(0.0)
    return classified + torch.where(own > other, lam * sigma / 2 * short, torch.zeros_like(short))


def smoothed_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the mean prediction over noises, [m, N, K] -> [N]: the loss of the smoothed classifier."""
    return F.nll_loss(log_mean(logits.log_softmax(-1)), labels, reduction="none")


def smoothadv(
    network: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    noise: Tensor,
    *,
    eps: float,
    steps: int,
) -> Tensor:
    """Return adversarial images against the smoothed classifier (Salman et al. 2019, SmoothAdv with PGD).

    Projected gradient ascent on `smoothed_cross_entropy` over the given noise [m, N, C, H, W], in the L2 ball of radius
    `eps` round each of the images [N, C, H, W], `steps` steps of length 2 eps / steps. Results stay in [0, 1]. The
    parameters of the network get no gradients.
    """
    if eps == 0.0 or steps == 0:
        return images
    change = torch.zeros_like(images)
    for _ in range(steps):
        change.requires_grad_(True)
        with torch.enable_grad():
            seen = (images + change + noise).flatten(0, 1)
            logits = network(seen).float().view(len(noise), len(images), -1)
            (slope,) = torch.autograd.grad(smoothed_cross_entropy(logits, labels).sum(), change)
        with torch.no_grad():
            change = project(change + slope / norm(slope).clamp_min(1e-12) * (2 * eps / steps), eps)
            change = (images + change).clamp_(0.0, 1.0).sub_(images)
    return (images + change).detach()


def project(change: Tensor, eps: float) -> Tensor:
    """Return changes [N, C, H, W] shortened to an L2 norm of at most `eps`."""
    return change * (eps / norm(change).clamp_min(1e-12)).clamp_max(1.0)


def norm(change: Tensor) -> Tensor:
    """Return the L2 norm of each image, [N, 1, 1, 1]."""
    length: Tensor = torch.linalg.vector_norm(change, dim=(1, 2, 3), keepdim=True)
    return length
