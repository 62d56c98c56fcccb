"""Where the names of points go in a chart, so that none covers another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 900.0, 330.0
"""The pixels of a chart that points share; names are left out of narrower ones."""
LETTER, LINE, GAP = 6.6, 15.0, 7.0
"""How wide a letter is, how high a line, and how far a name stays from its point."""

POSITIONS = {
    "top center": (-0.5, -1.0, 0, -1),
    "bottom center": (-0.5, 0.0, 0, 1),
    "middle right": (0.0, -0.5, 1, 0),
    "middle left": (-1.0, -0.5, -1, 0),
    "top right": (0.0, -1.0, 1, -1),
    "top left": (-1.0, -1.0, -1, -1),
    "bottom right": (0.0, 0.0, 1, 1),
    "bottom left": (-1.0, 0.0, -1, 1),
}
"""Plotly's name -> where a name's box begins, in widths and heights from its point, and where its gap is."""


class Box(NamedTuple):
    """A rectangle in pixels, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Return whether the two share a pixel."""
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.bottom <= other.top or other.bottom <= self.top)


def place(points: Sequence[tuple[float, float]], names: Sequence[str]) -> list[str | None]:
    """Return Plotly's position for the name of each point, in a chart with equal axes; None where there is no room.

    >>> place([(0, 0), (0, 0)], ["fog", "snow"])
    ['top center', 'bottom center']
    """
    spread = [max(axis) - min(axis) for axis in zip(*points, strict=True)]
    scale = (
        min(room / extent for room, extent in zip((WIDTH, HEIGHT), spread, strict=True) if extent) if any(spread) else 1
    )
    pixels = [(x * scale, -y * scale) for x, y in points]
    marks = [Box(x - GAP / 2, y - GAP / 2, x + GAP / 2, y + GAP / 2) for x, y in pixels]
    taken: list[Box] = []
    chosen: list[str | None] = []
    for number, (pixel, name) in enumerate(zip(pixels, names, strict=True)):
        others = [mark for other, mark in enumerate(marks) if pixels[other] != pixels[number]]
        fitting = (
            (position, box)
            for position, box in _boxes(pixel, name)
            if not any(box.meets(other) for other in (*taken, *others))
        )
        position, box = next(fitting, (None, None))
        chosen.append(position)
        taken += [box] if box is not None else []
    return chosen


def _boxes(pixel: tuple[float, float], name: str) -> Iterator[tuple[str, Box]]:
    wide = LETTER * len(name)
    for position, (across, down, right, below) in POSITIONS.items():
        left, top = pixel[0] + across * wide + right * GAP, pixel[1] + down * LINE + below * GAP
        yield position, Box(left, top, left + wide, top + LINE)
