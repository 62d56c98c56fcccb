"""Which frequencies: accuracy under single waves and under noise around a frequency, and where corruptions act."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from shiftproof import shifts
from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import Scope, Section, Subject, Work, passes
from shiftproof.audits.sections.measuring import accuracy, image_means, predictions, rows, tally
from shiftproof.audits.sections.spectrum_figures import corruption_bars, noise_curves, wave_map
from shiftproof.audits.sections.wording import between, interval, percent
from shiftproof.audits.view import Sentence, View
from shiftproof.certificates.frequencies import (
    Band,
    Frequency,
    band,
    band_means,
    frequencies,
    radial,
)
from shiftproof.certificates.spectrum import ALPHAS, amplitude_profile, power_shares
from shiftproof.measures import Accuracy
from shiftproof.measures.means import Mean, mean
from shiftproof.runs import Cell, Result, Row
from shiftproof.shifts.spectral import FourierBasis, PowerLaw

WAVE, NOISE = 4.0, 8.0
"""L2 norms at 32 pixels: of a wave in each channel, and of the noise of a set. They grow with the side of the image."""
UNEVEN = 0.1
"""Bands whose accuracies are further apart than this are told apart."""
NOTCH = 0.2
"""A wave stands out when it leaves this much less than each of its neighbours, and intervals do not meet."""


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
    numbers = (
        Number("worst_wave_accuracy", "accuracy under the worst single wave"),
        Number("spectrum.*", "accuracy under waves of a band: low, mid or high"),
    )

    def plan(self, scope: Scope) -> Iterator[Cell]:
        """Plan a cell per wave, per set of noise, and per corruption whose amplitudes are told."""
        size, side, settings = SIZES[scope.settings.budget], scope.side, scope.settings
        step = max(1, side // (size.points // 2 if settings.sparse else size.points))
        about = {
            "images": min(scope.images, scope.scaled(size.images, 16)),
            "seed": settings.seed,
            "side": side,
            "step": step,
        }
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

    def work(self, cell: Cell) -> Work:
        """Count images under a wave or noise; amplitudes are told without the model."""
        work = passes(cell)
        if cell.task == "spectrum.amplitude":
            del work["forward"]
        return work

    def per_image(self, results: Sequence[Result]) -> Mapping[str, NDArray[np.float64]]:
        """Return how often each image is right under the waves of each band."""
        bands: dict[Band, list[list[Row]]] = defaultdict(list)
        for cell, row in rows(results, "spectrum.wave"):
            side = cast(int, cell["side"])
            bands[band(radial(_frequency(cell), side, side), side)].append([row])
        found = {name: image_means(some) for name, some in bands.items()}
        return {f"spectrum.{name}": right for name, right in found.items() if right is not None}

    def view(self, results: Sequence[Result]) -> View:
        """Tell which band of frequencies costs most, and show the map."""
        waves = rows(results, "spectrum.wave")
        counts = {_frequency(cell): found for cell, row in waves if (found := accuracy([row])) is not None}
        if not counts:
            return View(self.name, self.title, self.question, notes=("No wave was measured.",))
        values = {frequency: found.value for frequency, found in counts.items()}
        cell = waves[0][0]
        side, step = cast(int, cell["side"]), cast(int, cell["step"])
        bands = band_means([(radial(each, side, side), value) for each, value in values.items()], side)
        numbers = {f"spectrum.{name}": value for name, value in bands.items()}
        numbers["worst_wave_accuracy"] = min(values.values())
        notch = _notch(counts, side, step)
        sets = rows(results, "spectrum.set")
        amplitudes = rows(results, "spectrum.amplitude")
        eps = cast(FourierBasis, shifts.parse(cast(str, cell["shift"]))).eps
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(*_notch_verdict(notch), *_verdict(bands, _band_intervals(waves, side))),
            blocks=(
                wave_map(values, side, step, bands),
                *([noise_curves(sets)] if sets else []),
                *([corruption_bars(amplitudes)] if amplitudes else []),
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


def _notch(counts: Mapping[Frequency, Accuracy], side: int, step: int) -> tuple[Frequency, Accuracy, Accuracy] | None:
    """Return the wave that stands out most from those around it, with its lowest neighbour; None where none does."""
    known = {same: found for (i, j), found in counts.items() for same in ((i % side, j % side), (-i % side, -j % side))}
    around = [(down, across) for down in (-step, 0, step) for across in (-step, 0, step) if down or across]
    found = []
    for (i, j), here in counts.items():
        places = [((i + down) % side, (j + across) % side) for down, across in around]
        own = {(i % side, j % side), (-i % side, -j % side)}
        nearby = [known[place] for place in places if place in known and place not in own]
        if not nearby:
            continue
        lowest = min(nearby, key=lambda each: each.value)
        if lowest.value - here.value >= NOTCH and here.interval()[1] < lowest.interval()[0]:
            found.append((lowest.value - here.value, (i, j), here, lowest))
    return max(found)[1:] if found else None


def _notch_verdict(notch: tuple[Frequency, Accuracy, Accuracy] | None) -> tuple[Sentence, ...]:
    if notch is None:
        return ()
    (down, across), here, lowest = notch
    said = (
        f"One frequency stands out: a wave of {abs(across)} cycles across and {abs(down)} down leaves "
        f"{percent(here.value)} right ({interval(here)}); every wave beside it leaves {percent(lowest.value)} or more."
    )
    return (Sentence(said, "bad"),)


def _band_intervals(waves: Sequence[tuple[Cell, Row]], side: int) -> dict[Band, Mean]:
    """Return the interval of each band's accuracy over images, where rows tell who was right."""
    groups: dict[Band, list[list[Row]]] = defaultdict(list)
    for cell, row in waves:
        groups[band(radial(_frequency(cell), side, side), side)].append([row])
    means = {name: image_means(some) for name, some in groups.items()}
    return {name: mean(some) for name, some in means.items() if some is not None and len(some) > 1}


def _verdict(bands: Mapping[Band, float], intervals: Mapping[Band, Mean]) -> tuple[Sentence, ...]:
    ranked = sorted(bands, key=lambda name: bands[name])
    weakest, others = ranked[0], ranked[1:]
    said = percent(bands[weakest])
    if weakest in intervals:
        said += f" ({between(intervals[weakest])})"
    rest = " and ".join(f"{percent(bands[name])} at {name} ones" for name in others)
    if not others or bands[ranked[-1]] - bands[weakest] < UNEVEN:
        return (Sentence(f"Waves of any frequency cost about the same: {said} are still right."),)
    return (
        Sentence(f"Most sensitive to {weakest} frequencies: under a wave there {said} are right, {rest}.", "watch"),
    )
