"""What `shiftproof list` prints: every name of a kind, with what the code itself says of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from rich.console import Console
from rich.table import Table

from shiftproof.registry import Registry, resolve, unknown

Rows: TypeAlias = Iterator[tuple[str, ...]]


class Listed(NamedTuple):
    """What can be listed: the titles of its columns, its rows, and the columns that a table has no room for."""

    columns: tuple[str, ...]
    rows: Callable[[], Rows]
    details: frozenset[str] = frozenset()


class Listing(NamedTuple):
    """A table, and what to say below it."""

    table: Table
    hint: str = ""


def list_names(kind: str, name: str | None = None) -> Listing:
    """List shifts, adaptation methods, recipes, models, data and other names, including those of plugins.

    Args:
        kind: What to list: shifts, adapters, recipes, estimators, searchers, spaces, streams, sections, models or data.
        name: One of these names, to print all that is known of it. Default: a table of all names.
    """
    if kind not in KINDS:
        raise unknown("list", kind, KINDS)
    if name is not None:
        return Listing(_of_one(kind, name))
    columns, rows, details = KINDS[kind]
    shown = [place for place, title in enumerate(columns) if title not in details]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place in shown:
        table.add_column(columns[place], no_wrap=place == 0)
    for row in rows():
        table.add_row(*(row[place] for place in shown))
    told = " and ".join(title for title in columns if title in details)
    return Listing(table, f"shiftproof list {kind} NAME also prints {told}." if told else "")


def _of_one(kind: str, name: str) -> Table:
    """Return all that is known of one name, a line each; of each thing of that name, where there are several."""
    columns, rows, _ = KINDS[kind]
    known = list(rows())
    found = [row for row in known if row[0] == name]
    if not found:
        raise unknown(columns[0], name, [row[0] for row in known])
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for row in found:
        for title, text in zip(columns, row, strict=True):
            if text:
                table.add_row(title, text)
    return table


def show(listing: Listing, _: Mapping[str, Any]) -> None:
    """Print a table, and what is said below it."""
    console = Console()
    console.print(listing.table)
    if listing.hint:
        console.print(f"\n{listing.hint}", highlight=False)


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


KINDS: Mapping[str, Listed] = {
    "shifts": Listed(("shift", "family", "category", "frequency", ""), _shifts),
    "adapters": Listed(
        ("method", "needs", "paper", "defaults", "departures"), _adapters, frozenset({"defaults", "departures"})
    ),
    "recipes": Listed(
        ("recipe", "what it does", "passes", "noise", "paper", "departures"), _recipes, frozenset({"departures"})
    ),
    "estimators": Listed(("method", "what it is", "calibrated on", "paper"), _estimators),
    "searchers": Listed(("searcher", "what it does", "paper"), _searchers),
    "spaces": Listed(("space", "steps", "operations"), _spaces),
    "streams": Listed(("stream", "what it is"), _streams),
    "sections": Listed(("section", "title", "question"), _sections),
    "models": Listed(("model", "what it is"), _models),
    "data": Listed(("data", "what it is"), _data),
}
"""What can be listed, by the word for it."""
