"""How the section on frequencies shows what it found: a map of waves, curves of noise, and bars of corruptions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from shiftproof.audits.sections.scores_by_task import WORDS, ScoreWords, score
from shiftproof.audits.sections.shift_names import named
from shiftproof.audits.sections.wording import percent, title
from shiftproof.certificates.frequencies import BANDS, Band, Frequency, axis, laid_out
from shiftproof.prediction_tasks import CLASSES
from shiftproof.reports.view import Column, Figure, Table
from shiftproof.runs import Row
from shiftproof.shifts import Shift
from shiftproof.shifts.spectral.waves import PowerLaw


def wave_map(
    values: Mapping[Frequency, float],
    side: int,
    step: int,
    bands: Mapping[Band, float],
    words: ScoreWords = WORDS[CLASSES.name],
) -> Figure:
    """Draw the score under each wave, the zero frequency in the middle."""
    heat = laid_out(values, side, side, step)
    places = list(axis(side, step))
    told = ", ".join(f"{percent(value)} at {name}" for name, value in sorted(bands.items(), key=lambda each: each[1]))
    plot = {
        "data": [
            {
                "type": "heatmap",
                "x": places,
                "y": places,
                "z": [[None if np.isnan(value) else 100 * float(value) for value in row] for row in heat],
                "zmin": 0,
                "zmax": 100,
                "colorbar": {
                    "title": {"text": f"{words.measure}, %", "side": "top"},
                    "orientation": "h",
                    "len": 0.5,
                    "y": 1.02,
                    "yanchor": "bottom",
                },
                "hovertemplate": "%{y} down, %{x} across: %{z:.0f}%<extra></extra>",
            }
        ],
        "layout": {
            "height": 540,
            "xaxis": {"title": {"text": "cycles across"}, "constrain": "domain"},
            "yaxis": {"title": {"text": "cycles down"}, "scaleanchor": "x", "constrain": "domain"},
        },
    }
    half = [place for place in places if place >= 0]
    table = Table(
        f"{_capital(words.measure)} by frequency of a wave",
        (Column("cycles down", "number"), *(Column(f"{j} across", "percent", heat=(0.0, 1.0)) for j in half)),
        tuple(
            (i, *(None if np.isnan(value) else float(value) for value in heat[row][len(places) // 2 :]))
            for row, i in enumerate(places)
        ),
        caption="The other half is its mirror image.",
    )
    return Figure(
        f"{_capital(words.measure)} under waves, on average: {told} frequencies",
        plot,
        table,
        caption="The centre is a change of brightness, the edges are the finest stripes. Dark cells are the "
        "frequencies at which a change costs most.",
    )


def noise_curves(found: Sequence[tuple[PowerLaw, Row]], words: ScoreWords = WORDS[CLASSES.name]) -> Figure:
    """Draw the score under noise around each frequency."""
    values: dict[float, dict[float, float]] = defaultdict(dict)
    for shift, row in found:
        here = score([row])
        if here is not None:
            values[shift.alpha][shift.center] = here.value
    centers = sorted({center for curve in values.values() for center in curve})
    plot = {
        "data": [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"alpha {alpha:g}",
                "x": centers,
                "y": [None if center not in curve else 100 * curve[center] for center in centers],
            }
            for alpha, curve in values.items()
        ],
        "layout": {
            "xaxis": {"title": {"text": "centre frequency, cycles per image"}},
            "yaxis": {"title": {"text": f"{words.measure}, %"}, "rangemode": "tozero"},
        },
    }
    table = Table(
        f"{_capital(words.measure)} under noise around a frequency",
        (
            Column("centre", "number"),
            *(Column(f"alpha {alpha:g}", "percent", heat=(0.0, 1.0)) for alpha in values),
        ),
        tuple((center, *(curve.get(center) for curve in values.values())) for center in centers),
    )
    means = {center: sum(curve[center] for curve in values.values() if center in curve) for center in centers}
    worst = min(means, key=lambda center: means[center])
    return Figure(
        f"Noise around {worst:g} cycle{'s' * (worst != 1)} per image costs most",
        plot,
        table,
        caption="Noise of equal strength; the larger alpha, the narrower it is around its centre (Sun et al. 2022).",
    )


def corruption_bars(found: Sequence[tuple[Shift, Row]]) -> Figure:
    """Draw the share of each band in what corruptions change."""
    shares = {named(shift): cast(Mapping[str, float], row["shares"]) for shift, row in found}
    ranked = sorted(shares, key=lambda name: -shares[name]["low"])
    names = [title(name) for name in ranked]
    plot = {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "name": f"{band} frequencies",
                "x": [100 * shares[name][band] for name in ranked][::-1],
                "y": names[::-1],
                "hovertemplate": "%{y}: %{x:.0f}%<extra></extra>",
            }
            for band in BANDS
        ],
        "layout": {
            "barmode": "stack",
            "legend": {"traceorder": "normal"},
            "height": max(240, 60 + 24 * len(names)),
            "xaxis": {"title": {"text": "share of the change, %"}},
            "yaxis": {"automargin": True},
        },
    }
    table = Table(
        "Where corruptions change images",
        (Column("corruption"), *(Column(band, "percent", heat=(0.0, 1.0)) for band in BANDS)),
        tuple((title(name), *(shares[name][band] for band in BANDS)) for name in ranked),
    )
    finding = f"{names[0].capitalize()} acts on low frequencies most, {names[-1]} least"
    return Figure(finding, plot, table, caption="Shares of the squared amplitude of what a corruption adds.")


def _capital(measure: str) -> str:
    return measure[0].upper() + measure[1:] if measure.islower() else measure
