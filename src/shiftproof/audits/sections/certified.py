"""What is guaranteed: distances within which no change of the input changes the answer of the smoothed model.

The model is smoothed with two strengths of noise, clean and under two shifts. Certified accuracy is reported at
distances that are the same for every model, each by the noise under which it is higher, so that it can be compared and
gated on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import (
    CLEAN,
    FORWARD,
    NOISE,
    READ,
    Measurement,
    PerImage,
    Scope,
    Section,
    Work,
    label_of,
    shifting,
)
from shiftproof.audits.sections.certified_figures import (
    DISTANCES,
    certified_curves,
    distance_table,
    radius_table,
)
from shiftproof.audits.sections.certified_ranges import CertifiedRange, range_tables, range_verdict
from shiftproof.audits.sections.certified_words import (
    FAR,
    NEAR,
    best_noise,
    certified_action,
    certified_notes,
    certified_verdict,
    denoised_verdict,
    radii_of,
    vote_verdict,
)
from shiftproof.audits.sections.measuring import applying, rows
from shiftproof.audits.sections.shift_names import facts, named
from shiftproof.audits.sections.wording import interval, percent, title
from shiftproof.certificates import Smoothed
from shiftproof.certificates.laws import LAWS
from shiftproof.certificates.radius import round_down
from shiftproof.certificates.rules import make_rule
from shiftproof.data import as_images
from shiftproof.errors import ModelError
from shiftproof.measures import average_radius
from shiftproof.models import logits
from shiftproof.models.denoising import denoiser_card, denoiser_names, fitting_denoiser
from shiftproof.reports.view import Level, Sentence, Tile, View
from shiftproof.runs import Json, Result, Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

SIGMAS = (0.03, 0.25)
"""Noise that most networks bear, and noise that those trained for certificates do."""
RANGES = ("brightness", "contrast+brightness", "blur", "translation")
"""Transformations that are certified; rotation and scaling take too many passes for an audit."""
LEAST_SAMPLES, LEAST_GUESSES = 48, 10
"""Samples of an image where a model is costly, which show radii up to 1.3 times the noise (100 up to 1.7), and those
before them that choose its class."""
LEAST_IMAGES, LEAST_OTHERS = 8, 2
"""Images where a model is costly: clean in L2, and of each shift and range, of which so few are examples."""
DRAWN = 0.6
"""Of the samples that count a class, the share that is drawn on average: images that are wrong need none."""
DENOISED_COST = 5
"""A denoiser and a small network take so many times as long as the network."""
GOOD, BAD = 0.5, 0.2
LEVEL_RULE = f"Good: 50% or more at a radius of {FAR:g}. Bad: under 20% at {NEAR:g}."


@dataclass(frozen=True)
class CertifiedSize:
    """How many images are certified, clean, under each shift and for each range, with how many samples, how sure."""

    images: int
    shifted: int
    ranges: int
    part: int
    n0: int
    n: int
    alpha: float


SIZES: Mapping[str, CertifiedSize] = {
    "quick": CertifiedSize(images=32, shifted=16, ranges=12, part=8, n0=20, n=250, alpha=0.01),
    "standard": CertifiedSize(images=200, shifted=100, ranges=50, part=10, n0=100, n=2_000, alpha=0.001),
    "full": CertifiedSize(images=500, shifted=250, ranges=250, part=10, n0=100, n=100_000, alpha=0.001),
}


@dataclass(frozen=True)
class CertifiedPart(Measurement):
    """A few images, clean or under a shift, certified with one noise: in L2, or against a transformation."""

    kind = "certified"
    shift: Shift | None
    sigma: float
    begin: int
    end: int
    n0: int
    n: int
    alpha: float
    seed: int
    against: str = "l2"
    denoised: bool = False

    def measure(self, subject: Subject) -> Row:
        """Certify the images; radii of wrong answers and abstentions are 0."""
        shape = as_images(subject.data).shape
        denoiser = fitting_denoiser(subject.model_fingerprint, shape, self.sigma) if self.denoised else None
        if self.denoised and denoiser is None:
            return {"applies": False}
        radii: list[Json] = []
        samples = voted = plain = 0
        count = self.end - self.begin
        for batch in subject.data.subset(range(self.begin, self.end)).batches(count, device=subject.device):
            images = batch.inputs if self.shift is None else self.shift(batch.inputs, batch.keys, seed=self.seed)
            try:
                smoothed = _smoothed(subject, self.sigma, self.against, denoiser, self.seed)
                made = smoothed.certify(images, batch.labels, keys=batch.keys, n0=self.n0, n=self.n, alpha=self.alpha)
            except ModelError as error:
                return {"applies": False, "reason": error.headline}
            if batch.labels is not None:
                voted += sum(each.guess == label for each, label in zip(made, batch.labels.tolist(), strict=True))
                plain += int(logits(subject.fast_model, images).argmax(1).eq(batch.labels.cpu()).sum())
            radii += [round_down(each.radius) for each in made]
            samples += sum(each.samples for each in made) + len(made) * self.n0
        row: dict[str, Json] = {"images": len(radii), "radii": radii, "samples": samples}
        row |= {"voted_right": voted, "plain_right": plain}
        return row if denoiser is None else {**row, "denoiser": denoiser}

    @property
    def plain(self) -> bool:
        """Whether it is the model as it is that is smoothed, and in L2."""
        return self.against == "l2" and not self.denoised

    @property
    def reach(self) -> float:
        """The largest radius that so many samples can show."""
        return make_rule("sequential", sigma=self.sigma, n=self.n, alpha=self.alpha, against=self.against).reach

    def work(self) -> Work:
        """Count noisy samples; of those that are allowed some are not drawn, as wrong answers need few."""
        images = self.end - self.begin
        samples = images * (self.n0 + DRAWN * self.n)
        forward = samples * (DENOISED_COST if self.denoised else 1)
        return [(READ, images), (NOISE, samples), (FORWARD, forward), *shifting(self.shift, images)]

    def parameters(self) -> dict[str, Json]:
        """Return the fields, with a name for no shift."""
        return {**super().parameters(), "shift": label_of(self.shift)}


@lru_cache(maxsize=1)
def _smoothed(subject: Subject, sigma: float, against: str, denoiser: str | None, seed: int) -> Smoothed:
    """Return the smoothed model of tasks that follow each other: it looks at the model once, before it certifies."""
    batch = subject.batch_size
    return Smoothed(subject.fast_model, sigma, against=against, denoiser=denoiser, seed=seed, batch_size=batch)


class Certified(Section):
    """Certified accuracy and radii by randomized smoothing."""

    name = "certified"
    title = "Certified robustness"
    question = "How large a change of an image is guaranteed not to change the answer of the smoothed model?"
    numbers = (
        Number("acr", "average certified radius of the smoothed model on clean images", "higher", "L2"),
        Number("acr.*", "average certified radius under a shift", "higher", "L2"),
        Number(
            "certified_accuracy.*",
            "the share of clean images that the smoothed model gets right, certified at an L2 distance: "
            + ", ".join(f"{distance:g}" for distance in DISTANCES),
        ),
        Number(
            "denoised_acr",
            "average certified radius of the model behind the denoiser that comes with the package",
            "higher",
            "L2",
            "where one fits the images",
        ),
        Number(
            "certified_range.*",
            "mean range within which the smoothed model is right and provably stable against brightness, "
            "contrast (with brightness), blur or translation",
            "higher",
            "its own scale",
        ),
    )

    def plan(self, scope: Scope) -> Iterator[CertifiedPart]:
        """Plan parts of the images for each noise, clean and under a shift of low and one of middle frequency."""
        settings, size = scope.settings, SIZES[scope.settings.budget]
        middle = scope.at(settings.severities[len(settings.severities) // 2])
        for against in RANGES:
            images = min(scope.images, scope.scaled(size.ranges, LEAST_OTHERS))
            yield from self._parts(scope, size, None, cast(float, LAWS[against].usual), images, against)
        if any(denoiser_card(name)["shape"] == [3, scope.side, scope.side] for name in denoiser_names()):
            images = min(scope.images, scope.scaled(size.shifted, 8))
            yield from self._parts(scope, size, None, max(SIGMAS), images, denoised=True)
        for shift in (None, *_two_shifts(middle)):
            least = (size.images, LEAST_IMAGES) if shift is None else (size.shifted, LEAST_OTHERS)
            images = min(scope.images, scope.scaled(*least))
            for sigma in SIGMAS:
                yield from self._parts(scope, size, shift, sigma, images)

    def _parts(
        self,
        scope: Scope,
        size: CertifiedSize,
        shift: Shift | None,
        sigma: float,
        images: int,
        against: str = "l2",
        denoised: bool = False,
    ) -> Iterator[CertifiedPart]:
        """Cut images into parts."""
        for begin in range(0, images, size.part):
            yield CertifiedPart(
                shift=shift,
                sigma=sigma,
                begin=begin,
                end=min(begin + size.part, images),
                n0=scope.scaled(size.n0, LEAST_GUESSES),
                n=scope.scaled(size.n, LEAST_SAMPLES),
                alpha=size.alpha,
                seed=scope.settings.seed,
                against=against,
                denoised=denoised,
            )

    def per_image(self, results: Sequence[Result]) -> Mapping[str, PerImage]:
        """Return the certified radii of clean images under the noise that certifies most."""
        radii: dict[float, list[float]] = defaultdict(list)
        reach: dict[float, float] = {}
        for task, row in rows(results, CertifiedPart):
            if task.shift is None and task.plain and row.get("applies", True):
                radii[task.sigma] += cast("list[float]", row["radii"])
                reach[task.sigma] = task.reach
        best = max(radii, key=lambda sigma: sum(radii[sigma]), default=None)
        return {} if best is None or not radii[best] else {"acr": PerImage(np.array(radii[best]), 0.0, reach[best])}

    def view(self, results: Sequence[Result]) -> View:
        """Tell how many images are certified at a distance, and what that means."""
        every = applying(results, CertifiedPart)
        found = [(task, row) for task, row in every if task.plain]
        behind = [(task, row) for task, row in every if task.denoised]
        ranges = certified_ranges([(task, row) for task, row in every if task.against != "l2"])
        names = {label_of(task.shift): title(named(task.shift)) for task, _ in found if task.shift is not None}
        radii: dict[tuple[str, float], list[float]] = defaultdict(list)
        for task, row in found:
            radii[label_of(task.shift), task.sigma] += cast("list[float]", row["radii"])
        clean = {sigma: some for (label, sigma), some in radii.items() if label == CLEAN and some}
        if not clean:
            reasons = {str(row["reason"]) for _, row in rows(results, CertifiedPart) if "reason" in row}
            return View(self.name, self.title, self.question, notes=tuple(reasons) or ("Nothing was certified.",))
        best = max(clean, key=lambda sigma: (sum(clean[sigma]) / len(clean[sigma]), -sigma))
        lines = {label: some for (label, sigma), some in radii.items() if sigma == best and some}
        at = {distance: best_noise(clean, distance) for distance in DISTANCES}
        near, far = at[NEAR][1], at[FAR][1]
        level: Level = "good" if far.value >= GOOD else "bad" if near.value < BAD else "watch"
        reach = {task.sigma: task.reach for task, _ in found}
        numbers = {
            "acr" if label == CLEAN else f"acr.{label}": average_radius(some).value for label, some in lines.items()
        }
        if behind:
            numbers["denoised_acr"] = average_radius(radii_of(behind)).value
        numbers |= {f"certified_accuracy.{distance:g}": value.value for distance, (_, value) in at.items()}
        tile = Tile(
            f"Certified accuracy at L2 {FAR:g}",
            percent(far.value),
            f"{interval(far, len(clean))}, smoothed model",
            level,
            f"{percent(near.value)} at {NEAR:g}. {LEVEL_RULE}",
        )
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(
                Sentence(certified_verdict(radii, at, names, len(clean)), level),
                *vote_verdict(found, at[NEAR][0]),
                *denoised_verdict(behind),
                *range_verdict(ranges),
            ),
            tiles=(tile,),
            blocks=(
                certified_curves(lines, best),
                distance_table(radii),
                radius_table(radii, reach),
                *range_tables(ranges),
            ),
            notes=certified_notes(found, best, max(SIGMAS)),
            numbers={**numbers, **{f"certified_range.{each.name}": each.mean for each in ranges}},
            actions=(certified_action(far, behind),) if level != "good" else (),
        )


def certified_ranges(found: Sequence[tuple[CertifiedPart, Row]]) -> list[CertifiedRange]:
    """Return the ranges of each transformation over its parts, in the order they are told."""
    radii: dict[str, list[float]] = defaultdict(list)
    for task, row in found:
        radii[task.against] += cast("list[float]", row["radii"])
    scale = {task.against: task.sigma for task, _ in found}
    return [CertifiedRange(against, scale[against], tuple(radii[against])) for against in RANGES if radii.get(against)]


def _two_shifts(some: Sequence[Shift]) -> list[Shift]:
    """Return a shift of low and one of middle frequency, on which certified models are weak; fog where it is there."""
    chosen = []
    for frequency in ("low", "mid"):
        fit = [shift for shift in some if facts(named(shift))["frequency"] == frequency]
        chosen += [shift for shift in fit if shift.name == "fog"] or fit[:1]
    return chosen
