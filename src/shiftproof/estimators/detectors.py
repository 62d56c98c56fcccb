"""Detectors of change in a stream with a controlled number of false alarms: e-detectors in Shiryaev-Roberts form.

A bet L_t against "nothing has changed" has a mean of 1 at most while that is so, whatever came before. R_t = (R_{t-1} +
1) L_t sums up the bets begun at every input so far, and as its mean is t at most, the probability that it reaches A
within N inputs is N / A at most (Shin, Ramdas & Rinaldo 2023): with A = 20,000 / alpha, alpha for a stream of 20,000
inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shiftproof.measures.estimation import Array

State: TypeAlias = dict[str, NDArray[Any]]
HeldState: TypeAlias = Mapping[str, NDArray[Any]]
"""Arrays by name: everything that changes, to be written and read."""

HORIZON = 20_000
"""False alarms are stated for streams of so many inputs."""

STAKES = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Shares that are bet: small ones find small changes, large ones large changes; the evidence is their mean."""

CHUNK = 128
"""Products of so many bets neither vanish nor overflow."""

LARGEST = 1e300


@dataclass
class Detector:
    """An alarm on bets [N, G], one column per stake: it rises when their evidence reaches HORIZON / alpha.

    `changed_at` is the input from which on the bets won, by the stake that won most; `seen` counts inputs.
    """

    alpha: float
    raised: bool = False
    changed_at: int | None = None
    seen: int = 0
    evidence: Array = field(default_factory=lambda: np.zeros(len(STAKES)))
    won: Array = field(default_factory=lambda: np.zeros(len(STAKES)))
    lowest: Array = field(default_factory=lambda: np.zeros(len(STAKES)))
    lowest_at: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(STAKES), np.int64))

    @property
    def threshold(self) -> float:
        """The evidence at which the alarm rises; also the mean number of inputs between false alarms, at least."""
        return HORIZON / self.alpha

    @property
    def progress(self) -> float:
        """How far the evidence is on its way to the threshold, as a share of its logarithm, from 0 to 1."""
        share = np.log1p(float(self.evidence.mean())) / np.log1p(self.threshold)
        return float(np.clip(share, 0.0, 1.0))

    def step(self, bets: Array) -> None:
        """Take in the bets of the next inputs, [N, G]."""
        for start in range(0, len(bets), CHUNK):
            self._step(bets[start : start + CHUNK])

    def _step(self, bets: Array) -> None:
        product = bets.cumprod(0)
        before = np.concatenate([np.ones((1, bets.shape[1])), product[:-1]])
        evidence = np.minimum(product * (self.evidence + (1 / before).cumsum(0)), LARGEST)
        won = self.won + np.log(bets).cumsum(0)
        reached = np.flatnonzero(evidence.mean(1) >= self.threshold)
        rises = len(reached) > 0 and not self.raised
        until = int(reached[0]) + 1 if rises else len(bets)
        places = won[:until].argmin(0)
        least = won[places, np.arange(won.shape[1])]
        self.lowest_at = np.where(least < self.lowest, self.seen + places + 1, self.lowest_at)
        self.lowest = np.minimum(least, self.lowest)
        if rises:
            self.raised = True
            self.changed_at = int(self.lowest_at[evidence[until - 1].argmax()])
        self.evidence, self.won = evidence[-1], won[-1]
        self.seen += len(bets)

    def restart(self) -> None:
        """Lower the alarm and forget the evidence."""
        self.raised, self.changed_at = False, None
        self.evidence, self.won, self.lowest = (np.zeros(len(STAKES)) for _ in range(3))
        self.lowest_at = np.full(len(STAKES), self.seen, np.int64)

    def state_dict(self) -> State:
        """Return everything that changes as arrays."""
        changed = -1 if self.changed_at is None else self.changed_at
        return {
            "counts": np.array([self.raised, changed, self.seen], np.int64),
            "sums": np.stack([self.evidence, self.won, self.lowest, self.lowest_at.astype(np.float64)]),
        }

    def load_state_dict(self, state: HeldState) -> None:
        """Go on from a state."""
        raised, changed, self.seen = (int(count) for count in state["counts"])
        self.raised, self.changed_at = bool(raised), None if changed < 0 else changed
        self.evidence, self.won, self.lowest, places = (np.array(row) for row in state["sums"])
        self.lowest_at = places.astype(np.int64)


def mean_bets(values: Array, least: float) -> Array:
    """Return bets that values in [0, 1] have a mean below `least`, [N, G]: 1 + stake (least - x), always positive.

    Their mean is 1 at most where the mean of a value, given all before it, is `least` or more.
    """
    stakes = np.array(STAKES) * min(1.0 / max(1e-6, 1 - least), 4.0)
    made: Array = 1 + stakes * (least - np.clip(values, 0, 1))[:, None]
    return made


class MixBets:
    """Bets that predicted classes come in other shares than usual, up to a tolerated factor for each class.

    The bet on the next class is its share among recent answers over its usual one: the recent ones are those before it.
    """

    MEMORY = 0.995
    PRIOR = 20.0

    def __init__(self, usual: Array, tolerated: float) -> None:
        self._limit = (1 + tolerated) * usual
        self._usual = usual
        self.recent = np.zeros_like(usual)

    def __call__(self, classes: NDArray[np.int64]) -> Array:
        """Return the bets on the next answers, [N, G]."""
        stakes = np.array(STAKES)
        made = np.empty((len(classes), len(stakes)))
        for place, answer in enumerate(classes.tolist()):
            total = self.recent.sum() + self.PRIOR
            share = (self.recent[answer] + self.PRIOR * self._usual[answer]) / total
            made[place] = 1 - stakes + stakes * share / self._limit[answer]
            self.recent *= self.MEMORY
            self.recent[answer] += 1
        return made
