"""Which images an audit is about: their names and labels, noted in its store for results image by image."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from shiftproof.audits.sections.base import CLEAN, Condition
from shiftproof.audits.sections.measuring import naming
from shiftproof.audits.suite_cells import SuiteCell
from shiftproof.audits.suite_subjects import SuiteSubject
from shiftproof.data import Dataset, ImageSet
from shiftproof.models import class_names
from shiftproof.subjects import Subject

NOTE = "images"
"""A note in a store: the classes, and the files and labels of each group of images."""


@dataclass(frozen=True)
class AuditedImages:
    """The names of classes, and by group the files and labels of images: `clean`, or what a part of a suite has."""

    classes: tuple[str, ...]
    files: Mapping[str, tuple[str, ...]]
    labels: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, subject: Subject) -> AuditedImages:
        """Take the chosen images of a subject, and of a suite those of every group of its parts."""
        groups: dict[str, Subject] = {}
        if not isinstance(subject, SuiteSubject) or subject.clean:
            groups[CLEAN] = subject
        if isinstance(subject, SuiteSubject):
            for cell in subject.cells:
                if cell.group not in groups:
                    groups[cell.group] = subject.part(cell)
        count = max(len(subject.data.classes), len(class_names(subject.model) or ()))
        chosen = {group: located(there) for group, there in groups.items()}
        files = {group: names_of(data, groups[group].places) for group, data in chosen.items()}
        if isinstance(subject, SuiteSubject) and subject.shared in files:
            files[subject.shared] = subject.chosen
        return cls(
            tuple(map(naming(subject), range(count))),
            files,
            {group: () if data.labels is None else tuple(data.labels.tolist()) for group, data in chosen.items()},
        )

    def to_note(self) -> dict[str, str]:
        """Return it as a note for a store."""
        return {NOTE: json.dumps({"classes": self.classes, "files": self.files, "labels": self.labels})}

    @classmethod
    def from_note(cls, about: Mapping[str, str]) -> AuditedImages | None:
        """Return what a store noted; None of a run that noted none."""
        if NOTE not in about:
            return None
        held = json.loads(about[NOTE])
        files, labels = ({group: tuple(some) for group, some in held[name].items()} for name in ("files", "labels"))
        return cls(tuple(held["classes"]), files, labels)


def group_of(condition: Condition | None) -> str:
    """Return the group of images that a condition is measured on."""
    return condition.group if isinstance(condition, SuiteCell) else CLEAN


def located(subject: Subject) -> Dataset:
    """Return the chosen inputs of a subject with their files: the same in the same order, not held in memory."""
    chosen, held = subject.labelled_data.subset(subject.places), subject.data
    if len(chosen) == len(held):
        return chosen
    place = {key: number for number, key in enumerate(chosen.draw_keys.tolist())}
    return chosen.subset([place[key] for key in held.draw_keys.tolist()])  # without files that could not be decoded


def names_of(data: Dataset, places: Tensor) -> tuple[str, ...]:
    """Return what inputs are called: the paths of files in a folder, or their places in the data."""
    if isinstance(data, ImageSet) and data.of_files:
        return tuple(data.names)
    return tuple(str(place) for place in places.tolist()[: len(data)])
