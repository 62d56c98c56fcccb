"""The audit's workbench: loads the model and the images, once per process, and measures cells with their sections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shiftproof.audits.sections import section
from shiftproof.audits.sections.base import Subject
from shiftproof.audits.sections.measuring import check_labels
from shiftproof.data import ImageSet, TextSet, load_data
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.models import load_model, logits
from shiftproof.runs import Cell, Row

IN_MEMORY = 2**30
"""Images are decoded once and kept, as bytes, when all of them fit in this many bytes; otherwise they stream."""


@dataclass(frozen=True)
class Bench:
    """Everything needed to make the subject of an audit again, in this process or another.

    `model` and `data` are what the user gave: text that is loaded, or the objects themselves.
    """

    model: Any
    data: Any
    images: int | None
    seed: int
    device: str
    batch_size: int
    data_options: Mapping[str, Any] = field(default_factory=dict)
    model_options: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None

    def __call__(self) -> Measurer:
        """Load model and data, and return what measures cells with them."""
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)
        return Measurer(self.subject(load_data(self.data, **self.data_options)))

    def subject(self, data: ImageSet) -> Subject:
        """Return what is audited: the model, and the chosen images of the data."""
        chosen = data if self.images is None else data.take(self.images, seed=self.seed)
        if chosen.nbytes <= IN_MEMORY:
            chosen = chosen.in_memory()
        model = load_model(self.model, device=self.device, **self.model_options)
        return Subject(model, chosen, self.device, self.batch_size)


@dataclass(frozen=True)
class Measurer:
    """A worker of `runs` over one subject."""

    subject: Subject

    def measure(self, cell: Cell) -> Row:
        """Let the section that planned the cell measure it."""
        return section(cell.task.partition(".")[0]).measure(cell, self.subject)


def check_subject(subject: Subject) -> None:
    """Try the model on two inputs before any long work: outputs must be finite logits that fit the labels."""
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
    batch = next(iter(subject.data.subset(range(min(2, len(subject.data)))).batches(2, device=subject.device)))
    check_labels(labels, logits(subject.model, batch.images).shape[1])


def _kind(subject: Subject) -> str:
    return "texts" if isinstance(subject.data, TextSet) else "images"


def choose_device(device: str) -> str:
    """Return the device to use; `auto` is CUDA where there is one."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(
            f"The device {device!r} cannot be used.",
            expected="auto, cpu, cuda or cuda:1, as far as this machine has them",
            reason=str(error).splitlines()[0],
        ) from error
    return device
