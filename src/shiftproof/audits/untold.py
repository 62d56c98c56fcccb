"""What an audit does not tell: its conditions, and the questions it did not ask."""

from __future__ import annotations

from collections.abc import Mapping

from shiftproof.audits.sections import SECTIONS_BY_TASK, applicable
from shiftproof.audits.sections.base import Scope

_BY_SECTION: Mapping[str, str] = {
    "worst_case": "The worst case is the worst chain that a search of limited effort found; a worse one may exist.",
    "certified": "Certificates hold for the smoothed model, a majority vote under noise, within the stated radius; "
    "nothing is guaranteed for the model itself.",
    "adaptation": "Gains by test-time adaptation hold for one corruption at a time at the stated batch size; traffic "
    "that is ordered or mixed in other ways can gain less.",
    "stability": "Stability was measured along one stream of limited length; a method can still collapse later.",
    "label_free": "Errors of label-free estimates hold for shifts like those tested; for others they can be larger.",
    "failures": "Weak slices are searched for among classes, metadata and image statistics only; few inputs hide small "
    "slices.",
}
"""Section -> what its findings do not say."""


def limits(scope: Scope) -> tuple[str, ...]:
    """Return what the findings of an audit of this scope do not say, a sentence each."""
    settings, inputs = scope.settings, scope.inputs
    asked = settings.sections
    possible = applicable(inputs, clean=scope.clean, task=scope.task)
    titles = SECTIONS_BY_TASK[scope.task]
    left = [titles.load(name).title for name in possible if name not in asked]
    said = [
        f"All figures are for {inputs} like these {scope.images:,}. Intervals cover the chance of drawing so many; "
        "they do not cover other sources, cameras, places, times or people.",
        "Only the listed shifts were tried. Semantic shifts are not among them: new classes, other class proportions, "
        "other labelling rules.",
        "The corruptions are synthetic. Good figures here make robustness to real changes more likely; only real data "
        "shows it.",
        *(sentence for name, sentence in _BY_SECTION.items() if name in asked),
        "No gradient-based attack was tried. Fairness, privacy and speed were not evaluated.",
    ]
    if left:
        said.append(f"Not measured, because these sections were left out: {'; '.join(left)}.")
    return tuple(said)
