"""Draw Kendall's tau against the distance on the sphere, figure 3b of Ng et al. 2023, from the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 380, 56, 150, 40, 52
"""Pixels of the picture, and of what is around its axes."""
COLOURS = ("#0b5cad", "#c2410c", "#0b5cad", "#c2410c")
DASHES = ("none", "none", "6 4", "6 4")
MARKS = {0.0: "0", 0.25: "π/4", 0.5: "π/2", 0.75: "3π/4", 1.0: "π"}
Curve = Sequence[tuple[float, float]]
"""Pairs of a distance in multiples of pi, from 0 to 1, and a tau, from -1 to 1."""


def drawing(curves: Mapping[str, Curve], title: str) -> str:
    """Return an SVG of up to four curves in one pair of axes, with the paper's turning point at pi/4 marked."""

    def x(distance: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * distance

    def y(tau: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - tau) / 2

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="13">',
        f'<title>{title}</title><rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{title}</text>',
    ]
    for tau in (-1.0, -0.5, 0.0, 0.5, 1.0):
        parts.append(f'<path d="M{x(0):.0f} {y(tau):.1f}H{x(1):.0f}" stroke="{"#777777" if tau == 0 else "#e0e0e0"}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tau) + 4:.1f}" text-anchor="end">{tau:g}</text>')
    for distance, name in MARKS.items():
        parts.append(f'<text x="{x(distance):.1f}" y="{HEIGHT - 30}" text-anchor="middle">{name}</text>')
    parts.append(f'<path d="M{x(0.25):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#777777" stroke-dasharray="2 3"/>')
    parts.append(f'<text x="{x(0.25) + 6:.1f}" y="{TOP + 14}" fill="#555555">paper: near 0</text>')
    parts.append(f'<text x="{x(0.5):.0f}" y="{HEIGHT - 8}" text-anchor="middle">distance from the training set</text>')
    for number, ((name, curve), colour, dash) in enumerate(zip(curves.items(), COLOURS, DASHES, strict=False)):
        style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        points = " ".join(f"{x(distance):.1f},{y(tau):.1f}" for distance, tau in curve)
        parts.append(f'<polyline points="{points}" {style}/>')
        top = TOP + 20 * number + 10
        parts.append(f'<path d="M{WIDTH - RIGHT + 12} {top - 4}h26" {style}/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 44}" y="{top}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])
