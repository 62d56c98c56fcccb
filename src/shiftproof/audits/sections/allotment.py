"""Which images are put under which shifts where a model is too costly for all of them: a balanced incomplete design.

Each image meets a few kinds of shift, each at one severity. Every kind is met equally often, and so is every severity
of a kind, up to one; which kinds meet on an image is drawn anew for every round of images. An image's mean over the few
it meets is then a fair draw of its mean over all, and a mean over images has nearly the interval of a complete design
at a fraction of its passes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeAlias

Places: TypeAlias = list[list[tuple[int, ...]]]


def allot(levels: Sequence[int], images: int, per_image: int, seed: int) -> Places:
    """Return the places of the images under each severity of each kind of shift, in ascending order.

    `levels` are the numbers of severities of the kinds. What the first images meet does not depend on how many follow.

    >>> allot([2, 2, 1], images=4, per_image=2, seed=0)
    [[(0, 3), (1,)], [(2,), (0, 3)], [(1, 2)]]
    """
    rng = random.Random(f"allotment/{seed}")
    kinds = len(levels)
    found: list[list[list[int]]] = [[[] for _ in range(count)] for count in levels]
    waiting: list[list[int]] = [[] for _ in levels]
    for first in range(0, images, kinds):
        order, offsets = _mixed(kinds, rng), _mixed(kinds, rng)[:per_image]
        for place in range(first, first + kinds):
            for offset in offsets:
                kind = order[(place + offset) % kinds]
                waiting[kind] = waiting[kind] or _mixed(levels[kind], rng)
                level = waiting[kind].pop()
                if place < images:
                    found[kind][level].append(place)
    return [[tuple(some) for some in each] for each in found]


def _mixed(count: int, rng: random.Random) -> list[int]:
    """Return the numbers below `count` in an order that is the same in every version of Python."""
    return sorted(range(count), key=lambda _: rng.random())
