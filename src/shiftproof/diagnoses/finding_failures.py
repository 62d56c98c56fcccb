"""`find_failures`: which images a model fails on, what they have in common, and whether the data is to blame."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from shiftproof.audits.audited_images import located
from shiftproof.audits.sections.measuring import check_labels, naming
from shiftproof.data import DataLike, ImageSet, as_images
from shiftproof.diagnoses.asking import answers_under
from shiftproof.measures.estimation import probabilities
from shiftproof.models import ModelLike
from shiftproof.runs import Executor, Json, OnProgress, choose_executor, write_atomically
from shiftproof.runs.files import expand
from shiftproof.shifts import Shift, as_shift
from shiftproof.slices import (
    AnswerCondition,
    Answered,
    DataQuality,
    ImageTable,
    WeakSlices,
    check_quality,
    copy_failures,
    failures,
    file_columns,
    find_weak_slices,
    image_statistics,
    image_table,
    read_columns,
    write_table,
)
from shiftproof.slices.image_results import CLEAN, Value
from shiftproof.subjects import Subject

FILE = "failures.json"
EXPORTED = 20
"""Images that are copied at most, under each shift: those most confidently wrong."""
BATCH = 64
CALL = "shiftproof.find_failures(...)"


@dataclass(frozen=True)
class Failures:
    """The images a model fails on: results per image, weak slices, and data quality problems.

    Args:
        folder: The run directory.
        model: Name of the model.
        data: Name of the data set.
        classes: Names of the classes.
        table: Columns by name, with one row per image and condition.
        slices: The weak slices.
        quality: Data quality problems.
        notes: Caveats on the results.
        files: Paths of the tables written.
        copies: Paths of the copies of failed images, if `export_failures` was given.
    """

    folder: Path
    model: str
    data: str
    classes: tuple[str, ...]
    table: ImageTable = field(repr=False)
    slices: WeakSlices
    quality: DataQuality
    notes: tuple[str, ...]
    files: tuple[Path, ...]
    copies: tuple[Path, ...] = ()

    @property
    def report(self) -> Path:
        """Path of the HTML report."""
        return self.folder / "report.html"

    def failures(self, *, most: int | None = None) -> ImageTable:
        """Return the rows with wrong predictions, the most confident first, up to a number per shift."""
        return failures(self.table, most=most)

    def to_frame(self) -> Any:
        """Return the table as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.table)

    def to_row(self) -> dict[str, Json]:
        """Return the results as JSON-compatible values, without the table."""
        return {
            "model": self.model,
            "data": self.data,
            "accuracies": dict(self.slices.accuracies),
            "slices": self.slices.to_rows(),
            "tested": self.slices.tested,
            "power": self.slices.power_note,
            "quality": self.quality.to_row(),
            "notes": list(self.notes),
        }


def find_failures(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    shifts: Sequence[str | Shift] = (),
    metadata: str | Path | None = None,
    export_failures: str | Path | None = None,
    images: int | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: int | None = None,
    out: str | Path = "shiftproof-failures",
    executor: str | Executor = "inline",
    on_progress: OnProgress | None = None,
    command: str | None = None,
) -> Failures:
    """Find the images a model fails on, weak slices, and bad data. Writes images.csv and report.html.

    A weak slice is a group by class, metadata, sub-folder, EXIF or image statistics with lower accuracy than the rest,
    corrected for multiple testing. Duplicates across classes, likely label errors, blank and unreadable images are
    reported, never removed. With the extra `parquet`, images.parquet is written too.

    Args:
        model: Anything `load_model` accepts.
        data: Anything `load_data` accepts.
        shifts: Shifts to test besides the clean images, such as fog@3; in Python also `Shift` objects.
        metadata: CSV or TSV file with a column `file` and further columns to form slices from.
        export_failures: Folder to copy the most confident mistakes to, up to 20 per shift.
        images: Number of inputs to use, drawn in proportion to the classes. Default: all.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Images per forward pass. Default: chosen by device and image size.
        out: Run directory; the same call resumes it.
        executor: inline, processes, processes:4, ray or ray:16. Does not affect the numbers.
        on_progress: Called as on_progress(done, total, result).
        command: The command line that the report shows.

    >>> found = find_failures("demo", "demo", images=200, out=folder)
    >>> len(found.table["file"]), found.slices.images
    (200, 200)
    """
    subject = Subject.of(model, data, images=images, seed=seed, device=device, batch_size=batch_size)
    where = choose_executor(executor, device=subject.device)
    chosen: tuple[Shift | None, ...] = (None, *(as_shift(shift) for shift in shifts))
    held = as_images(subject.data)
    known = as_images(located(subject))
    folder = expand(out)
    scores = answers_under(subject, chosen, seed=seed, out=folder, executor=where, on_progress=on_progress)
    labels = check_labels(held.labels, scores[0].shape[1]).numpy()
    name = naming(subject)
    classes = [name(number) for number in range(scores[0].shape[1])]
    answers = {_condition(shift): Answered.of(each, labels) for shift, each in zip(chosen, scores, strict=True)}
    columns: dict[str, Sequence[Value]] = {**_statistics(held), **file_columns(known.names, known.paths)}
    own: dict[str, Sequence[Value]] = {} if metadata is None else {**read_columns(metadata, known.names)}
    columns |= own
    table = image_table(known.names, answers, labels=labels, classes=classes, columns=columns)
    right = {
        CLEAN if shift is None else shift.label: found.predicted == labels
        for shift, found in zip(chosen, answers.values(), strict=True)
    }
    slices = find_weak_slices(right, own | columns, labels=labels, classes=classes)  # the first column names a slice
    quality = replace(
        check_quality(held, probabilities(scores[0])), unreadable=as_images(subject.labelled_data).bad_files
    )
    copies: list[Path] = []
    if export_failures is not None:
        copies = copy_failures(failures(table, most=EXPORTED), known.paths, expand(export_failures))
    found = Failures(
        folder,
        subject.name,
        held.name,
        tuple(classes),
        table,
        slices,
        quality,
        held.notes,
        write_table(table, folder),
        tuple(copies),
    )
    write_atomically(folder / FILE, json.dumps(found.to_row(), indent=1) + "\n")
    from shiftproof.diagnoses import failure_views
    from shiftproof.reports import html

    html.write(found.report, failure_views.masthead(found, command or CALL), failure_views.views(found, held))
    return found


def _condition(shift: Shift | None) -> AnswerCondition:
    return AnswerCondition() if shift is None else AnswerCondition(_name(shift), float(shift.severity))


def _name(shift: Shift) -> str:
    return shift.label.partition("@")[0] if "+" not in shift.label else shift.label


def _statistics(data: ImageSet) -> dict[str, list[Value]]:
    parts = [image_statistics(batch.inputs) for batch in data.batches(BATCH)]
    return {name: np.concatenate([part[name] for part in parts]).tolist() for name in parts[0]}
