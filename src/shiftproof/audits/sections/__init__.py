"""The questions of an audit, one module each, in the order a report tells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shiftproof.registry import resolve

if TYPE_CHECKING:
    from shiftproof.audits.sections.base import Section

SECTIONS: Mapping[str, str] = {
    "clean": "shiftproof.audits.sections.clean:Clean",
    "corruptions": "shiftproof.audits.sections.corruptions:Corruptions",
    "worst_case": "shiftproof.audits.sections.worst_case:WorstCase",
    "spectrum": "shiftproof.audits.sections.spectrum:Spectrum",
    "certified": "shiftproof.audits.sections.certified:Certified",
    "adaptation": "shiftproof.audits.sections.adaptation:Adaptation",
    "endurance": "shiftproof.audits.sections.endurance:Endurance",
    "label_free": "shiftproof.audits.sections.label_free:LabelFree",
}
"""Name -> lazy target."""


def section(name: str) -> Section:
    """Return a section by name."""
    made: Section = resolve(SECTIONS, name, "section")()
    return made
