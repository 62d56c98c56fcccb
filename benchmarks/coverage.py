"""Simulate how often every kind of interval in a report holds the truth, by the functions that the sections call.

    python -m benchmarks.coverage                  # prints the table, of 2,000 data sets a point: minutes
    python -m benchmarks.coverage --page           # writes it into docs/design/intervals.md
    python -m benchmarks.coverage --sets 200 --kind "mean over shifts"

A point is a kind of interval, a number of images, an accuracy, and how much the answers that belong to one image (under
other shifts, or by other models) depend on each other. Data sets are drawn anew from a known law, and the share of them
is told whose interval holds the truth of that law. Where a lowest or highest number is chosen, all that it is chosen
among have the same truth: then the choice misleads most.
"""

from __future__ import annotations

import argparse
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shiftproof.measures.intervals import (
    batch_interval,
    batch_intervals,
    difference_interval,
    mean_interval,
    mean_intervals,
    paired_intervals,
    proportion_intervals,
)
from shiftproof.runs import write_atomically

SETS = 2_000
SIZES = (10, 20, 50, 100, 1_000)
ACCURACIES = (0.5, 0.9, 0.99)
LEAST = 0.93
"""The least coverage that an interval of 95% may have at any point."""
PAGE = Path(__file__).parents[1] / "docs" / "design" / "intervals.md"

CELLS, CORRUPTIONS, CHAINS, TRIED, METHODS, BATCH = 75, 15, 190**5, 1_000, 8, 64

FloatArray: TypeAlias = NDArray[np.float64]
Held: TypeAlias = "NDArray[np.bool_] | None"
"""For each data set, whether the interval held the truth; None where there are too few images to say."""
Simulation: TypeAlias = Callable[[np.random.Generator, int, int, float, float], Held]
"""From a generator, the number of data sets, images, the accuracy, and the dependence, 0 to 1."""


@dataclass(frozen=True)
class Kind:
    """A kind of interval: what is simulated, and under which dependences within an image."""

    simulate: Simulation
    dependences: Mapping[str, float]

    def point(self, name: str, dependence: str, n: int, accuracy: float, sets: int = SETS) -> float | None:
        """Return the coverage at a point; None where the answer is that images are too few to say."""
        seed = zlib.crc32(f"{name} {dependence} {n} {accuracy}".encode())
        held = self.simulate(np.random.default_rng(seed), sets, n, accuracy, self.dependences[dependence])
        return None if held is None else float(held.mean())


def holds(bounds: FloatArray, truth: float) -> NDArray[np.bool_]:
    """Return whether intervals, [..., 2], hold the truth, but for rounding."""
    found: NDArray[np.bool_] = (bounds[..., 0] <= truth + 1e-9) & (truth - 1e-9 <= bounds[..., 1])
    return found


def chances(rng: np.random.Generator, shape: tuple[int, ...], accuracy: float, dependence: float) -> FloatArray:
    """Return how probable it is that an image is right: all alike at dependence 0, surely right or wrong at 1."""
    if dependence == 0:
        return np.full(shape, accuracy)
    if dependence == 1:
        return (rng.random(shape) < accuracy).astype(float)
    spread = (1 - dependence) / dependence
    return rng.beta(accuracy * spread, (1 - accuracy) * spread, shape)


def counts(rng: np.random.Generator, sets: int, columns: int, n: int, p: float, dependence: float) -> NDArray[np.int64]:
    """Return right answers of n images in each of some columns, [sets, columns]; a share of images is in all alike."""
    shared = round(dependence * n)
    return rng.binomial(shared, p, (sets, 1)) + rng.binomial(n - shared, p, (sets, columns))


def one_accuracy(rng: np.random.Generator, sets: int, n: int, p: float, dependence: float) -> Held:
    """Simulate `Accuracy.interval`: clean accuracy, accuracy beside chance."""
    return holds(proportion_intervals(rng.binomial(n, p, sets), n), p)


def worst_cell(rng: np.random.Generator, sets: int, n: int, p: float, dependence: float) -> Held:
    """Simulate the lowest of 75 accuracies, corruptions by severities."""
    return holds(proportion_intervals(counts(rng, sets, CELLS, n, p, dependence).min(1), n, among=CELLS), p)


def worst_chain(rng: np.random.Generator, sets: int, n: int, p: float, dependence: float) -> Held:
    """Simulate the worst of 1,000 chains that were tried, of all that there are."""
    lowest = [counts(rng, 1, TRIED, n, p, dependence).min() for _ in range(sets)]
    return holds(proportion_intervals(lowest, n, among=CHAINS), p)


def better_noise(rng: np.random.Generator, sets: int, n: int, p: float, dependence: float) -> Held:
    """Simulate certified accuracy under the better of two noises."""
    return holds(proportion_intervals(counts(rng, sets, 2, n, p, dependence).max(1), n, among=2), p)


def average_radius(rng: np.random.Generator, sets: int, n: int, p: float, dependence: float) -> Held:
    """Simulate the average certified radius under the better of two noises: 0 where wrong, else up to the largest."""
    if mean_interval(np.zeros(n)) is None:
        return None
    right = chances(rng, (n, sets, 1), p, dependence) > rng.random((n, sets, 2))
    radii = np.where(right, np.minimum(1.0, 1.5 * rng.beta(2.0, 2.0, (n, sets, 2))), 0.0)
    # The mean of min(1, 1.5 b) for b ~ Beta(2, 2): 1 less the integral of the law of 1.5 b up to 1.
    edge = 2 / 3
    return holds(mean_intervals(_picked(radii, np.argmax), among=2), p * (1 - 1.5 * (edge**3 - edge**4 / 2)))


def mean_over_shifts(rng: np.random.Generator, sets: int, n: int, p: float, dependence: float) -> Held:
    """Simulate the mean accuracy over 75 corruptions and severities, each image counting once."""
    if mean_interval(np.zeros(n)) is None:
        return None
    return holds(mean_intervals(rng.binomial(CELLS, chances(rng, (n, sets), p, dependence)) / CELLS), p)


def weakest_band(rng: np.random.Generator, sets: int, n: int, p: float, dependence: float) -> Held:
    """Simulate the lowest of three bands of frequencies, each the mean over 40 waves."""
    if mean_interval(np.zeros(n)) is None:
        return None
    right = rng.binomial(40, np.repeat(chances(rng, (n, sets, 1), p, dependence), 3, axis=2)) / 40
    return holds(mean_intervals(_picked(right, np.argmin), among=3), p)


def adaptation_gain(rng: np.random.Generator, sets: int, n: int, p: float, dependence: float) -> Held:
    """Simulate the gain of the best of eight methods over 15 corruptions: each mends three in ten of the mistakes."""
    if mean_interval(np.zeros(n), -1.0) is None:
        return None
    alone = chances(rng, (n, sets, 1), p, dependence)
    source = rng.binomial(CORRUPTIONS, alone)
    helped = rng.binomial(CORRUPTIONS, np.repeat(alone + 0.3 * (1 - alone), METHODS, axis=2))
    picked = _picked((helped - source) / CORRUPTIONS, np.argmax)
    return holds(mean_intervals(picked, -1.0, 1.0, among=METHODS), 0.3 * (1 - p))


def stream_gain(rng: np.random.Generator, sets: int, n: int, p: float, dependence: float) -> Held:
    """Simulate the gain of the best of eight methods along n batches of 64 that get harder and easier, and so the gain.

    In place of a dependence there is the share of mistakes that a method mends.
    """
    if batch_interval(np.zeros(n), BATCH) is None:
        return None
    hard = 1 - 0.5 * (1 - np.cos(np.linspace(0, 4 * np.pi, n))) / 2
    before = (p * hard)[:, None, None]
    source = rng.binomial(BATCH, before, (n, sets, 1))
    mended = rng.binomial(BATCH - source, dependence, (n, sets, METHODS))
    broken = rng.binomial(source, dependence / 15, mended.shape)
    truth = float((dependence * (1 - before) - dependence / 15 * before).mean())
    return holds(batch_intervals(_picked((mended - broken) / BATCH, np.argmax), BATCH, among=METHODS), truth)


def compared_answers(rng: np.random.Generator, sets: int, n: int, p: float, dependence: float) -> Held:
    """Simulate the difference of two clean accuracies; the second model makes half as many mistakes."""
    return _answers(rng, sets, n, p, (1 + p) / 2, dependence)


def equal_answers(rng: np.random.Generator, sets: int, n: int, p: float, dependence: float) -> Held:
    """Simulate the difference of two clean accuracies that are the same."""
    return _answers(rng, sets, n, p, p, dependence)


def _answers(rng: np.random.Generator, sets: int, n: int, p: float, other: float, dependence: float) -> Held:
    if difference_interval(np.zeros(n), np.ones(n)) is None:
        return None
    gained = dependence * (other - p) + (1 - dependence) * (1 - p) * other
    lost = (1 - dependence) * p * (1 - other)
    drawn = rng.multinomial(n, [gained, lost, 1 - gained - lost], sets)
    return holds(paired_intervals(drawn[:, 0], drawn[:, 1], n), other - p)


def compared_means(rng: np.random.Generator, sets: int, n: int, p: float, dependence: float) -> Held:
    """Simulate the difference of two mean accuracies over 75 corruptions and severities.

    Where an image is right under all or none, so it is for the second model: then answers are counted.
    """
    one = chances(rng, (n, sets), p, dependence)
    other = np.maximum(one, rng.random((n, sets)) < 0.5) if dependence == 1 else (1 + one) / 2
    before, after = rng.binomial(CELLS, one) / CELLS, rng.binomial(CELLS, other) / CELLS
    found = [difference_interval(*pair) for pair in zip(before.T, after.T, strict=True)]
    return None if found[0] is None else holds(np.array(found, float), (1 - p) / 2)


def compared_family(rng: np.random.Generator, sets: int, n: int, p: float, dependence: float) -> Held:
    """Simulate the differences of the accuracies under each of 15 corruptions, over five severities: all must hold."""
    if mean_interval(np.zeros(n)) is None:
        return None
    one = chances(rng, (n, sets), p, dependence)
    held = np.ones(sets, bool)
    for _ in range(CORRUPTIONS):
        differences = (rng.binomial(5, (1 + one) / 2) - rng.binomial(5, one)) / 5
        held &= holds(mean_intervals(differences, -1.0, 1.0, among=CORRUPTIONS), (1 - p) / 2)
    return held


def _picked(values: FloatArray, choose: Callable[..., NDArray[np.int64]]) -> FloatArray:
    """Return the values, [n, sets], of the column that is chosen by its mean, of [n, sets, columns]."""
    best = choose(values.mean(0), axis=1)
    return np.take_along_axis(values, best[None, :, None], axis=2)[..., 0]


ALONE = {"": 0.0}
ACROSS = {"independent": 0.0, "strong": 0.8}
WITHIN = {"weak": 0.05, "strong": 0.5, "all or none": 1.0}
PAIRS = {"independent": 0.0, "weak": 0.5, "strong": 0.95}
KINDS: Mapping[str, Kind] = {
    "accuracy": Kind(one_accuracy, ALONE),
    "lowest of 75 cells": Kind(worst_cell, ACROSS),
    "worst chain found": Kind(worst_chain, ACROSS),
    "certified accuracy": Kind(better_noise, ACROSS),
    "average certified radius": Kind(average_radius, {"independent": 0.0, "strong": 0.5}),
    "mean over shifts": Kind(mean_over_shifts, WITHIN),
    "weakest band": Kind(weakest_band, WITHIN),
    "best gain by adaptation": Kind(adaptation_gain, WITHIN),
    "best gain along a stream": Kind(stream_gain, {"large gains": 0.3, "small gains": 0.01}),
    "difference of answers": Kind(compared_answers, PAIRS),
    "difference of answers, none": Kind(equal_answers, PAIRS),
    "difference of means": Kind(compared_means, WITHIN),
    "differences of a family": Kind(compared_family, WITHIN),
}
"""What the report and `compare` print. Intervals of label-free estimates are of another kind and not among them."""


def lines(kinds: Sequence[str], sets: int = SETS) -> Iterator[str]:
    """Yield the table, a row per kind and dependence: coverages in percent at each size, for each accuracy."""
    yield "| interval | within an image | " + " | ".join(f"n = {n:,}" for n in SIZES) + " |"
    yield "|---|---|" + "---|" * len(SIZES)
    for name in kinds:
        for dependence in KINDS[name].dependences:
            cells = []
            for n in SIZES:
                found = [KINDS[name].point(name, dependence, n, accuracy, sets) for accuracy in ACCURACIES]
                told = [each for each in found if each is not None]
                cells.append(" ".join(f"{100 * each:.1f}" for each in told) if told else "too few to say")
            yield f"| {name} | {dependence} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=SETS)
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--page", action="store_true", help=f"write the whole table into {PAGE.name}")
    options = parser.parse_args()
    made = []
    for line in lines(list(KINDS) if options.page else options.kind or list(KINDS), options.sets):
        print(line, flush=True)
        made.append(line)
    if options.page:
        table = "\n".join(["<!-- begin coverage -->", "", *made, "", "<!-- end coverage -->"])
        marks = r"<!-- begin coverage -->.*<!-- end coverage -->"
        write_atomically(PAGE, re.sub(marks, table, PAGE.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()
