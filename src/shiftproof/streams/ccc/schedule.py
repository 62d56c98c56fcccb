"""The schedule of a CCC run: which pair of corruptions, at which severities, each step is under (Press et al. 2023)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from shiftproof import shifts
from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.shifts import ImageChain, Shift
from shiftproof.streams.ccc.paths import Path

STEP = 0.25
LEVELS = 21
"""Severities 0, 0.25, ..., 5."""

LENGTH, SPEED, SEED = 100_000, 1000, 43
"""Images of a CCC run, images a step, and the seed of its schedule, where neither the caller nor a calibration says."""

LOOKED_BEYOND = 2
"""Smooth ways on of which it is asked whether there is another beyond."""

Pair: TypeAlias = tuple[str, str]


class MissingPairError(LookupError):
    """The schedule goes over a pair of corruptions that has no path."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(" > ".join(pair))
        self.pair = pair


class Schedule:
    """From one corruption to the next, and from that to another: which one depends on (seed, leg) and the one before.

    Segment m fades from one corruption to the next along the path of that pair, a list of levels (first, second).
    `off_target`
    says how far a path strays from its target, for pairs to be avoided: where there is another way on, it is taken.
    """

    def __init__(
        self,
        noises: Sequence[str],
        paths: Mapping[Pair, Path],
        seed: int,
        off_target: Mapping[Pair, float] | None = None,
    ) -> None:
        if len(set(noises)) < max(2, len(noises)):
            raise ConfigurationError(
                "A schedule of changing corruptions needs two of them, each once.", got=", ".join(noises) or "none"
            )
        self.noises, self.paths, self.seed, self.off_target = tuple(noises), paths, seed, off_target or {}
        first = int(Keyed(seed, [0]).fork("start").integers(0, len(self.noises)))
        self._legs: list[str] = [self.noises[first]]
        self._starts = [0]

    def choices(self, leg: int, noise: str) -> list[Pair]:
        """Return the ways on from a corruption in the order in which a leg would take them."""
        others = [name for name in self.noises if name != noise]
        order = Keyed(self.seed, [leg]).fork("course").permutation(len(others))[0].tolist()
        return [(noise, others[place]) for place in order]

    def segments(self, steps: int) -> list[Pair]:
        """Return the pairs of the segments that so many steps go over; one without a path is a `MissingPairError`."""
        self._extend(steps)
        count = bisect_right(self._starts, steps - 1)
        return list(zip(self._legs[:count], self._legs[1 : count + 1], strict=True))

    def at(self, step: int) -> tuple[Pair, tuple[float, float]]:
        """Return the pair of corruptions and their severities at a step."""
        self._extend(step + 1)
        leg = bisect_right(self._starts, step) - 1
        pair = self._legs[leg], self._legs[leg + 1]
        first, second = self.paths[pair][step - self._starts[leg]]
        return pair, (first * STEP, second * STEP)

    def reached(self) -> int:
        """Return how many steps from the start there are paths for."""
        return self._starts[-1]

    def _extend(self, steps: int) -> None:
        while self._starts[-1] < steps:
            pair = self._next()
            self._legs.append(pair[1])
            self._starts.append(self._starts[-1] + len(self.paths[pair]))

    def _next(self) -> Pair:
        """Return the first smooth way on from which there is another, of a few; else a smooth one; else the least off.

        To know that there is none from a corruption, all of its pairs have to be measured.
        """
        leg, noise = len(self._legs) - 1, self._legs[-1]
        dead_ends = []
        for pair in islice(self._smooth(leg, noise), LOOKED_BEYOND):
            if next(self._smooth(leg + 1, pair[1]), None) is not None:
                return pair
            dead_ends.append(pair)
        return dead_ends[0] if dead_ends else min(self.choices(leg, noise), key=lambda pair: self.off_target[pair])

    def _smooth(self, leg: int, noise: str) -> Iterator[Pair]:
        for pair in self.choices(leg, noise):
            if pair not in self.paths:
                raise MissingPairError(pair)
            if pair not in self.off_target:
                yield pair


def straight(severity: float) -> Path:
    """Return the path that needs no calibration: one corruption fades out as the other fades in, in turn.

    >>> straight(0.5)
    ((2, 0), (2, 1), (1, 1), (1, 2), (0, 2))
    """
    top = round(severity / STEP)
    if not 1 <= top < LEVELS:
        raise ConfigurationError(
            "A schedule has severities in steps of 0.25.", expected="more than 0, at most 5", got=f"{severity:g}"
        )
    return tuple((top - (step // 2), (step + 1) // 2) for step in range(2 * top + 1))


def pair_shift(pair: Pair, severities: tuple[float, float]) -> Shift:
    """Return the first corruption, then, on 256 levels again, the second; what has severity 0 is left out."""
    steps = [shifts.corruption(name, level) for name, level in zip(pair, severities, strict=True) if level > 0]
    return steps[0] if len(steps) == 1 else ImageChain(steps=steps)
