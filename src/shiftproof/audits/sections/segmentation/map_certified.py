"""What is guaranteed of a segmenter: pixels whose class holds under every small change of the image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import FORWARD, NOISE, READ, Measurement, Scope, Section, Work
from shiftproof.audits.sections.measuring import rows
from shiftproof.audits.sections.segmentation.map_measuring import (
    class_list,
    counts_of,
    part_of,
    predicted_maps,
    present_of,
)
from shiftproof.audits.sections.wording import between, percent
from shiftproof.certificates.certified_maps import MapCertificateOptions
from shiftproof.certificates.certifying_maps import CertifiedPixels, certified_counts
from shiftproof.errors import ConfigurationError
from shiftproof.measures.overlap import Overlap
from shiftproof.reports.view import Column, Level, Sentence, Table, Tile, View
from shiftproof.runs import Result, Row
from shiftproof.subjects import Subject

IMAGES = {"quick": 40, "standard": 100, "full": 500}
LEAST = 12
SIGMA = 0.25


@dataclass(frozen=True)
class CertifiedImages(Measurement):
    """Some images, all of whose pixels are certified or abstain."""

    kind = "certified.maps"
    start: int
    stop: int
    options: MapCertificateOptions
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Return the counts of certified maps, with abstention as a class of its own, and of pixels that abstain."""
        places = range(self.start, self.stop)
        return {
            **certified_counts(subject, places, self.options, self.seed),
            "before": predicted_maps(subject, places, None, self.seed),
            "names": class_list(subject),
        }

    def work(self) -> Work:
        """Count noisy copies."""
        images = self.stop - self.start
        copies = images * (self.options.choosing + self.options.testing)
        return [(READ, 2 * images), (NOISE, copies), (FORWARD, copies + images)]


class MapCertified(Section):
    """Certified pixel accuracy and mIoU."""

    name = "certified"
    title = "Certified robustness"
    question = "For what share of pixels is the class guaranteed under every small change of the image?"
    numbers = (
        Number("certified_pixel_accuracy", "the share of labelled pixels whose class is right and certified"),
        Number("certified_miou", "mIoU of certified maps, where a pixel that abstains is wrong"),
        Number("abstained", "the share of pixels for which no class is certified", "lower"),
        Number("certified_radius", "the L2 radius that certified classes hold within", None, "radius"),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan a few images, a task each: a kill costs one."""
        settings = scope.settings
        images = min(scope.images, scope.scaled(IMAGES[settings.budget], LEAST))
        for start in range(images):
            yield CertifiedImages(start, start + 1, MapCertificateOptions(sigma=SIGMA), settings.seed)

    def view(self, results: Sequence[Result]) -> View:
        """Tell how much is certified, and within which radius."""
        measured = rows(results, CertifiedImages)
        if not measured:
            return View(self.name, self.title, self.question, notes=("No image was certified.",))
        options = measured[0][0].options
        clean = [part_of(row, "before") for _, row in measured]
        present, names = present_of(clean[0]), cast("Sequence[str]", measured[0][1]["names"])
        counted = np.append(present, False)
        part = CertifiedPixels(
            Overlap(np.concatenate([counts_of(row) for _, row in measured]), counted),
            float(np.mean([each for _, row in measured for each in _numbers(row, "abstained")])),
        )
        found, abstained = part.found, part.abstained
        plain = Overlap(np.concatenate([counts_of(row) for row in clean]), present)
        accuracy, told = part.pixel_accuracy, between(part.interval())
        level: Level = "plain"
        said = (
            f"{percent(accuracy)} ({told}) of labelled pixels have a right class that no change of the image within an "
            f"L2 radius of {options.radius:.2f} can alter, and {percent(abstained)} of pixels abstain; the model "
            f"without noise is right on {percent(plain.pixel_accuracy)} of the same images' pixels."
        )
        table = Table(
            "Certified intersection over union by class",
            (
                Column("class"),
                Column("certified IoU", "percent", heat=(0.0, 1.0)),
                Column("clean IoU", "percent", heat=(0.0, 1.0)),
            ),
            tuple(
                (names[label], _known(found.by_class[label]), _known(plain.by_class[label]))
                for label in sorted(plain.labels, key=lambda label: -np.nan_to_num(found.by_class[label]))
            ),
        )
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(Sentence(said, level),),
            tiles=(
                Tile(
                    "Certified pixel accuracy",
                    percent(accuracy),
                    told,
                    level,
                    f"Pixels whose class is right and certified within an L2 radius of {options.radius:.2f}",
                ),
            ),
            blocks=(table,),
            notes=(
                f"SegCertify (Fischer et al. 2021): noise of sigma {options.sigma:g}, tau {options.tau:g}, "
                f"{options.choosing} copies choose classes and {options.testing} fresh ones test them, "
                f"{options.control.capitalize()}'s correction over all pixels of an image: with probability "
                f"{1 - options.alpha:g} every certified pixel of an image holds. {found.images} images; a pixel that "
                "abstains counts as wrong. A model trained under such noise (--recipe gaussian) certifies more.",
            ),
            numbers={
                "certified_pixel_accuracy": accuracy,
                "certified_miou": found.value,
                "abstained": abstained,
                "certified_radius": options.radius,
            },
        )


def _numbers(row: Row, name: str) -> list[float]:
    held = row[name]
    if not isinstance(held, list):
        raise ConfigurationError(f"A row lacks {name}.")
    return [float(str(each)) for each in held]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
