"""A model on a downloaded suite: every corruption at every severity is measured on the suite's own files.

The images of the clean set, where it has those of the suite, or of the suite's gentlest part are drawn as those of any
other data, by content. All parts take the images of the same names, so that each image is its own control; a part that
has others draws its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from shiftproof.audits.sections.measuring import is_imagenet
from shiftproof.audits.suite_cells import CLEAN, PARTS, SuiteCell
from shiftproof.data import DataLike, DataSpec, ImageSet, as_images, load_data
from shiftproof.data.images.demo import DEMOS
from shiftproof.data.images.file_lists import named_file
from shiftproof.data.images.published_suites import StoredSuite, check_clear, find_suite, read_options
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.keyed import Keyed
from shiftproof.models.answers import PROBES, check_behaviour
from shiftproof.registry import unknown
from shiftproof.runs import Store
from shiftproof.runs.files import expand
from shiftproof.shifts import Shift, catalogue
from shiftproof.subjects import Subject

KEPT = 8
"""Parts that are kept loaded."""


def as_suite(data: DataLike) -> StoredSuite | None:
    """Return the suite that data stands for as a whole; None for all other data, and for a part of a suite."""
    spec = data if isinstance(data, DataSpec) else DataSpec(data)
    options = {name: value for name, value in spec.options.items() if value is not None}
    if not isinstance(spec.given, str | Path) or spec.given in DEMOS or {"split", "labels"} & options.keys():
        return None
    try:
        folder = expand(spec.given)
        suite = find_suite(folder) if folder.is_dir() else None
    except OSError:  # whoever loads it tells what is wrong with it
        return None
    if suite is None:
        return None
    check_clear(suite)
    if strange := [name for name in options if name not in suite.reading]:
        raise ConfigurationError(f"{strange[0]}= cannot be used with a suite.", fix=f"leave {strange[0]} out")
    return replace(suite, reading=read_options(**options))


def base_data(suite: StoredSuite, clean: DataLike | None) -> DataLike:
    """Return the clean set of a suite, read as the suite is where it is a text, or else the suite's gentlest part."""
    if clean is None:
        return DataSpec(str(suite.folder), split=suite.gentlest, **suite.reading)
    return DataSpec(clean, **suite.reading) if isinstance(clean, str | Path) else clean


def choose_parts(
    suite: StoredSuite, shifts: Sequence[str | Shift] | None, severities: Sequence[float] | None
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Return the parts that are asked for, and what sections that corrupt images themselves are then asked.

    `shifts` are corruptions of the suite, parts of it (`fog@3`), or families.
    """
    parts = suite.parts
    if shifts:
        chosen = [label for each in shifts for label in _labels(suite, each)]
        parts = {label: part for label, part in parts.items() if label in chosen}
    if severities:
        wanted = {float(severity) for severity in severities}
        if missing := sorted(wanted - {part.severity for part in parts.values()}):
            known = sorted({part.severity for part in parts.values()})
            raise unknown("severity of the suite", f"{missing[0]:g}", [f"{severity:g}" for severity in known])
        parts = {label: part for label, part in parts.items() if part.severity in wanted}
    families = (*catalogue.TABLED, catalogue.PLUGINS)
    ours = {name for family in families for name in catalogue.names(family)}
    named = [name for name in dict.fromkeys(part.name for part in parts.values()) if name in ours]
    return tuple(parts), tuple(named) if shifts and named else None


def _labels(suite: StoredSuite, asked: str | Shift) -> list[str]:
    text = asked.label if isinstance(asked, Shift) else asked
    names = set(catalogue.names(text)) if text in catalogue.TABLED else {text}
    found = [label for label, part in suite.parts.items() if part.name in names]
    one = suite.find(text)
    if not found and one is None:
        raise unknown("corruption of the suite", text, dict.fromkeys(part.name for part in suite.parts.values()))
    return found or ([one.label] if one is not None else [])


@dataclass(frozen=True, eq=False)
class SuiteSubject(Subject):
    """A model on parts of a suite, by `labels`.

    `data` is the clean set, or where there is none the suite's gentlest part, whether or not it is among these.
    """

    suite: StoredSuite = field(kw_only=True)
    labels: tuple[str, ...] = field(kw_only=True)
    clean: bool = field(kw_only=True)

    DRAWN = frozenset({"reference", "listed", "shared", "chosen", "cells", "probe_images", "_parts"})

    @classmethod
    def on(cls, subject: Subject, suite: StoredSuite, labels: Sequence[str], *, clean: bool) -> Self:
        """Return a subject, of which nothing is loaded, on what `base_data` says."""
        given = {name: getattr(subject, name) for name in FIELDS}
        return cls(**given, suite=suite, labels=tuple(labels), clean=clean)

    @cached_property
    def reference(self) -> Subject:
        """The model on the gentlest part, all of it."""
        return self._subject(self.suite.gentlest) if self.clean else self

    @cached_property
    def listed(self) -> tuple[str, ...]:
        """The names of all images of that part."""
        return self.suite.names(self.suite.gentlest)

    @cached_property
    def shared(self) -> str:
        """The group of the parts that have the images of the gentlest: the clean set may have them too."""
        clean, part = self.labelled_data, as_images(self.reference.labelled_data)
        if not self.clean or not isinstance(clean, ImageSet) or not _same(_names(clean), _names(part)):
            return PARTS
        place_of = {name: place for place, name in enumerate(_names(clean))}
        labels = None if clean.labels is None else clean.labels[[place_of[name] for name in _names(part)]]
        return CLEAN if _equal(labels, part.labels) else PARTS

    @property
    def sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Height and width of the clean images, and of the suite's, as the model gets them."""
        clean, part = as_images(self.sized_data).shape, as_images(self.reference.sized_data).shape
        return clean[1:], part[1:]

    @property
    def drawn(self) -> Subject:
        """The model on the set whose images are drawn: the clean set where it has the suite's, or the gentlest part."""
        return self if self.shared == CLEAN else self.reference

    @cached_property
    def chosen(self) -> tuple[str, ...]:
        """The names of the images that are drawn, in their order."""
        names = _names(as_images(self.drawn.labelled_data))
        return tuple(names[place] for place in self.drawn.places.tolist())

    def data_fingerprints(self) -> dict[str, str]:
        """Return what results on the clean set are kept under; each part's own have its fingerprint beside it."""
        _ = self.chosen, self._parts  # before there are copies, which share them
        return super().data_fingerprints() if self.clean else {"data": "suite", "sample": "suite"}

    def check_answers(self, store: Store) -> None:
        """Refuse to go on with a run whose model answers otherwise, to images that no change of a file changes."""
        check_behaviour(store, self.model, self.labelled_data.take() if self.clean else self.probe_images)

    @cached_property
    def probe_images(self) -> ImageSet:
        """A few images of noise, of the size of the suite's."""
        noise = Keyed(0, torch.arange(PROBES)).fork("probe").uniform(shape=as_images(self.sized_data).shape)
        return as_images(load_data(noise))

    @cached_property
    def cells(self) -> tuple[SuiteCell, ...]:
        """What every part is measured on."""
        return tuple(map(self.cell, self.labels))

    def cell(self, label: str) -> SuiteCell:
        """Return what a part is measured on."""
        part, (there, same) = self.suite.parts[label], self._opened(label)
        drawn = self.drawn.labelled_data.subset(self.drawn.places)
        same = same and _equal(there.data.labels, drawn.labels)
        group = self.shared if same else label
        whole = self.reference if same else there
        return SuiteCell(
            part.name, part.severity, len(there.data), there.data.fingerprint, group, imagenet=is_imagenet(whole)
        )

    def part(self, cell: SuiteCell) -> Subject:
        """Return the model on the images of a cell, which must be those that were planned."""
        there, _ = self._opened(cell.label)
        if there.data.fingerprint != cell.content:
            raise DataError(
                f"The images of {cell.label} have changed since the audit was planned, or are others on this machine.",
                expected=f"fingerprint {cell.content}",
                got=f"fingerprint {there.data.fingerprint}",
                fix="run the same command again; give all machines the same files",
            )
        return there.at_batch_size(self.batch_size)

    @cached_property
    def _parts(self) -> dict[str, tuple[Subject, bool]]:
        return {}

    def _opened(self, label: str) -> tuple[Subject, bool]:
        """Return the model on a part, and whether its images have the names of those drawn; the last few are kept."""
        if label not in self._parts:
            while len(self._parts) >= KEPT:
                del self._parts[next(iter(self._parts))]
            self._parts[label] = self._load_part(label)
        return self._parts[label]

    def _load_part(self, label: str) -> tuple[Subject, bool]:
        made = self._subject(label)
        same = label == self.suite.gentlest or _same(self.suite.names(label), self.listed)
        if same:
            size = as_images(self.reference.labelled_data).source.size
            made.__dict__["sized_data"] = self.suite.load(label, self.chosen, size=size)
            made.__dict__["places"] = torch.arange(len(made.labelled_data))
        made.__dict__["data"] = made.labelled_data.subset(made.places)  # streamed: each image is used once or twice
        return made, same

    def _subject(self, label: str) -> Subject:
        """Return the same loaded model on a part of the suite, all of which is loaded when it is wanted."""
        given = {name: getattr(self, name) for name in FIELDS if name != "expected"}
        spec = DataSpec(str(self.suite.folder), split=label, **self.suite.reading)
        made = Subject(**{**given, "given_data": spec})
        for name in ("loaded_model", "model", "fast_model", "model_fingerprint"):
            made.__dict__[name] = getattr(self, name)
        return made


FIELDS = tuple(each.name for each in fields(Subject))
"""What a subject is made of."""


def _names(data: ImageSet) -> list[str]:
    return [named_file(name) for name in data.names]


def _equal(labels: Tensor | None, others: Tensor | None) -> bool:
    return labels is not None and others is not None and torch.equal(labels, others)


def _same(names: Sequence[str], others: Sequence[str]) -> bool:
    """Whether names are the same, each of them once."""
    return len(names) == len(set(names)) == len(others) and set(names) == set(others)
