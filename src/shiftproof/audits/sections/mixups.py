"""Answers that belong to other classes: labels are probably swapped, or numbered otherwise than a model's outputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from shiftproof.audits.sections.chance import right_by_chance
from shiftproof.runs import Row

MIN_IMAGES = 5
"""Images that a class must have."""
MOST = 0.6
"""The share of them that must get one other answer."""
FAR = 0.2
"""How much more often a model must be right with its outputs in another order."""


def cycles(found: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return rings of classes, each of which is mostly answered as the next, from rows of the section clean."""
    images, answered = _counts(found)
    confused = {name: answers - Counter({name: answers[name]}) for name, answers in answered.items()}
    usual = {
        name: answer
        for name, answers in confused.items()
        for answer, count in answers.most_common(1)
        if images[name] >= MIN_IMAGES and count >= MOST * images[name]
    }
    rings: list[tuple[str, ...]] = []
    left = dict(usual)
    while left:
        path = [next(iter(left))]
        while path[-1] in left:
            path.append(left.pop(path[-1]))
        if path[-1] in path[:-1]:
            rings.append(tuple(path[path.index(path[-1]) : -1]))
    return rings


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
    the images that it was found in, some order always does better.
    """
    parts = [_counts(found[start::2]) for start in range(2)]
    names = sorted({name for _, answered in parts for name in answered})
    answers = sorted({answer for _, answered in parts for row in answered.values() for answer in row})
    first, second = (_table(answered, names, answers) for _, answered in parts)
    images = int(first.sum() + second.sum())
    if not first.any() or not second.any():
        return None
    own = np.array([answers.index(name) for name in names])
    right, seen = (sum(found) for found in zip(*(_right(one, own) for one in (first, second)), strict=True))
    if right > (1 - FAR) * images:  # no order is far better
        return None
    tried = (_right(other, linear_sum_assignment(-one)[1]) for one, other in ((first, second), (second, first)))
    better, better_seen = (sum(found) for found in zip(*tried, strict=True))
    if min(better - right, better_seen - seen) < FAR * images:
        return None
    rows, columns = linear_sum_assignment(-(first + second))
    theirs = sorted(zip(rows, columns, strict=True), key=lambda place: -(first + second)[place])
    pairs = tuple((names[row], answers[column]) for row, column in theirs if names[row] != answers[column])
    return Reordered(int(right), int(better), images, pairs)


def _right(table: NDArray[np.int64], order: NDArray[np.int64]) -> tuple[float, float]:
    """Return how many answers are right where each class has the answer of `order`, and how many beyond chance.

    Where most inputs are of one class, an order that turns the usual answer into it is right without any knowledge.
    """
    right = int(table[np.arange(len(table)), order].sum())
    return right, right - right_by_chance(table.sum(1).tolist(), table.sum(0)[order].tolist())


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
