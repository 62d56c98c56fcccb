"""What shifts are called in tables, numbers and sentences, and where they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shiftproof import shifts
from shiftproof.audits.suite_cells import SuiteCell
from shiftproof.shifts import Shift, catalogue
from shiftproof.shifts.forms import plain
from shiftproof.shifts.text import registry as text_registry

AS_GIVEN = 0.0
"""The column of shifts that have no severity to choose."""


def cell_of(shift: Shift | SuiteCell) -> tuple[str, float]:
    """Return the row and the column of a shift in tables: name and severity, or its label, as it was given."""
    if isinstance(shift, SuiteCell):
        return shift.name, shift.severity
    graded = shift.label == f"{shift.name}@{plain(shift.severity)}"
    return (shift.name, shift.severity) if graded else (shift.label, AS_GIVEN)


def named(shift: Shift | SuiteCell) -> str:
    """Return what a shift is called in tables and numbers."""
    return cell_of(shift)[0]


def facts(name: str) -> Mapping[str, Any]:
    """Return the category and frequency of a shift by what it is called in tables."""
    graded = (*catalogue.TABLED, catalogue.PLUGINS, *text_registry.FAMILIES)
    known = any(name in shifts.names(family) for family in graded)
    return shifts.facts(name) if known else {"category": "other", "frequency": "mid", "monotone": True}


def one_per_category(some: Sequence[Shift]) -> list[Shift]:
    """Return the first shift of each category."""
    return list({facts(named(shift))["category"]: shift for shift in reversed(some)}.values())[::-1]


def at_severity(level: float) -> str:
    """Say at which severity, where one was chosen."""
    return "" if level == AS_GIVEN else f", severity {level:g}"
