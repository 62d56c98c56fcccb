"""What a section has to say, free of any markup: sentences, tiles, figures, tables and pictures.

Sections build views; the report lays them out. A figure is a Plotly specification as plain dictionaries, and always
comes with the table it was drawn from, so that the report reads without JavaScript.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Level: TypeAlias = Literal["good", "watch", "bad", "plain"]


@dataclass(frozen=True)
class Sentence:
    """One sentence of the verdict: plain words with their number; it links to the section it comes from."""

    text: str
    level: Level = "plain"


@dataclass(frozen=True)
class Tile:
    """A headline number: its value, its interval, a level, and the rule that gave the level."""

    title: str
    value: str
    interval: str = ""
    level: Level = "plain"
    rule: str = ""


@dataclass(frozen=True)
class Column:
    """A table column. `heat` shades cells between its two values (percent columns: 0 and 1), low to high."""

    title: str
    kind: Literal["text", "number", "percent"] = "text"
    heat: tuple[float, float] | None = None


@dataclass(frozen=True)
class Picture:
    """A small PNG (base64) with its caption; `right` marks a right or wrong prediction, None neither."""

    png: str
    caption: str
    right: bool | None = None


@dataclass(frozen=True)
class Table:
    """Rows under columns; `percent` cells hold fractions, and None is an empty cell.

    `pictures` are examples of single cells, by row and column; they show while a cell is pointed at or has the focus.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]
    caption: str = ""
    pictures: Mapping[tuple[int, int], Picture] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """A chart whose title states its finding. `plot` is a Plotly figure: {"data": [...], "layout": {...}}."""

    title: str
    plot: Mapping[str, Any]
    table: Table
    caption: str = ""


@dataclass(frozen=True)
class Gallery:
    """Rows of pictures under a title; `large` ones are four in a row, to be looked into."""

    title: str
    pictures: tuple[Picture, ...]
    caption: str = ""
    large: bool = False


@dataclass(frozen=True)
class Action:
    """Something to do next: what, why (with its numbers), and the command or the lines of code that do it.

    `gain` is what it should win, in points of accuracy: measured, or at most that where it is a `bound`; `on` says on
    what. None where it wins something else.
    """

    title: str
    why: str
    code: str
    gain: float | None = None
    on: str = ""
    bound: bool = False


Block: TypeAlias = Figure | Table | Gallery


@dataclass(frozen=True)
class View:
    """Everything a section shows: verdict sentences first, then tiles, then the evidence, and its numbers."""

    section: str
    title: str
    question: str = ""
    verdict: tuple[Sentence, ...] = ()
    tiles: tuple[Tile, ...] = ()
    blocks: tuple[Block, ...] = ()
    notes: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    """What a pipeline can gate on, by name; fractions, unless the name says otherwise."""
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True)
class Masthead:
    """What was audited and how, as label -> value, and how to repeat it.

    `times` are seconds by section: those that were expected, where any were, and those it took. `limits` say what the
    findings do not tell, and `kind` says what the page is.
    """

    model: str
    data: str
    facts: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    method: Mapping[str, str] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    times: Mapping[str, tuple[float | None, float]] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    kind: str = "Robustness audit"
