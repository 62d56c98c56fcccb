"""`certify` for label maps: all pixels of an image at once (SegCertify), clean or under shifts, a cell for each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import torch

from shiftproof.certificates.certified_maps import ABSTAIN, MapCertificateOptions, SmoothedSegmenter
from shiftproof.certificates.conditions import label_of
from shiftproof.certificates.driving import check_same, check_subject, measure_all
from shiftproof.data import as_images
from shiftproof.data.images.mask_values import IGNORE
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.measures.intervals import MIN_IMAGES, Interval
from shiftproof.measures.overlap import Overlap, count_overlap, percentiles, unpack
from shiftproof.runs import Executor, Json, OnProgress, Result, Row, Task, write_atomically
from shiftproof.runs.files import read_json
from shiftproof.shifts import Shift
from shiftproof.subjects import Measurer, Subject
from shiftproof.version import __version__

FILE, FORMAT = "certified-maps.json", "shiftproof-certified-maps/1"
CHOOSING, TESTING = 10, 100
"""Noisy copies that choose the classes of an image, and fresh ones that test them, where nothing else is said."""


@dataclass(frozen=True, eq=False)
class CertifiedPixels:
    """Images under one condition: counts with abstention as one class more, [N, 3, C + 1], and what share abstains."""

    found: Overlap
    abstained: float

    @property
    def pixel_accuracy(self) -> float:
        """The share of labelled pixels whose class is right and certified."""
        return self.found.pixel_accuracy

    @property
    def miou(self) -> float:
        """MIoU of certified maps, where a pixel that abstains is wrong."""
        return self.found.value

    def interval(self) -> Interval | None:
        """Return the interval of the pixel accuracy over images; None where they are too few."""
        if self.found.images < MIN_IMAGES:
            return None
        sums = self.found.resampled.sum(2)
        return percentiles(sums[:, 0] / np.maximum(1.0, sums[:, 2]), self.found.images, self.pixel_accuracy)


@dataclass(frozen=True, eq=False)
class MapCertification:
    """What is certified of a segmenter, by condition: `clean`, or the labels of shifts."""

    model: str
    data: str
    classes: tuple[str, ...]
    options: MapCertificateOptions
    parts: Mapping[str, CertifiedPixels]
    facts: Mapping[str, Json]

    @property
    def radius(self) -> float:
        """The L2 radius within which certified classes hold."""
        return self.options.radius

    @property
    def first(self) -> CertifiedPixels:
        """The first condition that was asked for."""
        return next(iter(self.parts.values()))

    def to_rows(self) -> list[dict[str, Json]]:
        """Return a row of numbers for every condition."""
        return [
            {
                "shift": label,
                "images": part.found.images,
                "certified_pixel_accuracy": part.pixel_accuracy,
                "interval": None if (reach := part.interval()) is None else [reach.low, reach.high],
                "certified_miou": part.miou,
                "abstained": part.abstained,
                "certified_iou": {self.classes[each]: float(part.found.by_class[each]) for each in part.found.labels},
            }
            for label, part in self.parts.items()
        ]

    def to_json(self) -> dict[str, Json]:
        """Return everything as JSON-compatible values."""
        about = {"format": FORMAT, "version": __version__, "model": self.model, "data": self.data}
        return {**about, "terms": dict(self.facts), "radius": self.radius, "rows": cast("Json", self.to_rows())}


@dataclass(frozen=True)
class CertifiedImage(Task[Subject]):
    """An image under a shift or none, all of whose pixels are certified or abstain."""

    kind = "certify.maps"
    place: int
    shift: Shift | None
    options: MapCertificateOptions
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Return the counts of the certified map."""
        return certified_counts(subject, [self.place], self.options, self.seed, self.shift)


def certified_counts(
    subject: Subject, places: Sequence[int], options: MapCertificateOptions, seed: int, shift: Shift | None = None
) -> dict[str, Json]:
    """Return the counts of certified maps at some places, abstention as one class more, and what share abstains."""
    smoothed = SmoothedSegmenter(lambda images: subject.task.scores(subject.fast_model, images), options)
    counts, abstained, classes = [], [], len(subject.data.classes)
    for batch in subject.data.subset(places).batches(1, device=subject.device):
        images, labels = batch.inputs, batch.labels
        if labels is None:
            raise DataError("The images have no label maps.", expected="label maps to compare certified ones with")
        if shift is not None:
            labels = subject.task.moved(shift, labels, batch.keys, seed)
            images = shift(images, batch.keys, seed=seed)
        found = smoothed.certify(images[0], batch.keys[0], seed=seed, batch_size=subject.batch_size)
        given = np.where(found.classes == ABSTAIN, classes, found.classes)
        counts.append(count_overlap(labels.cpu(), torch.from_numpy(given.astype(np.int64))[None], classes + 1, IGNORE))
        abstained.append(round(found.abstained, 6))
    made = Overlap(np.concatenate(counts))
    return {"images": made.images, "classes": classes + 1, "overlap": made.pack(), "abstained": cast("Json", abstained)}


def certify_maps(
    subject: Subject,
    options: MapCertificateOptions,
    shifts: Sequence[Shift | None] = (None,),
    *,
    joint: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    executor: Executor,
    on_progress: OnProgress | None = None,
) -> MapCertification:
    """Certify a segmenter on label maps, clean or under shifts; with `joint` alpha is that of all images together."""
    data = as_images(subject.data)
    used = options if not joint else options.changed({"alpha": options.alpha / (len(data) * len(shifts))})
    used.check_size(data.shape[1] * data.shape[2])
    check_subject(subject)
    facts: dict[str, Json] = {**used.to_dict(), "seed": seed, "images": len(data), **subject.fingerprints}
    facts["shifts"] = [label_of(shift) for shift in shifts]
    path = None if out is None else Path(out) / FILE
    if path is not None and path.exists():
        check_same(path, cast("Mapping[str, Json]", read_json(path)["terms"]), facts)
    tasks = tuple(CertifiedImage(place, shift, used, seed) for shift in shifts for place in range(len(data)))
    setup = partial(Measurer, subject)
    results = measure_all(subject, tasks, setup, out=out, executor=executor, on_progress=on_progress)
    parts = {label_of(shift): _part(results, shift, subject) for shift in shifts}
    found = MapCertification(subject.name, data.name, tuple(data.classes), used, parts, facts)
    if path is not None:
        write_atomically(path, json.dumps(found.to_json(), indent=1) + "\n")
    return found


def map_options(
    sigma: float, radius: float | None, n0: int | None, n: int | None, alpha: float
) -> MapCertificateOptions:
    """Return how label maps are certified, by the options of `certify`: a radius sets tau."""
    from scipy.stats import norm

    made = MapCertificateOptions(sigma=sigma, choosing=n0 or CHOOSING, testing=n or TESTING, alpha=alpha)
    return made if radius is None else made.changed({"tau": float(norm.cdf(radius / sigma))})


def check_applies(given: Mapping[str, object], defaults: Mapping[str, object]) -> None:
    """Refuse options of `certify` that say nothing of label maps."""
    strange = [name for name, value in given.items() if value != defaults[name]]
    if strange:
        raise ConfigurationError(
            f"Not available for segmentation: {', '.join(strange)}.",
            expected="sigma, n0, n, alpha, joint, shift, severities, suite, and a radius with the rule radius",
            got=", ".join(f"{name}={given[name]}" for name in strange),
            fix="leave them out: the pixels of an image are tested together, by as many copies each",
        )


def _part(results: Sequence[Result], shift: Shift | None, subject: Subject) -> CertifiedPixels:
    rows = [
        result.row
        for result in results
        if isinstance(result.task, CertifiedImage) and result.row is not None and result.task.shift == shift
    ]
    classes = len(subject.data.classes)
    present = np.zeros(classes + 1, bool)
    if subject.data.known_labels is not None:
        present[subject.data.known_labels.numpy()] = True
    counts = np.concatenate([unpack(str(row["overlap"]), classes + 1) for row in rows])
    abstained = np.mean([cast("list[float]", row["abstained"]) for row in rows])
    return CertifiedPixels(Overlap(counts, present), float(abstained))
