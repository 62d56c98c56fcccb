"""What `shiftproof list` prints: every name of a kind, with what the code itself says of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table

from shiftproof.registry import Registry, resolve, unknown

Rows: TypeAlias = Iterator[tuple[str, ...]]


def list_names(kind: str) -> Table:
    """List shifts, adaptation methods, recipes, models, data and other names, including those of plugins.

    Args:
        kind: What to list: shifts, adapters, recipes, estimators, searchers, spaces, streams, sections, models or data.
    """
    if kind not in KINDS:
        raise unknown("list", kind, KINDS)
    columns, rows = KINDS[kind]
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows():
        table.add_row(*row)
    return table


def show(table: Table, _: Mapping[str, Any]) -> None:
    """Print a table."""
    Console().print(table)


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

    for name, recipe in RECIPES.load_all():
        yield name, recipe.does, str(recipe.passes), recipe.noise, recipe.paper, recipe.departures


def _sections() -> Rows:
    from shiftproof.audits.sections import SECTIONS

    for name, section in SECTIONS.load_all():
        yield name, section.title, section.question


def _estimators() -> Rows:
    from shiftproof.estimators import METHODS

    for name, method in METHODS.load_all():
        yield name, method.does, "shifted copies" if not (method.read or method.second_model) else "", method.paper


def _searchers() -> Rows:
    from shiftproof.searchers import catalogue

    for name, _ in catalogue.SEARCHERS.load_all():
        facts = catalogue.facts(name)
        yield name, facts.does, facts.paper


def _spaces() -> Rows:
    from shiftproof.searchers import make_space, spaces

    for name in spaces():
        space = make_space(name)
        yield name, str(len(space)), ", ".join(dict.fromkeys(operation for operation, _ in space.operations))


def _streams() -> Rows:
    from shiftproof.streams import STREAMS

    for name in STREAMS:
        yield name, _first_line(resolve(STREAMS, name, "stream"))


def _models() -> Rows:
    from shiftproof.models.loading import FORMS, LOADERS

    yield from FORMS.items()
    yield from _loaders(LOADERS)


def _data() -> Rows:
    from shiftproof.data.loading import FORMS, LOADERS

    yield from FORMS.items()
    yield from _loaders(LOADERS)


def _loaders(registry: Registry[Callable[[str], Any]]) -> Rows:
    for name, loader in registry.load_all():
        if name not in registry.own:
            yield f"{name}:...", _first_line(loader)


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0].replace("`", "")


KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[], Rows]]] = {
    "shifts": (("shift", "family", "category", "frequency", ""), _shifts),
    "adapters": (("method", "needs", "paper", "defaults", "departures"), _adapters),
    "recipes": (("recipe", "what it does", "passes", "noise", "paper", "departures"), _recipes),
    "estimators": (("method", "what it is", "calibrated on", "paper"), _estimators),
    "searchers": (("searcher", "what it does", "paper"), _searchers),
    "spaces": (("space", "steps", "operations"), _spaces),
    "streams": (("stream", "what it is"), _streams),
    "sections": (("section", "title", "question"), _sections),
    "models": (("model", "what it is"), _models),
    "data": (("data", "what it is"), _data),
}
"""Kind -> column titles and rows."""
