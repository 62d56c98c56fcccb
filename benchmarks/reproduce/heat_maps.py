"""Draw the Fourier heat maps of Sun et al. 2022 from the figures: one map for each recipe, on one scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shiftproof.reports.heat import CIVIDIS, cividis

SIDE, GAP, HEAD, FOOT = 153, 22, 40, 64
"""Pixels of a map, which its cells share, and around it."""
FASTEST = 16
"""Cycles over CIFAR-10's 32 pixels of the fastest waves, whose two directions are one."""
Waves = Sequence[Sequence[float]]
"""Rows of cycles down, cycles across and a radius; a wave and its opposite are the same."""


def drawing(maps: Mapping[str, Waves], title: str) -> str:
    """Return an SVG of heat maps side by side, the waves of no cycles in their centres."""
    values = [value for waves in maps.values() for _, _, value in waves]
    low, high = min(values), max(values)
    step = _step(next(iter(maps.values())))
    reach = max(abs(int(place)) for waves in maps.values() for row in waves for place in row[:2]) // step
    cell = SIDE // (2 * reach + 1)
    side = (2 * reach + 1) * cell
    width, height = max(640, len(maps) * (side + GAP) + GAP), HEAD + side + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<title>{title}</title><rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (name, waves) in enumerate(maps.items()):
        left = GAP + number * (side + GAP)
        parts.append(f'<text x="{left + side / 2}" y="{HEAD - 12}" text-anchor="middle" font-size="13">{name}</text>')
        for (down, across), value in _both_ways(waves).items():
            x, y = left + (across // step + reach) * cell, HEAD + (down // step + reach) * cell
            colour = cividis((value - low) / (high - low) if high > low else 0.5)
            parts.append(f'<rect x="{x}" y="{y}" width="{cell}" height="{cell}" fill="{colour}"/>')
    top, long = HEAD + side + 20, min(240, width - 2 * GAP - 120)
    for number, colour_text in enumerate(CIVIDIS):
        place = GAP + 50 + number * long / len(CIVIDIS)
        parts.append(
            f'<rect x="{place:.1f}" y="{top}" width="{long / len(CIVIDIS):.1f}" height="10" fill="{colour_text}"/>'
        )
    parts.append(f'<text x="{GAP + 44}" y="{top + 10}" text-anchor="end" font-size="12">{low:.3f}</text>')
    parts.append(f'<text x="{GAP + 56 + long}" y="{top + 10}" font-size="12">{high:.3f}</text>')
    parts.append(f'<text x="{GAP}" y="{top + 32}" font-size="12">{title}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _both_ways(waves: Waves) -> dict[tuple[int, int], float]:
    """Return a value for every wave, for its opposite, and for those that pixels cannot tell from it."""
    found: dict[tuple[int, int], float] = {}
    for down, across, value in waves:
        i, j = int(down), int(across)
        same = {(i, j), (-i, j)} if abs(i) == FASTEST else {(i, j), (i, -j)} if abs(j) == FASTEST else {(i, j)}
        for place in same:
            found[place] = found[-place[0], -place[1]] = value
    return found


def _step(waves: Waves) -> int:
    """Return the distance between neighbouring frequencies."""
    return min(int(across) for _, across, _ in waves if across > 0)
