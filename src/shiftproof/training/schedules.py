"""Learning rates over a run, as pure functions of its progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

ScheduleName = Literal["step", "cosine", "constant"]
MILESTONES = (0.5, 0.75)
"""Where the step schedule falls, as shares of the run: after 100 and 150 of 200 epochs."""


def constant(progress: float) -> float:
    """Return 1 throughout."""
    return 1.0


def step(progress: float, milestones: Sequence[float] = MILESTONES, factor: float = 0.1) -> float:
    """Return 1, and `factor` times as much after each milestone.

    >>> [step(share) for share in (0.0, 0.49)], round(step(0.5), 3), round(step(0.8), 3)
    ([1.0, 1.0], 0.1, 0.01)
    """
    return float(factor ** sum(progress >= place for place in milestones))


def cosine(progress: float) -> float:
    """Return half a period of a cosine, from 1 to 0 (Loshchilov & Hutter 2017).

    >>> cosine(0.0), round(cosine(0.5), 6), cosine(1.0)
    (1.0, 0.5, 0.0)
    """
    return (1.0 + math.cos(math.pi * progress)) / 2.0


SCHEDULES: Mapping[ScheduleName, Callable[[float], float]] = MappingProxyType(
    {"step": step, "cosine": cosine, "constant": constant}
)
"""Name -> share of the learning rate by share of the run."""


def rate_at(step: int, steps: int, *, schedule: ScheduleName, warmup: int = 0) -> float:
    """Return the share of the learning rate at a step of a run; over the first `warmup` steps it rises to 1.

    >>> [rate_at(at, 10, schedule="constant", warmup=4) for at in (0, 1, 3, 5)]
    [0.25, 0.5, 1.0, 1.0]
    """
    if step < warmup:
        return (step + 1) / warmup
    return SCHEDULES[schedule]((step - warmup) / max(1, steps - warmup))
