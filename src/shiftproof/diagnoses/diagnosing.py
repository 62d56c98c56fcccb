"""`diagnose`: which known shifts a folder of new images behaves like, what they cost, and what helps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shiftproof.audits.sections.measuring import naming
from shiftproof.data import DataLike, as_images
from shiftproof.diagnoses.diagnosis import Likeness, likeness, with_mix
from shiftproof.diagnoses.explaining import KnownShift
from shiftproof.diagnoses.knowledge import KINDS, KNOWN, LEAST_IMAGES, Knowledge, Measuring, Signed, chain
from shiftproof.errors import DataError
from shiftproof.estimators.checks import source_for
from shiftproof.measures.intervals import paired_intervals, proportion_intervals
from shiftproof.models import ModelLike
from shiftproof.runs import Executor, Json, OnProgress, choose_executor, write_atomically
from shiftproof.runs.files import expand
from shiftproof.slices import DataQuality, check_quality
from shiftproof.subjects import Subject

FILE = "diagnosis.json"
IMAGES = 1000
NEW_GROUPS = 20
CALL = "shiftproof.diagnose(...)"

Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Points:
    """Points of accuracy: a difference, and the interval of it."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} points ({100 * self.low:.1f} to {100 * self.high:.1f})"


@dataclass(frozen=True)
class Diagnosis:
    """The known shifts that new images behave like, and what they cost in accuracy.

    `explained` is the accuracy lost on the source under the shifts found; `lost` is the accuracy actually lost on the
    new images, if they have labels.

    Args:
        folder: The run directory.
        model: Name of the model.
        data: Name of the new images.
        source: Name of the labelled source.
        images: Number of new images.
        source_images: Number of images of the source.
        likeness: The known shifts that the new images behave like.
        source_accuracy: Accuracy on the unshifted source.
        explained: Accuracy lost on the source under the shifts found.
        lost: Accuracy lost on the new images relative to the source; None without labels.
        classes: Names of the classes.
        files: File names of the new images.
        quality: Data quality problems of the new images: duplicates, blank images, unreadable files.
        notes: Caveats on the results.
    """

    folder: Path
    model: str
    data: str
    source: str
    images: int
    source_images: int
    likeness: Likeness
    source_accuracy: float
    explained: Points
    lost: Points | None
    classes: tuple[str, ...]
    files: tuple[str, ...] = field(repr=False)
    quality: DataQuality
    notes: tuple[str, ...]

    @property
    def report(self) -> Path:
        """Path of the HTML report."""
        return self.folder / "report.html"

    @property
    def shift(self) -> str:
        """The shifts found, in the text form that other commands accept; empty if there are none."""
        return " + ".join(f"{part.kind}@{part.severity:.2g}" for part in self.likeness.shifts)

    def to_row(self) -> dict[str, Json]:
        """Return it as JSON-compatible values."""
        from shiftproof.diagnoses.diagnosis_views import sentences

        return {
            "model": self.model,
            "data": self.data,
            "source": self.source,
            "images": self.images,
            "source_images": self.source_images,
            "shift": self.shift,
            "told": [sentence.text for sentence in sentences(self)],
            **self.likeness.to_row(),
            "source_accuracy": self.source_accuracy,
            "explained": [self.explained.value, self.explained.low, self.explained.high],
            "lost": None if self.lost is None else [self.lost.value, self.lost.low, self.lost.high],
            "quality": self.quality.to_row(),
            "notes": list(self.notes),
        }


def diagnose(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    source: DataLike | None = None,
    kinds: Sequence[str] = KINDS,
    pairs: bool = True,
    images: int | None = IMAGES,
    seed: int = 0,
    device: str = "auto",
    batch_size: int | None = None,
    out: str | Path = "shiftproof-diagnosis",
    executor: str | Executor = "inline",
    on_progress: OnProgress | None = None,
    command: str | None = None,
) -> Diagnosis:
    """Identify the known shifts that new images behave like, their strength and their cost. Writes report.html.

    The labelled source is shifted in known ways; the shifts under which the model behaves most as it does on the new
    images are reported: one, or two in sequence, with intervals and runners-up. Similar behaviour does not prove the
    cause. A change of the class mix is reported separately, and so is a change that no known shift explains.

    Args:
        model: Anything `load_model` accepts.
        data: New images, with or without labels: anything `load_data` accepts.
        source: Labelled images like those the model was trained on. Default: demo-source, for a model or data of the
            demo alone.
        kinds: Corruptions to look for; `shiftproof list shifts` names them.
        pairs: Also look for two shifts, one after the other.
        images: Number of images of each set to use, drawn in proportion to the classes; 0 means all.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Images per forward pass. Default: chosen by device and image size.
        out: Run directory; the same call resumes it.
        executor: inline, processes, processes:4, ray or ray:16. Does not affect the numbers.
        on_progress: Called as on_progress(done, total, result).
        command: The command line that the report shows.

    >>> found = diagnose("demo", "demo", images=100, kinds=["fog", "contrast"], pairs=False, out=folder)
    >>> found.likeness.nothing
    True
    """
    known_to, new_to = (
        Subject.of(model, given, images=images or None, seed=seed, device=device, batch_size=batch_size)
        for given in (source_for(model, data, source), data)
    )
    _ = known_to.task, new_to.task  # labels that are maps are refused before any long work
    where = choose_executor(executor, device=known_to.device)
    folder = expand(out)
    at = Measuring(known_to, folder / "source", where, seed, on_progress)
    known = Knowledge.of(at, kinds=tuple(kinds), pairs=pairs and len(kinds) > 1)
    count = len(new_to.data)
    if count < LEAST_IMAGES:
        raise DataError("Too few new images.", expected=f"{LEAST_IMAGES} or more", got=f"{count}")
    apart = folder / "data" / new_to.fingerprints["data"]  # so that several sets can be diagnosed by one source
    (new,) = Measuring(new_to, apart, where, seed, on_progress).signed([None], count, -(-count // NEW_GROUPS))

    def applied(parts: Sequence[KnownShift]) -> Signed:
        return at.signed([chain(parts)], KNOWN, KNOWN)[0]

    found = likeness(known, new, count, applied, seed=seed)
    shifted = known.source.predicted
    if found.shifts:
        parts = [KnownShift(part.kind, part.severity) for part in found.shifts]
        shifted = at.signed([chain(parts)], len(known.labels), len(known.labels))[0].predicted
        found = with_mix(found, known.labels, shifted, new.predicted)
    right, after = known.source.predicted == known.labels, shifted == known.labels
    name = naming(known_to)
    made = Diagnosis(
        folder=folder,
        model=known_to.name,
        data=new_to.data.name,
        source=known_to.data.name,
        images=count,
        source_images=len(known.labels),
        likeness=found,
        source_accuracy=float(right.mean()),
        explained=_paired(right, after),
        lost=_lost(right, new_to, new.predicted),
        classes=tuple(name(number) for number in range(len(found.mix))),
        files=tuple(as_images(new_to.labelled_data).subset(new_to.places).names),
        quality=check_quality(as_images(new_to.data)),
        notes=tuple(new_to.data.notes),
    )
    from shiftproof.diagnoses import diagnosis_views
    from shiftproof.reports import html

    write_atomically(folder / FILE, json.dumps(made.to_row(), indent=1) + "\n")
    pictures = as_images(known_to.data), as_images(new_to.data)
    html.write(
        made.report, diagnosis_views.masthead(made, command or CALL), diagnosis_views.views(made, *pictures, seed=seed)
    )
    return made


def _paired(before: Bools, after: Bools) -> Points:
    """Return what the same images lose."""
    gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
    low, high = paired_intervals(lost, gained, len(before))
    return Points((lost - gained) / len(before), float(low), float(high))


def _lost(before: Bools, subject: Subject, predicted: NDArray[np.int64]) -> Points | None:
    """Return what new images lose against those of the source, where they have labels."""
    labels = subject.data.labels
    if labels is None or labels.ndim > 1:
        return None
    after = predicted == labels.numpy()
    ends = [proportion_intervals(int(each.sum()), len(each)) for each in (before, after)]
    value = float(before.mean() - after.mean())
    low = value - float(np.hypot(before.mean() - ends[0][0], ends[1][1] - after.mean()))
    high = value + float(np.hypot(ends[0][1] - before.mean(), after.mean() - ends[1][0]))
    return Points(value, low, high)
