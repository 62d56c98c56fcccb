"""Shading by cividis, a colour scale that reads the same with any kind of colour vision, and the text on it.

Cividis: Nunez, Anderton and Renslow 2018. Contrast: the relative luminances of WCAG 2.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

CIVIDIS = (
    "#00224e",
    "#123570",
    "#3b496c",
    "#575d6d",
    "#707173",
    "#8a8678",
    "#a59c74",
    "#c3b369",
    "#e1cc55",
    "#fee838",
)
GRADIENT = f"background: linear-gradient(to right, {', '.join(CIVIDIS)})"


class Colour(NamedTuple):
    """Red, green and blue, 0..255."""

    red: int
    green: int
    blue: int

    @classmethod
    def parse(cls, text: str) -> Colour:
        """Read `#rrggbb`."""
        return cls(*bytes.fromhex(text.removeprefix("#")))

    def __str__(self) -> str:
        return f"#{bytes(self).hex()}"


_SCALE = tuple(Colour.parse(text) for text in CIVIDIS)
_INKS = (Colour(0, 0, 0), Colour(255, 255, 255))


def cividis(share: float) -> Colour:
    """Return the colour at a share of the way, 0 dark blue to 1 yellow; shares outside are taken to the nearer end."""
    position = min(max(share, 0.0), 1.0) * (len(_SCALE) - 1)
    below = min(int(position), len(_SCALE) - 2)
    first, second = list(pairwise(_SCALE))[below]
    weight = position - below
    return Colour(*(round((1 - weight) * low + weight * high) for low, high in zip(first, second, strict=True)))


def contrast(one: Colour, other: Colour) -> float:
    """Return the contrast ratio of two colours, 1 to 21."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def ink(paper: Colour) -> Colour:
    """Return black or white, whichever reads better on a colour; the better one has a contrast of at least 4.5."""
    return max(_INKS, key=lambda colour: contrast(colour, paper))


def style(value: float, ends: tuple[float, float]) -> str:
    """Return the CSS that shades a value between two ends, low to high."""
    low, high = ends
    paper = cividis((value - low) / (high - low) if high != low else 0.5)
    return f"background: {paper}; color: {ink(paper)}"


def _luminance(colour: Colour) -> float:
    """Relative luminance, 0 for black to 1 for white."""
    shares = (level / 255 for level in colour)
    red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
