"""A method of adaptation on images, under a shift or as they are, labelled or not: every answer, counts and time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor

from shiftproof.adapters import Adapter, Counts, Method, make_adapter
from shiftproof.data import DataLike, Dataset, as_images
from shiftproof.errors import ModelError
from shiftproof.estimators import Estimator
from shiftproof.estimators.checks import check_source
from shiftproof.models.outputs import are_probabilities, check_logits
from shiftproof.runs import Json, Row, Task
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

AS_THEY_ARE = "as they are"
"""What tables call images under no shift."""
VIEWS = 5
"""Views of an input that an estimate without labels looks at."""
ESTIMATED_IMAGES = 1000
"""Images that accuracy is estimated on, at most."""


class Serving:
    """A worker over a subject, with labelled images that the model's accuracy is estimated by, if any."""

    def __init__(self, subject: Subject, source: DataLike | None) -> None:
        _ = subject.fingerprints  # loads it, and sees that it is what the driver has
        self.subject = subject
        self.labelled = None if source is None else source_of(subject, source)

    def measure(self, task: AdaptedImages) -> Row:
        """Let a task measure; its batches are its own."""
        return task.measure(self)


def source_of(subject: Subject, source: DataLike) -> Dataset:
    """Return labelled images for a subject's model, with labels that are its outputs."""
    found = Subject.of(subject.loaded_model, source, device=subject.device).data
    check_source(found)
    return found


@dataclass(frozen=True)
class AdaptedImages(Task[Serving]):
    """The images of a subject through a fresh adapter; `estimated_by` is the fingerprint of the labelled images."""

    kind = "methods"
    method: Method
    images: int
    seed: int
    batch: int
    preset: str
    shift: Shift | None = None
    options: Mapping[str, Json] = field(default_factory=dict)
    """What is given to a method that has such an option."""
    estimated_by: str = ""

    @property
    def label(self) -> str:
        """What tables call the images."""
        return AS_THEY_ARE if self.shift is None else self.shift.label

    def measure(self, subject: Serving) -> Row:
        """Let the adapter answer all images once, in order, and estimate how right it is afterwards."""
        try:
            adapter = make_adapter(subject.subject.model, self.method, preset=self.preset, given=self.options)
        except ModelError as error:
            return {"applies": False, "reason": error.headline}
        row = self._answered(adapter, subject.subject)
        if subject.labelled is not None:
            row["estimate"] = self._estimated(adapter, subject.subject, subject.labelled)
        return row

    def _answered(self, adapter: Adapter, subject: Subject) -> dict[str, Json]:
        predicted: list[int] = []
        confidences: list[float | None] = []
        spent: list[float] = []
        hits: list[int] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what an adapter has to say of itself is said in the notes
            for batch in subject.data.subset(range(self.images)).batches(self.batch, device=subject.device):
                images = batch.inputs if self.shift is None else self.shift(batch.inputs, batch.keys, seed=self.seed)
                start = time.perf_counter()
                logits = check_logits(adapter(images), len(images))
                confidence, classes = (each.cpu() for each in logits.softmax(1).max(1))
                spent.append(time.perf_counter() - start)
                predicted += classes.tolist()
                confidences += [None] * len(classes) if are_probabilities(logits) else _rounded(confidence)
                hits += [] if batch.labels is None else (classes == batch.labels.cpu()).int().tolist()
        return {
            "images": len(predicted),
            "right": None if subject.data.labels is None else sum(hits),
            "hits": hits,
            "predicted": predicted,
            "confidence": confidences,
            "unread": [bad.file for bad in subject.data.bad_files],
            "milliseconds": 1e3 * median(spent[1:] or spent),  # the first batch warms up
            **dict(zip(Counts._fields, (len(spent), adapter.updates, adapter.resets), strict=True)),
        }

    def _estimated(self, adapter: Adapter, subject: Subject, labelled: Dataset) -> dict[str, Json]:
        """Estimate the accuracy of the model as it now serves, without labels, from its answers to shifted copies."""
        model = AsServed(adapter, subject.device)
        estimator = Estimator.fit(model, labelled, n=VIEWS, seed=self.seed, batch_size=self.batch)
        data = as_images(subject.data).subset(range(min(self.images, ESTIMATED_IMAGES)))
        batches = data.batches(self.batch, device=subject.device)
        shifted = [
            (batch.inputs if self.shift is None else self.shift(batch.inputs, batch.keys, seed=self.seed), batch.keys)
            for batch in batches
        ]
        inputs, keys = (torch.cat(parts) for parts in zip(*shifted, strict=True))
        return estimator(inputs, keys=keys).to_row()


class AsServed:
    """A model that adapted, as a function: it answers as it would next, and learns no more."""

    def __init__(self, adapter: Adapter, device: str) -> None:
        self.adapter, self.device = adapter, device

    def __call__(self, images: Tensor) -> Tensor:
        """Return logits."""
        return self.adapter.predict(images)


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]
