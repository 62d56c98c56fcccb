"""What computing in fewer digits changes: answers in bfloat16 (`--amp`) beside those in float32, on the same inputs.

A part of the section `clean`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shiftproof.audits.sections.base import FORWARD, READ, Measurement, Scope, Work
from shiftproof.audits.sections.measuring import predictions, rows
from shiftproof.audits.sections.wording import percent
from shiftproof.runs import Result, Row
from shiftproof.subjects import Subject

INPUTS = 200
"""Inputs that are asked of in both precisions, at most."""


@dataclass(frozen=True)
class BothPrecisions(Measurement):
    """The first inputs in the precision of the audit, and in float32."""

    kind = "clean.precision"
    inputs: int

    def measure(self, subject: Subject) -> Row:
        """Return how many answers are the same, and right in either."""
        places = range(min(self.inputs, len(subject.data)))
        labels, low, _ = predictions(subject, places, None, seed=0)
        _, high, _ = predictions(subject.in_own_precision(), places, None, seed=0)
        return {
            "images": len(labels),
            "same": int((low == high).sum()),
            "right": int((low == labels).sum()),
            "right_in_float32": int((high == labels).sum()),
        }

    def work(self) -> Work:
        """Count two passes."""
        return [(READ, 2 * self.inputs), (FORWARD, 2 * self.inputs)]


def plan_precision(scope: Scope) -> Iterator[BothPrecisions]:
    """Plan both precisions where fewer digits were asked for."""
    if scope.settings.amp:
        yield BothPrecisions(min(INPUTS, scope.images))


def precision_note(results: Sequence[Result], inputs: str) -> tuple[str, ...]:
    """Say what fewer digits change; nothing where there are as many as usual."""
    said = []
    for _, row in rows(results, BothPrecisions):
        count, same, low, high = (int(str(row[name])) for name in ("images", "same", "right", "right_in_float32"))
        said.append(
            f"Computed in bfloat16 (--amp): on the first {count:,} {inputs} {same:,} answers are those of float32, and "
            f"accuracy is {percent(low / count)}, in float32 {percent(high / count)}."
        )
    return tuple(said)
