"""What `shiftproof list` prints: every name of a kind, with what the code itself says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

from shiftproof.registry import unknown

Rows: TypeAlias = Iterator[tuple[str, ...]]


def show(kind: str, console: Console | None = None) -> None:
    """Print the names of a kind: shifts, adapters, recipes, sections, models or data."""
    if kind not in KINDS:
        raise unknown("list", kind, KINDS)
    columns, rows = KINDS[kind]
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows():
        table.add_row(*row)
    (console or Console()).print(table)


def _shifts() -> Rows:
    from shiftproof import shifts
    from shiftproof.shifts import catalogue
    from shiftproof.shifts.text import registry as text_registry

    for family in shifts.families():
        for name in shifts.names(family):
            known = family in (*catalogue.TABLED, catalogue.PLUGINS) or family in text_registry.FAMILIES
            facts = shifts.facts(name) if known else {}
            steady = "" if facts.get("monotone", True) else "not monotone"
            yield name, family, facts.get("category", ""), facts.get("frequency", ""), steady


def _adapters() -> Rows:
    from shiftproof import adapters

    yield from adapters.facts()


def _recipes() -> Rows:
    from shiftproof.training import RECIPES

    for name, recipe in RECIPES.items():
        yield name, recipe.does, str(recipe.passes), recipe.noise, recipe.paper, recipe.departures


def _sections() -> Rows:
    from shiftproof.audits.sections import SECTIONS

    for name, section in SECTIONS.load_all():
        yield name, section.title, section.question


def _models() -> Rows:
    from shiftproof.models import FORMS

    yield from FORMS.items()


def _data() -> Rows:
    from shiftproof.data import FORMS

    yield from FORMS.items()


KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[], Rows]]] = {
    "shifts": (("shift", "family", "category", "frequency", ""), _shifts),
    "adapters": (("method", "needs", "paper", "defaults", "departures"), _adapters),
    "recipes": (("recipe", "what it does", "passes", "noise", "paper", "departures"), _recipes),
    "sections": (("section", "title", "question"), _sections),
    "models": (("model", "what it is"), _models),
    "data": (("data", "what it is"), _data),
}
"""Kind -> column titles and rows."""
