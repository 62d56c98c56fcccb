"""Draw Kendall's tau against what was varied, a panel for each, figure 4 of Ng et al. 2023, from the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WIDTH, HEIGHT, GAP, LEFT, TOP, BOTTOM = 220, 200, 24, 44, 56, 52
"""Pixels of a panel's axes, between panels, and of what is around them."""
COLOURS = ("#0b5cad", "#c2410c")
Curve = Sequence[tuple[str, float]]
"""Pairs of a value, in words, and a tau; values stand evenly spaced."""


def drawing(panels: Mapping[str, Mapping[str, Curve]], title: str) -> str:
    """Return an SVG of a panel for everything varied, with up to two curves by name in each."""
    taus = [tau for curves in panels.values() for curve in curves.values() for _, tau in curve]
    low, high = min([0.0, *taus]), max([0.1, *taus])
    width, height = LEFT + len(panels) * (WIDTH + GAP), TOP + HEIGHT + BOTTOM

    def y(tau: float) -> float:
        return TOP + HEIGHT * (high - tau) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12">',
        f'<title>{title}</title><rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" font-size="14">{title}</text>',
    ]
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    for number, name in enumerate(names):
        parts.append(f'<path d="M{LEFT + 90 * number} 36h22" stroke="{COLOURS[number]}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 90 * number + 28}" y="40">{name}</text>')
    for tenth in range(-10, 11, 2):
        if low <= tenth / 10 <= high:
            parts.append(f'<text x="{LEFT - 6}" y="{y(tenth / 10) + 4:.1f}" text-anchor="end">{tenth / 10:g}</text>')
            across = LEFT + len(panels) * (WIDTH + GAP) - GAP
            parts.append(f'<path d="M{LEFT} {y(tenth / 10):.1f}H{across}" stroke="#e0e0e0"/>')
    for place, (varied, curves) in enumerate(panels.items()):
        start, values = LEFT + place * (WIDTH + GAP), [value for value, _ in next(iter(curves.values()))]
        ats = [start + WIDTH * (number + 0.5) / len(values) for number in range(len(values))]
        parts.append(f'<rect x="{start}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999999"/>')
        parts += [
            f'<text x="{at:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{value}</text>'
            for at, value in zip(ats, values, strict=True)
        ]
        middle = start + WIDTH / 2
        parts.append(f'<text x="{middle:.0f}" y="{TOP + HEIGHT + 38}" text-anchor="middle">{varied}</text>')
        for name, curve in curves.items():
            points = " ".join(f"{at:.1f},{y(tau):.1f}" for at, (_, tau) in zip(ats, curve, strict=True))
            colour = COLOURS[names.index(name)]
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return "\n".join([*parts, "</svg>\n"])
