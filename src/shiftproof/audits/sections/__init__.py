"""The questions of an audit, one module each, in the order a report tells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shiftproof.errors import ConfigurationError
from shiftproof.registry import Registry

if TYPE_CHECKING:
    from shiftproof.audits.sections.base import Measurement, Scope, Section

_OWN = {
    "clean": "shiftproof.audits.sections.clean:Clean",
    "corruptions": "shiftproof.audits.sections.corruptions:Corruptions",
    "failures": "shiftproof.audits.sections.failures:WeakGroups",
    "worst_case": "shiftproof.audits.sections.worst_case:WorstCase",
    "spectrum": "shiftproof.audits.sections.spectrum:FrequencySensitivity",
    "certified": "shiftproof.audits.sections.certified:Certified",
    "adaptation": "shiftproof.audits.sections.adaptation:Adaptation",
    "stability": "shiftproof.audits.sections.stability:Stability",
    "confidence": "shiftproof.audits.sections.confidence_under_shift:Confidence",
    "label_free": "shiftproof.audits.sections.label_free:LabelFree",
}


_OF_MAPS = {
    "clean": "shiftproof.audits.sections.segmentation.map_clean:MapClean",
    "corruptions": "shiftproof.audits.sections.segmentation.map_corruptions:MapCorruptions",
    "worst_case": "shiftproof.audits.sections.segmentation.map_worst_case:MapWorstCase",
    "spectrum": "shiftproof.audits.sections.segmentation.map_spectrum:MapSpectrum",
    "certified": "shiftproof.audits.sections.segmentation.map_certified:MapCertified",
    "adaptation": "shiftproof.audits.sections.segmentation.map_adaptation:MapAdaptation",
    "stability": "shiftproof.audits.sections.segmentation.map_stability:MapStability",
    "confidence": "shiftproof.audits.sections.segmentation.map_confidence:MapConfidence",
    "label_free": "shiftproof.audits.sections.segmentation.map_label_free:MapLabelFree",
}


def _is_section(found: object) -> bool:
    from shiftproof.audits.sections.base import Section

    return isinstance(found, type) and issubclass(found, Section)


SECTIONS: Registry[type[Section]] = Registry(
    "section", "shiftproof.sections", _OWN, _is_section, "a class derived from audits.sections.base.Section"
)
"""Name -> class, in the order of the report; others add theirs after ours."""

SECTIONS_BY_TASK: Mapping[str, Registry[type[Section]]] = {
    "classification": SECTIONS,
    "segmentation": Registry(
        "section of segmentation",
        "shiftproof.segmentation_sections",
        _OF_MAPS,
        _is_section,
        "a class derived from audits.sections.base.Section",
    ),
}
"""What labels ask of a model -> the sections that ask their questions about it, by name."""


def applicable(
    inputs: str, wanted: Sequence[str] | None = None, *, clean: bool = True, task: str = "classification"
) -> tuple[str, ...]:
    """Return the sections for a kind of inputs, `images` or `texts`: all there are, or those wanted, in their order.

    `clean` says whether there are clean inputs, which a suite alone does not have; `task` what labels ask of the model.
    """
    sections = SECTIONS_BY_TASK[task]
    for name in wanted or ():
        if name not in sections and name in SECTIONS:
            raise ConfigurationError(
                f"Not available for {task}: the section {name!r}.", expected=f"sections among {', '.join(sections)}"
            )
        sections.load(name)  # what is wrong with one that is asked for is an error, not a warning
    fit = [name for name, made in sections.load_all() if inputs in made.takes and (clean or not made.needs_clean)]
    for name in wanted or ():
        if name not in fit:
            expected = f"sections among {', '.join(fit)}"
            if inputs in sections.load(name).takes:
                fix = "--clean FOLDER (clean=) names the clean set of the suite"
                raise ConfigurationError(f"The section {name!r} needs clean {inputs}.", expected=expected, fix=fix)
            raise ConfigurationError(f"The section {name!r} does not apply to {inputs}.", expected=expected)
    return tuple(name for name in fit if not wanted or name in wanted)


def planned(name: str, scope: Scope) -> tuple[Measurement, ...]:
    """Return the tasks of a section."""
    return tuple(section(name, task=scope.task).plan(scope))


def section(name: str, inputs: str = "images", looks: int = 1, task: str = "classification") -> Section:
    """Return a section by name, which speaks of inputs of a kind, measured until one of so many looks was enough."""
    from shiftproof.data.base import NOUNS

    made = SECTIONS_BY_TASK[task].load(name)()
    made.noun, made.looks = NOUNS[inputs], looks
    return made
