"""Between the network as it was and as it was trained: how far to go (Wortsman et al. 2022, weight interpolation)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Self

import torch
from torch import Tensor, nn

from shiftproof.data import ImageSet
from shiftproof.hardening.weaknesses import probe
from shiftproof.runs import Json, Row
from shiftproof.training.goals import GoalScore
from shiftproof.training.running import accuracy

SHARES = (1.0, 0.9, 0.8, 0.7, 0.65, 0.6, 0.55, 0.5, 0.4, 0.25)
"""How far on the way from the old weights to the new ones candidates are."""
PROBING = 500
"""Images for choosing that are seen under what was weak in particular, at most."""


@dataclass(frozen=True)
class Candidate:
    """Weights on the way: how far, and what they reach on the images for choosing, clean and under hold-out shifts.

    `weak` is the accuracy under what the network was found weak to in particular, where there is such a thing.
    """

    share: float
    clean: float
    holdout: float
    weak: float | None = None

    @property
    def score(self) -> float:
        """What is best: the hold-out shifts, and the particular weaknesses as much as they."""
        return self.holdout if self.weak is None else (self.holdout + self.weak) / 2

    def to_row(self) -> dict[str, Json]:
        """Return the candidate as JSON values."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Return the candidate of a row."""
        share, clean, holdout, weak = (row[name] for name in ("share", "clean", "holdout", "weak"))
        known = None if weak is None else float(str(weak))
        return cls(float(str(share)), float(str(clean)), float(str(holdout)), known)


def between(old: Mapping[str, Tensor], new: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return weights and statistics at a share of the way; what cannot be averaged, such as a counter, is the new."""
    return {
        name: torch.lerp(old[name].to(value.device, value.dtype), value, share) if value.is_floating_point() else value
        for name, value in new.items()
    }


def candidates(
    old: nn.Module, new: nn.Module, data: ImageSet, probes: Sequence[str] = (), *, seed: int, size: int
) -> list[Candidate]:
    """Measure the network as it was, which is a share of 0, and those on the way to the new one.

    `probes` are the augmentations under which it was found weak in particular.
    """
    probing = data.take(PROBING, seed=seed)
    score = GoalScore("corruptions", data, sigma=0.0, seed=seed, batch_size=size)
    network, before, after = copy.deepcopy(new).eval(), old.state_dict(), new.state_dict()
    found = []
    for share in (0.0, *SHARES):
        network.load_state_dict(between(before, after, share) if share else before)
        weak = probe(network, probing, probes, seed=seed, size=size) if probes else []
        told = sum(weak) / len(weak) if weak else None
        found.append(Candidate(share, accuracy(network, data, size), score(network), told))
    return found


def ranked(found: Sequence[Candidate], max_clean_loss: float) -> list[Candidate]:
    """Return those that lose no more clean accuracy than a share and beat the network as it was, the best first.

    The best is so by its score; those after it are more careful, and worse.

    >>> found = [Candidate(0.0, 0.9, 0.7), Candidate(1.0, 0.85, 0.8), Candidate(0.5, 0.895, 0.78)]
    >>> [each.share for each in ranked(found, 0.01)]
    [0.5]
    """
    start = next(each for each in found if each.share == 0.0)
    kept = [each for each in found if start.clean - each.clean <= max_clean_loss + 1e-9 and each.score > start.score]
    kept.sort(key=lambda each: (-each.score, -each.clean))
    first = kept[0].share if kept else 0.0
    return [each for each in kept if each.share <= first]
