"""Classes whose images get each other's answers: their labels are probably swapped, or numbered otherwise."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import cast

from shiftproof.runs import Row

MIN_IMAGES = 5
"""Images that a class must have."""
MOST = 0.6
"""The share of them that must get one other answer."""


def cycles(found: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return rings of classes, each of which is mostly answered as the next, from rows of the section clean."""
    images, confused = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for row in found:
        for name, (_, count) in cast(Mapping[str, tuple[int, int]], row.get("classes", {})).items():
            images[name] += count
        for name, answers in cast(Mapping[str, Mapping[str, int]], row.get("confused", {})).items():
            confused[name].update(answers)
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
