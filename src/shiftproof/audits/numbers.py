"""What the numbers of an audit are: each section names its own, says what they mean, and which way is better."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from shiftproof.audits.sections.base import Section


@dataclass(frozen=True)
class Number:
    """A number in `results.json`. A star in its name stands for a shift or a method: `accuracy.*`.

    A section's first number is its headline: the section's name stands for it in a requirement. `better` is None where
    neither way is: a method of adaptation gains more where more was lost, and corruptions cost more where clean
    accuracy rose. The accuracies themselves say which.
    """

    name: str
    says: str
    better: Literal["higher", "lower"] | None = "higher"
    unit: str = "fraction"
    given: str = ""
    """When the number is there, where it is not always."""


def find(name: str, sections: Iterable[Section]) -> tuple[Section, Number] | None:
    """Return a number by its name, or by that of the section it is the headline of, with its section."""
    sections = list(sections)
    for section in sections:
        if name == section.name and section.numbers:
            return section, section.numbers[0]
    for section in sections:
        for number in section.numbers:
            if number.name == name:
                return section, number
    for section in sections:
        for number in section.numbers:
            if fnmatchcase(name, number.name):
                return section, number
    return None
