"""Which frequencies: accuracy under single waves and under noise around a frequency, and where corruptions act."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from shiftproof import shifts
from shiftproof.audits.sections.base import Scope, Section, Subject
from shiftproof.audits.sections.measuring import accuracy, predictions, rows, tally
from shiftproof.audits.sections.wording import percent, title
from shiftproof.audits.view import Column, Figure, Sentence, Table, View
from shiftproof.certificates.frequencies import BANDS, Band, Frequency, axis, band_means, frequencies, laid_out, radial
from shiftproof.certificates.spectrum import ALPHAS, amplitude_profile, power_shares
from shiftproof.runs import Cell, Result, Row
from shiftproof.shifts.spectral import FourierBasis, PowerLaw

WAVE, NOISE = 4.0, 8.0
"""L2 norms at 32 pixels: of a wave in each channel, and of the noise of a set. They grow with the side of the image."""
UNEVEN = 0.1
"""Bands whose accuracies are further apart than this are told apart."""


@dataclass(frozen=True)
class Size:
    """How many images are used for each wave, and how many frequencies along a side."""

    images: int
    points: int


SIZES: Mapping[str, Size] = {"quick": Size(40, 16), "standard": Size(200, 16), "full": Size(200, 32)}


class Spectrum(Section):
    """Sensitivity by frequency."""

    name = "spectrum"
    title = "Which frequencies"
    question = "Is the model weak to slow changes across the image, or to fine ones?"

    def plan(self, scope: Scope) -> Iterator[Cell]:
        """Plan a cell per wave, per set of noise, and per corruption whose amplitudes are told."""
        size, side, settings = SIZES[scope.settings.budget], scope.side, scope.settings
        step = max(1, side // size.points)
        about = {"images": min(scope.images, size.images), "seed": settings.seed, "side": side, "step": step}
        for i, j in frequencies(side, side, step):
            yield Cell("spectrum.wave", shift=FourierBasis(i, j, WAVE * side / 32).label, **about)
        for alpha in ALPHAS:
            for center in range(1, side // 2 + 1, step):
                yield Cell("spectrum.set", shift=PowerLaw(NOISE * side / 32, float(center), alpha).label, **about)
        severity = settings.severities[len(settings.severities) // 2]
        for name in settings.shifts:
            yield Cell("spectrum.amplitude", shift=f"{name}@{severity:g}", **about)

    def measure(self, cell: Cell, subject: Subject) -> Row:
        """Return the tally under a wave or a set, or the amplitudes of a corruption's change."""
        shift, seed = shifts.parse(cast(str, cell["shift"])), cast(int, cell["seed"])
        count = min(cast(int, cell["images"]), len(subject.data))
        _, height, width = subject.data.shape
        if cell.task == "spectrum.amplitude":
            (batch,) = subject.data.subset(range(count)).batches(count, device=subject.device)
            profile = amplitude_profile(shift(batch.images, batch.keys, seed=seed) - batch.images)
            shares = power_shares(profile, cast(int, cell["side"]))
            return {"shares": {name: round(share, 6) for name, share in shares.items()}}
        side = cast(int, cell["side"])
        # Planned for a square image of the same side: an oblong one has the same radial frequencies.
        if isinstance(shift, FourierBasis):
            shift = replace(shift, i=int(shift.i * height / side), j=int(shift.j * width / side))
        elif isinstance(shift, PowerLaw):
            shift = replace(shift, center=min(shift.center, math.sqrt(height * width) / 2))
        return tally(*predictions(subject, 0, count, shift, seed))

    def view(self, results: Sequence[Result]) -> View:
        """Tell which band of frequencies costs most, and show the map."""
        waves = rows(results, "spectrum.wave")
        values = {_frequency(cell): found.value for cell, row in waves if (found := accuracy([row])) is not None}
        if not values:
            return View(self.name, self.title, self.question, notes=("No wave was measured.",))
        cell = waves[0][0]
        side, step = cast(int, cell["side"]), cast(int, cell["step"])
        bands = band_means([(radial(each, side, side), value) for each, value in values.items()], side)
        numbers = {f"spectrum.{name}": value for name, value in bands.items()}
        numbers["worst_wave_accuracy"] = min(values.values())
        sets = rows(results, "spectrum.set")
        amplitudes = rows(results, "spectrum.amplitude")
        eps = cast(FourierBasis, shifts.parse(cast(str, cell["shift"]))).eps
        return View(
            self.name,
            self.title,
            self.question,
            verdict=_verdict(bands),
            blocks=(
                _map(values, side, step, bands),
                *([_sets(sets)] if sets else []),
                *([_shares(amplitudes)] if amplitudes else []),
            ),
            notes=(
                f"{cast(int, cell['images'])} images for each wave; every wave has an L2 norm of {eps:g} in each "
                f"channel, a random sign there, and nothing else. Low is under {side / 6:.0f} cycles per image, high "
                f"over {side / 3:.0f}.",
            ),
            numbers=numbers,
        )


def _frequency(cell: Cell) -> Frequency:
    shift = cast(FourierBasis, shifts.parse(cast(str, cell["shift"])))
    return shift.i, shift.j


def _verdict(bands: Mapping[Band, float]) -> tuple[Sentence, ...]:
    ranked = sorted(bands, key=lambda name: bands[name])
    weakest, others = ranked[0], ranked[1:]
    rest = " and ".join(f"{percent(bands[name])} at {name} ones" for name in others)
    if not others or bands[ranked[-1]] - bands[weakest] < UNEVEN:
        return (Sentence(f"Waves of any frequency cost about the same ({percent(bands[weakest])} are still right)."),)
    said = f"Most sensitive to {weakest} frequencies: under a wave there {percent(bands[weakest])} are right, {rest}."
    return (Sentence(said, "watch"),)


def _map(values: Mapping[Frequency, float], side: int, step: int, bands: Mapping[Band, float]) -> Figure:
    heat = laid_out(values, side, side, step)
    places = list(axis(side, step))
    weakest = min(bands, key=lambda name: bands[name])
    plot = {
        "data": [
            {
                "type": "heatmap",
                "x": places,
                "y": places,
                "z": [[None if np.isnan(value) else 100 * float(value) for value in row] for row in heat],
                "zmin": 0,
                "zmax": 100,
                "colorbar": {"title": {"text": "accuracy, %"}},
                "hovertemplate": "%{y} down, %{x} across: %{z:.0f}%<extra></extra>",
            }
        ],
        "layout": {
            "height": 460,
            "xaxis": {"title": {"text": "cycles across"}, "constrain": "domain"},
            "yaxis": {"title": {"text": "cycles down"}, "scaleanchor": "x", "constrain": "domain"},
        },
    }
    half = [place for place in places if place >= 0]
    table = Table(
        "Accuracy by frequency of a wave",
        (Column("cycles down", "number"), *(Column(f"{j} across", "percent", heat=(0.0, 1.0)) for j in half)),
        tuple(
            (i, *(None if np.isnan(value) else float(value) for value in heat[row][len(places) // 2 :]))
            for row, i in enumerate(places)
        ),
        caption="The other half is its mirror image.",
    )
    return Figure(
        f"Waves of {weakest} frequency cost most: {percent(bands[weakest])} are right on average",
        plot,
        table,
        caption="The middle is a change of brightness, the edge the finest stripes. Dark places are what the model "
        "leans on.",
    )


def _sets(found: Sequence[tuple[Cell, Row]]) -> Figure:
    values: dict[float, dict[float, float]] = defaultdict(dict)
    for cell, row in found:
        shift = cast(PowerLaw, shifts.parse(cast(str, cell["shift"])))
        here = accuracy([row])
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
            "yaxis": {"title": {"text": "accuracy, %"}, "rangemode": "tozero"},
        },
    }
    table = Table(
        "Accuracy under noise around a frequency",
        (
            Column("centre", "number"),
            *(Column(f"alpha {alpha:g}", "percent", heat=(0.0, 1.0)) for alpha in values),
        ),
        tuple((center, *(curve.get(center) for curve in values.values())) for center in centers),
    )
    means = {center: sum(curve[center] for curve in values.values() if center in curve) for center in centers}
    worst = min(means, key=lambda center: means[center])
    return Figure(
        f"Noise around {worst:g} cycles per image costs most",
        plot,
        table,
        caption="Noise of equal strength: alpha says how narrowly it keeps to its centre (Sun et al. 2022).",
    )


def _shares(found: Sequence[tuple[Cell, Row]]) -> Figure:
    shares = {
        shifts.parse(cast(str, cell["shift"])).name: cast(Mapping[str, float], row["shares"]) for cell, row in found
    }
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
