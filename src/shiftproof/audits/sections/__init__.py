"""The questions of an audit, one module each, in the order a report tells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shiftproof.errors import ConfigurationError
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


def applicable(inputs: str, wanted: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the sections for a kind of inputs, `images` or `texts`: all there are, or those wanted, in their order."""
    fit = [name for name in SECTIONS if inputs in section(name).takes]
    for name in wanted or ():
        if name not in fit:
            raise ConfigurationError(
                f"The section {name!r} does not apply to {inputs}.", expected=f"sections among {', '.join(fit)}"
            )
    return tuple(name for name in fit if not wanted or name in wanted)


def section(name: str) -> Section:
    """Return a section by name."""
    made: Section = resolve(SECTIONS, name, "section")()
    return made
