"""Unsupervised losses on logits, one number per image: pure functions that methods compose.

`logits` are [N, C]; every function returns [N] and lets gradients through unless it says otherwise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """Shannon entropy of the softmax, in nats (Wang et al. 2021, Tent)."""
    logs = logits.log_softmax(1)
    return -(logs.exp() * logs).sum(1)


def robust_pseudo_label(logits: Tensor, q: float = 0.8) -> Tensor:
    """Generalised cross-entropy of the own arg max, (1 - p_y^q) / q (Rusak et al. 2022, RPL)."""
    return (1 - logits.softmax(1).amax(1) ** q) / q


def conjugate_poly(logits: Tensor, epsilon: float) -> Tensor:
    """Conjugate of the PolyLoss cross-entropy + epsilon (1 - p) (Goyal et al. 2022, CPL).

    The conjugate label solves (I + epsilon diag(p) - epsilon p p^T) y = p. By the Sherman-Morrison formula y is
    proportional to p / (1 + epsilon p), and sums to one. Gradients flow through y; epsilon = 0 is the entropy.
    """
    p = logits.softmax(1)
    y = p / (1 + epsilon * p)
    y = y / y.sum(1, keepdim=True)
    return logits.logsumexp(1) - (y * (logits - epsilon * (1 - p))).sum(1)


def soft_likelihood_ratio(logits: Tensor) -> Tensor:
    """Negative mean log odds, -sum_c p_c (log p_c - log(1 - p_c)) (Mummadi et al. 2021, SLR)."""
    return -(logits.softmax(1) * log_odds(logits)).sum(1)


def log_odds(logits: Tensor) -> Tensor:
    """Return log p - log(1 - p) of the softmax, [N, C], exact also where p rounds to 1.

    Only the largest p can exceed one half; its odds are its logit against the log-sum-exp of all others.
    """
    top = logits.argmax(1, keepdim=True)
    others = logits.scatter(1, top, -math.inf).logsumexp(1, keepdim=True)
    # The place of the largest is fed a harmless value, so that its gradient is no NaN.
    logs = logits.log_softmax(1).scatter(1, top, -1.0)
    return (logs - torch.log1p(-logs.exp())).scatter(1, top, logits.gather(1, top) - others)


def clipped_likelihood_ratio(logits: Tensor, clip: float = 0.99, slack: float = 1e-5) -> Tensor:
    """Soft likelihood ratio with probabilities clipped at `clip` (Marsden et al. 2024, ROID)."""
    p = logits.softmax(1).clamp(0.0, clip)
    return -(p * torch.log(p / (1 - p) + slack)).sum(1)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy against other logits' softmax, -sum_c softmax(target)_c log softmax(logits)_c."""
    return -(target.softmax(1) * logits.log_softmax(1)).sum(1)


def symmetric_cross_entropy(logits: Tensor, target: Tensor, share: float = 0.5) -> Tensor:
    """Cross-entropy both ways, weighted (1 - share) and share (Wang et al. 2019)."""
    return (1 - share) * cross_entropy(logits, target) + share * cross_entropy(target, logits)


def divergence_from_uniform(probabilities: Tensor) -> Tensor:
    """KL(p || uniform) of one distribution [C]: how far predictions are from using all classes alike."""
    p = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny)
    return (p * p.log()).sum() + math.log(len(p))
