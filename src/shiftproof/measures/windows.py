"""What a trace says: accuracy while a stream goes by, and how one model fares against another on the same stream.

A trace is given as two sequences: how many answers were right in each batch, and how many images it had. Answers that
are right in part, such as label maps, count by how right they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Counts: TypeAlias = Sequence[float]

WINDOW = 2000
"""Images a rolling accuracy is taken over."""


def rolling_accuracy(
    right: Counts, images: Counts, window: int = WINDOW
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return where batches end, and the accuracy over the last `window` images or more up to there.

    The first value is for the first batch that has as many images up to its end; a shorter trace has none.

    >>> ends, accuracy = rolling_accuracy([1, 2, 4, 4], [4, 4, 4, 4], window=8)
    >>> ends.tolist(), accuracy.tolist()
    ([8, 12, 16], [0.375, 0.75, 1.0])
    """
    seen = np.concatenate([[0], np.cumsum(images, dtype=np.int64)])
    hits = np.concatenate([[0], np.cumsum(right, dtype=np.float64)])
    ends = seen[1:]
    full = ends >= window
    first = np.searchsorted(seen, ends - window, side="right") - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = (hits[1:] - hits[first]) / (ends - seen[first])
    return ends[full], accuracy[full]


def area_against(right: Counts, source: Counts, images: Counts) -> float:
    """Return the area between two traces of one stream, as a mean difference in accuracy: above 0, the first is better.

    >>> area_against([3, 1], [2, 2], [4, 4])
    0.0
    """
    total = sum(images)
    return (sum(right) - sum(source)) / total if total else 0.0


def collapse(
    right: Counts, source: Counts, images: Counts, *, window: int = WINDOW, margin: float = 0.01
) -> int | None:
    """Return after how many images a model fell below the source model for good; None where it did not.

    That is the end of the last window in which its rolling accuracy reached the source's. What follows must be at least
    a window long, and worse by `margin` on average: otherwise it may be chance.

    >>> collapse([4, 4, 4, 0, 0, 0], [2] * 6, [4] * 6, window=4)
    12
    """
    ends, own = rolling_accuracy(right, images, window)
    _, other = rolling_accuracy(source, images, window)
    reached = np.flatnonzero(own >= other)
    last = reached[-1] if len(reached) else -1
    after = len(own) - 1 - last
    if after == 0 or not len(own):
        return None
    place = int(ends[last]) if last >= 0 else 0
    first = int(np.searchsorted(np.cumsum(images), place, side="right")) if place else 0
    rest = slice(first, None)
    long_enough = sum(images[rest]) >= window
    return place if long_enough and area_against(right[rest], source[rest], images[rest]) <= -margin else None
