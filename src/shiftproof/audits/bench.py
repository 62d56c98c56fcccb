"""The audit's workbench: loads the model and the images, once per process, and measures tasks with them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from shiftproof.audits.caveats import Caveat, try_model
from shiftproof.audits.sections.base import Measurement, Subject
from shiftproof.data import ImageSet, TextSet, load_data, matched
from shiftproof.errors import DataError
from shiftproof.models import BatchFitter, Model, fingerprint, load_model
from shiftproof.models.precision import reduced
from shiftproof.runs import Row

IN_MEMORY = 2**30
"""Images are decoded once and kept, as bytes, when all of them fit in this many bytes; otherwise they stream."""


@dataclass(frozen=True)
class Bench:
    """Everything needed to make the subject of an audit again, in this process or another.

    `model` and `data` are what the user gave: text that is loaded, or the objects themselves. What is loaded elsewhere
    must have the `expected` fingerprints, of `model` and `sample`: a path can lead to other files on another machine.
    """

    model: Any
    data: Any
    images: int | None
    seed: int
    device: str
    batch_size: int
    amp: bool = False
    data_options: Mapping[str, Any] = field(default_factory=dict)
    model_options: Mapping[str, Any] = field(default_factory=dict)
    expected: Mapping[str, str] = field(default_factory=dict)

    def __call__(self) -> Measurer:
        """Load model and data, and return what measures tasks with them."""
        subject = self.subject(load_data(self.data, **self.data_options))
        found = {"model": fingerprint(subject.model), "sample": subject.data.fingerprint}
        for name, value in found.items():
            if self.expected.get(name, value) != value:
                raise DataError(
                    f"A worker loads another {'model' if name == 'model' else 'set of inputs'} than the driver.",
                    expected=f"fingerprint {self.expected[name]}",
                    came=f"fingerprint {value} on {platform.node()}",
                    instead="give all machines the same files under the same path",
                )
        return Measurer(subject)

    def subject(self, data: ImageSet, model: Model | None = None) -> Subject:
        """Return what is audited: the model, loaded unless it is given, and the chosen images of the data."""
        model = model if model is not None else self.load()
        chosen = matched(data, model).take(self.images, seed=self.seed)
        if chosen.nbytes <= IN_MEMORY:
            chosen = chosen.in_memory()
        return Subject(model, chosen, self.device, self.batch_size)

    def load(self) -> Model:
        """Return the model on its device, in its precision."""
        model = load_model(self.model, device=self.device, **self.model_options)
        return reduced(model) if self.amp else model


@dataclass(frozen=True)
class Measurer:
    """A worker of `runs` over one subject, in batches that fit into memory."""

    subject: Subject

    @cached_property
    def fit(self) -> BatchFitter:
        """What keeps batches within memory."""
        return BatchFitter(self.subject.batch_size)

    def measure(self, task: Measurement) -> Row:
        """Let a task measure the subject."""
        return self.fit(lambda size: task.measure(replace(self.subject, batch_size=size)))


def check_subject(subject: Subject) -> tuple[Caveat, ...]:
    """Try the model before any long work: outputs must be finite logits that fit the labels; return what is odd."""
    labels = subject.data.labels
    if labels is None and isinstance(subject.data, TextSet):
        raise DataError(
            "The texts have no labels.",
            expected="a column of labels, or one sub-folder per class",
            instead="--label-column NAME names it; shiftproof estimate works without labels",
        )
    if labels is not None and int(labels.min()) == int(labels.max()):
        raise DataError(
            f"All {_kind(subject)} have the same label.",
            expected="at least two classes: an audit measures how well they are told apart",
            came=f"{len(labels)} {_kind(subject)} of one class",
            instead="give the folder that holds one sub-folder per class",
        )
    return try_model(subject)


def _kind(subject: Subject) -> str:
    return "texts" if isinstance(subject.data, TextSet) else "images"
