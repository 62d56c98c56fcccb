"""What is guaranteed of a segmenter: pixels whose class holds under every small change of the image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

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
from shiftproof.certificates.certified_maps import ABSTAIN, MapCertificateOptions, SmoothedSegmenter
from shiftproof.data.images.mask_values import IGNORE
from shiftproof.errors import ConfigurationError
from shiftproof.measures.intervals import MIN_IMAGES
from shiftproof.measures.overlap import Overlap, count_overlap, percentiles
from shiftproof.reports.view import Column, Level, Sentence, Table, Tile, View
from shiftproof.runs import Result, Row
from shiftproof.subjects import Subject

IMAGES = {"quick": 40, "standard": 100, "full": 500}
LEAST = 6
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
        smoothed = SmoothedSegmenter(lambda images: subject.task.scores(subject.fast_model, images), self.options)
        counts, abstained, right = [], [], []
        for batch in subject.data.subset(range(self.start, self.stop)).batches(1, device=subject.device):
            labels = batch.labels
            if labels is None:
                raise TypeError("label maps are needed")
            found = smoothed.certify(batch.inputs[0], batch.keys[0], seed=self.seed, batch_size=subject.batch_size)
            classes = len(subject.data.classes)
            given = np.where(found.classes == ABSTAIN, classes, found.classes)
            maps = torch.from_numpy(given.astype(np.int64))[None]
            counts.append(count_overlap(labels.cpu(), maps, classes + 1, IGNORE))
            abstained.append(round(found.abstained, 6))
            right.append(counts[-1][0, 0].sum() / max(1, counts[-1][0, 2].sum()))
        found_counts = Overlap(np.concatenate(counts))
        return {
            "images": found_counts.images,
            "classes": found_counts.counts.shape[2],
            "overlap": found_counts.pack(),
            "abstained": abstained,
            "certified": [round(float(each), 6) for each in right],
            "before": predicted_maps(subject, range(self.start, self.stop), None, self.seed),
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
    question = "For how many pixels is the class guaranteed, whatever small change is made to the image?"
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
        found = Overlap(np.concatenate([counts_of(row) for _, row in measured]), counted)
        plain = Overlap(np.concatenate([counts_of(row) for row in clean]), present)
        abstained = float(np.mean([each for _, row in measured for each in _numbers(row, "abstained")]))
        accuracy = found.pixel_accuracy
        told = _interval(found)
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
            tiles=(Tile("Certified pixel accuracy", percent(accuracy), told, level, ""),),
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


def _interval(found: Overlap) -> str:
    """Write the interval of certified pixel accuracy over images."""
    if found.images < MIN_IMAGES:
        return between(None)
    sums = found.resampled.sum(2)
    return between(percentiles(sums[:, 0] / np.maximum(1.0, sums[:, 2]), found.images, found.pixel_accuracy))


def _numbers(row: Row, name: str) -> list[float]:
    held = row[name]
    if not isinstance(held, list):
        raise ConfigurationError(f"A row lacks {name}.")
    return [float(str(each)) for each in held]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
