"""Certificates of the same images under several conditions, and their means: mACR, by frequency and by severity."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shiftproof.certificates.certification import Certification
from shiftproof.certificates.conditions import CLEAN
from shiftproof.certificates.rules import rule_of
from shiftproof.errors import DataError
from shiftproof.measures import MeanRadius, mean_average_radius
from shiftproof.registry import unknown
from shiftproof.runs import Json, write_atomically
from shiftproof.version import __version__

FILE = "suite.json"
FORMAT = "shiftproof-certified-suite/1"


@dataclass(frozen=True)
class CertifiedSuite:
    """Certifications of the same images, clean and under shifts, with the same settings.

    `groups` are averaged together: shifts of low, mid and high frequency, of one severity, or of one alpha.

    Args:
        parts: One certification for each shift, the clean one first.
        groups: Labels of shifts that are averaged together, by the name of a group.
    """

    parts: tuple[Certification, ...]
    groups: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        check_equal_terms(self.parts)

    def __iter__(self) -> Iterator[Certification]:
        return iter(self.parts)

    def __getitem__(self, label: str) -> Certification:
        """Return the certification under a shift, by its label, or `clean`."""
        found = {each.terms.shift: each for each in self.parts}
        if label not in found:
            raise unknown("condition", label, found)
        return found[label]

    @property
    def clean(self) -> Certification | None:
        """The certification of clean images; None if not requested."""
        return next((each for each in self.parts if each.terms.shift == CLEAN), None)

    @property
    def macr(self) -> MeanRadius:
        """The mean over shifts of the average certified radius (mACR), with its interval over images."""
        return self.mean([each.terms.shift for each in self.parts if each.terms.shift != CLEAN] or [CLEAN])

    def mean(self, labels: Sequence[str]) -> MeanRadius:
        """Return the mean average certified radius over some shifts."""
        reach = rule_of(self.parts[0].terms.rule).reach
        return mean_average_radius({label: self[label].radii for label in labels}, reach)

    def group_means(self) -> dict[str, MeanRadius]:
        """Return the mACR of each group."""
        return {name: self.mean(labels) for name, labels in self.groups.items()}

    def to_row(self) -> dict[str, Json]:
        """Return the headline numbers."""
        macr, clean = self.macr, self.clean
        low, high = macr.interval or (None, None)
        return {
            "images": macr.images,
            "shifts": sum(each.terms.shift != CLEAN for each in self.parts),
            "acr": None if clean is None else clean.acr.value,
            "macr": macr.value,
            "macr_low": low,
            "macr_high": high,
            **{f"macr.{name}": each.value for name, each in self.group_means().items()},
        }

    def to_json(self) -> dict[str, Json]:
        """Return everything as JSON-compatible values, except certificates per image, which have their own files."""
        terms = {name: value for name, value in self.parts[0].terms.to_row().items() if name != "shift"}
        return {
            "format": FORMAT,
            "version": __version__,
            "model": self.parts[0].model,
            "data": self.parts[0].data,
            "terms": terms,
            "numbers": self.to_row(),
            "groups": {name: list(labels) for name, labels in self.groups.items()},
            "shifts": [{"shift": each.terms.shift, **each.to_row()} for each in self.parts],
        }

    def save(self, path: str | Path) -> Path:
        """Write the numbers to a JSON file, atomically."""
        write_atomically(Path(path), json.dumps(self.to_json(), indent=1, allow_nan=False, ensure_ascii=False) + "\n")
        return Path(path)


def check_equal_terms(parts: Sequence[Certification]) -> None:
    """Refuse to put numbers side by side that differ in more than the shift: more samples alone show larger radii."""

    def terms(part: Certification) -> dict[str, Json]:
        return {**{name: value for name, value in part.terms.to_row().items() if name != "shift"}, "images": part.keys}

    first = terms(parts[0])
    for part in parts[1:]:
        other = [name for name, value in terms(part).items() if value != first[name]]
        if other:
            raise DataError(
                "Certificates with different settings cannot share a table.",
                expected="the same images, noise, rule and number of samples in every column",
                got=f"other {', '.join(other)} under {part.terms.shift}",
                fix="certify all of them in one call, such as --shift clean,fog@3",
            )
