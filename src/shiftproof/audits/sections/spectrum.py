"""Which frequencies: the score under single waves and under noise around a frequency, and where corruptions act."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import READ, Measurement, PerImage, Scope, Section, Work, passes, shifting
from shiftproof.audits.sections.measuring import rows
from shiftproof.audits.sections.scores_by_task import WORDS, Score, ScoreWords, answered, image_shares, score
from shiftproof.audits.sections.spectrum_figures import corruption_bars, noise_curves, wave_map
from shiftproof.audits.sections.wording import between, interval, listed, percent
from shiftproof.certificates.frequencies import (
    Band,
    Frequency,
    band,
    band_means,
    frequencies,
    power_shares,
    radial,
)
from shiftproof.certificates.spectral_analysis import ALPHAS, WAVE
from shiftproof.data import as_images
from shiftproof.measures.intervals import Interval
from shiftproof.prediction_tasks import CLASSES
from shiftproof.reports.view import Sentence, View
from shiftproof.runs import Result, Row
from shiftproof.shifts import Shift
from shiftproof.shifts.spectral.waves import FourierBasis, PowerLaw
from shiftproof.subjects import Subject

NOISE = 8.0
"""The L2 norm of the noise of a set at 32 pixels; as that of a wave, it grows with the side of the image."""
UNEVEN = 0.1
"""How far apart the accuracies of bands are that differ much."""
NOTCH = 0.2
"""A wave stands out when it leaves this much less than each of its neighbours, and intervals do not meet."""


@dataclass(frozen=True)
class SpectrumSize:
    """How many images are used for each wave, and how many frequencies along a side."""

    images: int
    points: int


SIZES: Mapping[str, SpectrumSize] = {
    "quick": SpectrumSize(40, 16),
    "standard": SpectrumSize(200, 16),
    "full": SpectrumSize(200, 32),
}


@dataclass(frozen=True)
class Wave(Measurement):
    """Images under a single wave, planned for square ones of a side; an oblong one has the same radial frequencies."""

    kind = "spectrum.wave"
    shift: FourierBasis
    images: int
    seed: int
    side: int
    step: int

    @property
    def frequency(self) -> Frequency:
        """Cycles down and across a square image."""
        return self.shift.i, self.shift.j

    @property
    def band(self) -> Band:
        """The band of the frequency."""
        return band(radial(self.frequency, self.side, self.side), self.side)

    def measure(self, subject: Subject) -> Row:
        """Return the tally under the wave."""
        _, height, width = as_images(subject.data).shape
        i, j = int(self.shift.i * height / self.side), int(self.shift.j * width / self.side)
        count = min(self.images, len(subject.data))
        return answered(subject, range(count), replace(self.shift, i=i, j=j), self.seed)

    def work(self) -> Work:
        """Count a pass of the images."""
        return passes(self.images, self.shift)


@dataclass(frozen=True)
class NoiseSet(Measurement):
    """Images under noise around a frequency."""

    kind = "spectrum.set"
    shift: PowerLaw
    images: int
    seed: int
    side: int
    step: int

    def measure(self, subject: Subject) -> Row:
        """Return the tally under the noise."""
        _, height, width = as_images(subject.data).shape
        shift = replace(self.shift, center=min(self.shift.center, math.sqrt(height * width) / 2))
        return answered(subject, range(min(self.images, len(subject.data))), shift, self.seed)

    def work(self) -> Work:
        """Count a pass of the images."""
        return passes(self.images, self.shift)


@dataclass(frozen=True)
class Amplitudes(Measurement):
    """What a corruption changes, by frequency."""

    kind = "spectrum.amplitude"
    shift: Shift
    images: int
    seed: int
    side: int
    step: int

    def measure(self, subject: Subject) -> Row:
        """Return the shares of the bands in the change."""
        count = min(self.images, len(subject.data))
        (batch,) = subject.data.subset(range(count)).batches(count, device=subject.device)
        shares = power_shares(self.shift(batch.inputs, batch.keys, seed=self.seed) - batch.inputs)
        return {"shares": {name: round(share, 6) for name, share in shares.items()}}

    def work(self) -> Work:
        """Count images under the corruption; amplitudes are told without the model."""
        return [(READ, self.images), *shifting(self.shift, self.images)]


class FrequencySensitivity(Section):
    """Sensitivity by frequency."""

    name = "spectrum"
    title = "Sensitivity by frequency"
    question = "Is the model sensitive to coarse (low-frequency) or to fine (high-frequency) changes of the image?"
    numbers = (
        Number("worst_wave_accuracy", "accuracy under the worst single wave"),
        Number("spectrum.*", "accuracy under waves of a band: low, mid or high"),
    )
    words: ClassVar[ScoreWords] = WORDS[CLASSES.name]

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan every wave, every set of noise, and every corruption whose amplitudes are told."""
        size, side, settings = SIZES[scope.settings.budget], scope.side, scope.settings
        if side is None:
            return
        step = max(1, side // (size.points // 2 if settings.sparse else size.points))
        about = (min(scope.images, scope.scaled(size.images, 12)), settings.seed, side, step)
        for i, j in frequencies(side, side, step):
            yield Wave(FourierBasis(i, j, WAVE * side / 32), *about)
        for alpha in ALPHAS[1::2] if settings.sparse else ALPHAS:
            for center in range(1, side // 2 + 1, step):
                yield NoiseSet(PowerLaw(NOISE * side / 32, float(center), alpha), *about)
        for shift in scope.at(settings.severities[len(settings.severities) // 2]):
            yield Amplitudes(shift, *about)

    def per_image(self, results: Sequence[Result]) -> Mapping[str, PerImage]:
        """Return how often each image is right under the waves of each band."""
        bands: dict[Band, list[list[Row]]] = defaultdict(list)
        for wave, row in rows(results, Wave):
            bands[wave.band].append([row])
        found = {name: image_shares(some) for name, some in bands.items()}
        return {f"spectrum.{name}": shares for name, shares in found.items() if shares is not None}

    def view(self, results: Sequence[Result]) -> View:
        """Tell which band of frequencies costs most, and show the map."""
        waves = rows(results, Wave)
        counts = {wave.frequency: found for wave, row in waves if (found := score([row])) is not None}
        if not counts:
            return View(self.name, self.title, self.question, notes=("No wave was measured.",))
        values = {frequency: found.value for frequency, found in counts.items()}
        first = waves[0][0]
        side, step = first.side, first.step
        bands = band_means([(radial(each, side, side), value) for each, value in values.items()], side)
        numbers = {f"spectrum.{name}": value for name, value in bands.items()}
        numbers[self.numbers[0].name] = min(values.values())
        notch = _notch(counts, side, step)
        sets = [(task.shift, row) for task, row in rows(results, NoiseSet)]
        amplitudes = [(task.shift, row) for task, row in rows(results, Amplitudes)]
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(
                *_notch_verdict(notch, len(counts), self.words),
                *_verdict(bands, _band_shares(waves), self.words),
            ),
            blocks=(
                wave_map(values, side, step, bands, self.words),
                *([noise_curves(sets, self.words)] if sets else []),
                *([corruption_bars(amplitudes)] if amplitudes else []),
            ),
            notes=(
                f"{first.images} images for each wave; every wave has an L2 norm of {first.shift.eps:g} in each "
                "channel and a random sign there, and then values are clipped to [0, 1] and rounded to 256 levels, "
                "which takes a little of it, most where images are dark or bright. Low is under "
                f"{side / 6:.0f} cycles per image, high over {side / 3:.0f}.",
            ),
            numbers=numbers,
        )


def _notch(counts: Mapping[Frequency, Score], side: int, step: int) -> tuple[Frequency, Score, Score] | None:
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
        if lowest.value - here.value < NOTCH:
            continue
        own_reach, reach = (each.interval(among=len(counts)) for each in (here, lowest))
        if own_reach is not None and reach is not None and own_reach.high < reach.low:
            found.append((lowest.value - here.value, (i, j), here, lowest))
    return max(found, key=lambda each: each[:2])[1:] if found else None


def _notch_verdict(notch: tuple[Frequency, Score, Score] | None, among: int, words: ScoreWords) -> tuple[Sentence, ...]:
    if notch is None:
        return ()
    (down, across), here, lowest = notch
    said = (
        f"One frequency stands out: a wave of {abs(across)} cycles across and {abs(down)} down leaves "
        f"{words.leaves.format(percent(here.value))} ({interval(here, among)}); every wave beside it leaves "
        f"{percent(lowest.value)} or more."
    )
    return (Sentence(said, "bad"),)


def _band_shares(waves: Sequence[tuple[Wave, Row]]) -> dict[Band, PerImage]:
    """Return what each image adds to each band's score, where rows tell."""
    groups: dict[Band, list[list[Row]]] = defaultdict(list)
    for wave, row in waves:
        groups[wave.band].append([row])
    return {name: found for name, some in groups.items() if (found := image_shares(some)) is not None}


def _gap(shares: Mapping[Band, PerImage], weakest: Band, best: Band) -> Interval | None:
    """Return the interval of how much higher the score of one band is, image by image; it holds for all pairs."""
    if not {weakest, best} <= shares.keys() or len(shares[best].values) != len(shares[weakest].values):
        return None
    higher = PerImage(shares[best].values - shares[weakest].values, -1.0, 1.0, limited=shares[best].limited)
    return higher.interval(among=max(1, math.comb(len(shares), 2)))


def _verdict(bands: Mapping[Band, float], shares: Mapping[Band, PerImage], words: ScoreWords) -> tuple[Sentence, ...]:
    ranked = sorted(bands, key=lambda name: bands[name])
    weakest, others, best = ranked[0], ranked[1:], ranked[-1]
    said = percent(bands[weakest])
    if weakest in shares:
        said += f" ({between(shares[weakest].interval(among=len(shares)))})"
    rest = " and ".join(f"{percent(bands[name])} at {name}" for name in others)
    gap, uneven = _gap(shares, weakest, best), bands[best] - bands[weakest] >= UNEVEN
    shown = gap is not None and gap.low > 0 if shares else uneven
    if not shown and gap is not None and gap.high < UNEVEN:
        return (Sentence(f"Waves of any frequency cost about the same: {words.still.format(said)}."),)
    if not shown:
        text = f"No band of frequencies is shown to cost more than another: {words.still.format(said)} at {weakest}, "
        return (Sentence(f"{text}{rest} frequencies."),)
    alike = [name for name in others if (near := _gap(shares, weakest, name)) is not None and near.low <= 0]
    return (
        Sentence(
            f"{'Most' if uneven else 'A little more'} sensitive to {listed([weakest, *alike])} frequencies: under a "
            f"single added wave, mean {words.measure} is {said} at {weakest}, {rest} frequencies.",
            "watch" if uneven else "plain",
        ),
    )
