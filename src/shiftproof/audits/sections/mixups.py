"""Answers that belong to other classes: labels are probably swapped, or numbered otherwise than a model's outputs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import hypergeom, norm

from shiftproof.runs import Row

MIN_IMAGES = 5
"""Images that a class must have."""
SWAPPED_SHARE = 0.6
"""The share of them that must get one other answer."""
SWAPPED_CHANCE = 1e-3
"""How improbable that must be by chance, for each class of a ring on average (the geometric mean)."""
CONFUSED_CHANCE = 2e-3
"""How improbable it must be of a model that cannot tell the classes of a ring apart."""
BETTER_SHARE = 0.2
"""How much more often a model must be right with its outputs in another order."""
CHANCE = 1e-4
"""How improbable that must be for answers that do not depend on the images."""
MOST_CLASSES = 2_000
"""An order of more is not looked for: that takes their number squared in memory, and more in time."""


def cycles(found: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return rings of classes, each of which is mostly answered as the next, from rows of the section clean.

    Neither a model that does not see them nor one that cannot tell them apart would answer so often so.
    """
    images, answered = _counts(found)
    given = Counter[str]()
    for answers in answered.values():
        given.update(answers)
    usual = {
        name: answer
        for name, answers in answered.items()
        for answer, count in answers.most_common(1)
        if answer != name and images[name] >= MIN_IMAGES and count >= SWAPPED_SHARE * images[name]
    }

    def by_chance(name: str) -> float:
        """Return how probable it is that as many of a class get this answer, whatever the images are."""
        answer = usual[name]
        return float(hypergeom.sf(answered[name][answer] - 1, images.total(), given[answer], images[name]))

    rings: list[tuple[str, ...]] = []
    left = dict(usual)
    while left:
        path = [next(iter(left))]
        while path[-1] in left:
            path.append(left.pop(path[-1]))
        if path[-1] in path[:-1]:
            rings.append(tuple(path[path.index(path[-1]) : -1]))
    seen = [ring for ring in rings if math.prod(map(by_chance, ring)) <= SWAPPED_CHANCE ** len(ring)]
    return [ring for ring in seen if _told_apart(ring, answered)]


def _told_apart(ring: Sequence[str], answered: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether classes get the next one's answer more often than where their own answers are dealt among them."""
    inside = {name: {answer: answered[name].get(answer, 0) for answer in ring} for name in ring}
    own = np.eye(len(ring), dtype=np.bool_)
    gained, variance = _gain(_table(inside, ring, ring), np.roll(own, 1, 1), own)
    return gained >= float(norm.isf(CONFUSED_CHANCE)) * math.sqrt(variance)


class Reordered(NamedTuple):
    """How often a model is right as it is and with its outputs in another order, and of how many images."""

    right: int
    reordered: int
    images: int
    pairs: tuple[tuple[str, str], ...]
    """Classes, and the answers that are theirs in that order, where these are others: the most frequent first."""


def reordered(found: Sequence[Row]) -> Reordered | None:
    """Return the order of outputs in which a model is far more often right; None where there is none.

    The order is found in every other row of the section clean and tried on those between, and the other way round: in
    the images that it was found in, some order always does better. What counts is by how much it is above what the
    same answers get if they do not depend on the images: of a model that answers nearly always the same, right ones
    become more where that answer is given the name of the most frequent class, and mean nothing.
    """
    parts = [_counts(found[start::2])[1] for start in range(2)]
    names = sorted({name for answered in parts for name in answered})
    answers = sorted({answer for answered in parts for row in answered.values() for answer in row})
    if max(len(names), len(answers)) > MOST_CLASSES:
        return None
    first, second = (_table(answered, names, answers) for answered in parts)
    images = int(first.sum() + second.sum())
    if not first.any() or not second.any():
        return None
    own = np.equal.outer(names, answers)
    orders = [_order(second), _order(first)]
    right, better = (
        sum(int(table[order].sum()) for table, order in zip((first, second), some, strict=True))
        for some in ((own, own), orders)
    )
    gains = [_gain(table, order, own) for table, order in zip((first, second), orders, strict=True)]
    # The halves share both orders: what was found by chance in one is tried on the other, and may do well in both.
    gained, deviation = sum(gain for gain, _ in gains), sum(variance**0.5 for _, variance in gains)
    if min(better - right, gained) < BETTER_SHARE * images or gained < norm.isf(CHANCE) * deviation:
        return None
    whole = first + second
    theirs = sorted(np.argwhere(_order(whole) & ~own), key=lambda place: -whole[tuple(place)])
    return Reordered(right, better, images, tuple((names[row], answers[column]) for row, column in theirs))


def _order(table: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which answer is each class's, [names, answers], where most are right beyond chance."""
    made = np.zeros(table.shape, np.bool_)
    made[linear_sum_assignment(np.outer(table.sum(1), table.sum(0)) / table.sum() - table)] = True
    return made


def _gain(table: NDArray[np.int64], order: NDArray[np.bool_], own: NDArray[np.bool_]) -> tuple[float, float]:
    """Return how many more answers than by chance are right in an order than in the model's own, and the variance.

    By chance the same answers are dealt to the images at random: the sum over a random permutation is hypergeometric.
    """
    images = table.sum()
    by_class, by_answer = table.sum(1) / images, table.sum(0) / images
    score = order.astype(np.float64) - own
    centred = score - (score @ by_answer)[:, None] - by_class @ score + by_class @ score @ by_answer
    variance = by_class @ centred**2 @ by_answer * images**2 / max(images - 1, 1)
    return float((centred * table).sum()), float(variance)


def _counts(found: Sequence[Row]) -> tuple[Counter[str], dict[str, Counter[str]]]:
    """Return how many images each class has, and how often each answer was given to them, right ones too."""
    images, answered = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for row in found:
        for name, (right, count) in cast(Mapping[str, tuple[int, int]], row.get("classes", {})).items():
            images[name] += count
            answered[name][name] += right
        for name, answers in cast(Mapping[str, Mapping[str, int]], row.get("confused", {})).items():
            answered[name].update(answers)
    return images, answered


def _table(
    answered: Mapping[str, Mapping[str, int]], names: Sequence[str], answers: Sequence[str]
) -> NDArray[np.int64]:
    """Return how often each answer was given to each class, [names, answers]."""
    made = np.zeros((len(names), len(answers)), np.int64)
    rows, columns = ({name: place for place, name in enumerate(some)} for some in (names, answers))
    for name, row in answered.items():
        for answer, count in row.items():
            made[rows[name], columns[answer]] = count
    return made
