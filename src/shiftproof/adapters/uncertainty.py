"""What the entropy methods lower: the entropy of the softmax, or COME's, which has an outcome for not knowing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal

import torch
from torch import Tensor

from shiftproof.adapters.losses import entropy

Uncertainty = Annotated[
    Literal["entropy", "come"],
    "What is lowered, and what filters go by: the entropy of the softmax, or of COME's opinion (raw logits alone).",
]


def opinion_entropy(logits: Tensor) -> Tensor:
    """Entropy of the opinion of C classes and of not knowing, [N] (Zhang et al. 2025, COME).

    With evidence exp(z) the belief in a class is exp(z_c) / (S + C) and the uncertainty C / (S + C), S the sum of all
    evidence. Only the direction of the logits learns, their length is held. Adding a constant to the logits changes it:
    it is of no use on log-probabilities.
    """
    length: Tensor = torch.linalg.vector_norm(logits, dim=1, keepdim=True)
    held = logits / length.clamp_min(torch.finfo(logits.dtype).tiny) * length.detach()
    classes = math.log(logits.shape[1])
    total = torch.logaddexp(held.logsumexp(1), held.new_tensor(classes))
    beliefs, unknown = held - total[:, None], classes - total
    found: Tensor = -(beliefs.exp() * beliefs).sum(1) - unknown.exp() * unknown
    return found


MEASURES: dict[str, Callable[[Tensor], Tensor]] = {"entropy": entropy, "come": opinion_entropy}
"""Name -> what it measures, one number per image."""
