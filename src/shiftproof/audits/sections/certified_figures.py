"""Curves and tables of the certified section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shiftproof.audits.sections.base import CLEAN
from shiftproof.audits.sections.wording import labelled, percent
from shiftproof.certificates.laws import LAWS
from shiftproof.certificates.radius import round_down
from shiftproof.measures import average_radius, certified_accuracy
from shiftproof.measures.intervals import MIN_IMAGES
from shiftproof.reports.view import Column, Figure, Table

DISTANCES = LAWS["l2"].distances
"""Where certified accuracy is told."""
POINTS = 25
"""Distances at which certified accuracy is drawn."""


def certified_curves(lines: Mapping[str, Sequence[float]], sigma: float) -> Figure:
    """Draw certified accuracy by distance under one noise, clean and under shifts."""
    reach = max(max(some) for some in lines.values()) or sigma
    distances = [round_down(distance, 4) for distance in np.linspace(0, reach, POINTS)]
    shares = {
        label: [certified_accuracy(some, distance).value for distance in distances] for label, some in lines.items()
    }
    plot = {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{labelled(label)}, {len(lines[label])} images",
                "x": distances,
                "y": [100 * share for share in curve],
                "hovertemplate": "%{y:.1f}% at %{x:.3f}<extra></extra>",
            }
            for label, curve in shares.items()
        ],
        "layout": {
            "xaxis": {"title": {"text": "L2 distance, pixel values 0 to 1"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": "certified accuracy, %"}, "rangemode": "tozero"},
        },
    }
    table = Table(
        "Certified accuracy by distance",
        (Column("L2 distance", "number"), *(Column(labelled(label), "percent", heat=(0.0, 1.0)) for label in shares)),
        tuple((distance, *(curve[place] for curve in shares.values())) for place, distance in enumerate(distances)),
    )
    start = percent(shares[CLEAN][0])
    finding = f"With noise {sigma:g}, {start} of clean images are certified at all, none beyond {reach:.3f}"
    return Figure(
        finding,
        plot,
        table,
        caption="The share of images that the smoothed model gets right and whose answer no change of that size can "
        "alter, by any method. The curves end at the largest radius that so many samples can certify; each is over its "
        "own number of images.",
    )


def distance_table(radii: Mapping[tuple[str, float], Sequence[float]]) -> Table:
    """Return certified accuracy at fixed distances, for each noise and shift."""
    return Table(
        "Certified accuracy of the smoothed model at fixed distances",
        (
            Column("images"),
            Column("noise sigma", "number"),
            *(Column(f"within {distance:g}", "percent", heat=(0.0, 1.0)) for distance in DISTANCES),
        ),
        tuple(
            (labelled(label), sigma, *(certified_accuracy(some, distance).value for distance in DISTANCES))
            for (label, sigma), some in radii.items()
            if some
        ),
        caption="L2 distances, pixel values 0 to 1. Figures above are the larger of the clean rows.",
    )


def radius_table(radii: Mapping[tuple[str, float], Sequence[float]], reach: Mapping[float, float]) -> Table:
    """Return average certified radii with their intervals, for each noise and shift."""
    body = []
    for (label, sigma), some in radii.items():
        if some:
            average = average_radius(some, reach[sigma])
            ends = [round(end, 4) for end in average.interval] if average.interval else [None, None]
            certified = certified_accuracy(some, 0.0).value
            body.append((labelled(label), sigma, len(some), certified, round(average.value, 4), *ends))
    return Table(
        "Average certified radius (ACR)",
        (
            Column("images"),
            Column("noise sigma", "number"),
            Column("count", "number"),
            Column("certified at all", "percent", heat=(0.0, 1.0)),
            Column("ACR", "number"),
            Column("from", "number"),
            Column("to", "number"),
        ),
        tuple(body),
        caption="L2, pixel values 0 to 1; wrong answers and abstentions count 0. Intervals are over images, at 95%, "
        f"and left out where there are fewer than {MIN_IMAGES}.",
    )
