"""From values to what is read: text without hidden characters, numbers with as many digits as they deserve."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from markupsafe import Markup, escape

from shiftproof.reports import heat
from shiftproof.reports.view import Column, Table

Value: TypeAlias = str | float | int | None

MINUS = "\N{MINUS SIGN}"

# Control characters but tab and newline; marks, embeddings, overrides and isolates of direction; the byte order mark.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
# Halves of characters, which file names that are not UTF-8 become, and which no file in UTF-8 can hold.
_HALVES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class TableCell:
    """A table cell: its text, the number it sorts by (None: by its text), and its shading as CSS."""

    text: str
    value: float | None = None
    style: str = ""


def clean(text: str) -> str:
    """Return a text without control characters and without what reorders the text around it."""
    return _HALVES.sub("\N{REPLACEMENT CHARACTER}", _HIDDEN.sub("", text))


def coded(text: str) -> Markup:
    """Return a text as markup in which what stands between backticks is code.

    >>> print(coded("run `shiftproof list` <here>"))
    run <code>shiftproof list</code> &lt;here&gt;
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(clean(text)))))


def unit_apart(value: str) -> Markup:
    """Return a number with its unit as markup in which the unit is apart, to be set smaller.

    >>> print(unit_apart("+22.4 points"))
    +22.4 <span class="unit">points</span>
    """
    figure, space, unit = clean(value).partition(" ")
    if not space or not re.match(r"[-+\N{MINUS SIGN}]?\d", figure):
        return escape(clean(value))
    return Markup('{} <span class="unit">{}</span>').format(figure, unit)


def rows(table: Table) -> list[list[TableCell]]:
    """Return a table's cells, row by row."""
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    cells = [_cells(column, values) for column, values in zip(table.columns, columns, strict=True)]
    return [list(row) for row in zip(*cells, strict=True)]


def scale(table: Table) -> tuple[str, str] | None:
    """Return the two ends of a table's shading, as text; None where there is none, or more than one."""
    shaded = {(column.kind, column.heat) for column in table.columns if column.heat is not None}
    if len(shaded) != 1:
        return None
    kind, ends = shaded.pop()
    assert ends is not None
    places = 0 if kind == "percent" else decimals(ends)
    low, high = (number(end, kind, places) for end in ends)
    return low, high


def number(value: float, kind: str = "number", places: int = 1) -> str:
    """Return a number as it is read: 0.9153 as a percent is 91.5%, 9000.4 to no places is 9,000."""
    if math.isnan(value):
        return "n/a"
    if math.isinf(value):
        return "\N{INFINITY}" if value > 0 else f"{MINUS}\N{INFINITY}"
    text = f"{100 * value:z,.{places}f}%" if kind == "percent" else f"{value:z,.{places}f}"
    return text.replace("-", MINUS)


def decimals(values: Sequence[float]) -> int:
    """Return the places that show a typical value to three digits, less those that are zero in every value."""
    sizes = [abs(value) for value in values if math.isfinite(value) and value]
    if not sizes:
        return 0
    places = min(max(2 - math.floor(math.log10(median(sizes))), 0), 8)
    while places and all(round(size, places - 1) == size for size in sizes):
        places -= 1
    return places


def time_table(times: Mapping[str, tuple[float | None, float]]) -> Table:
    """Return the table of seconds by section, with those that were expected where any were."""
    expected = any(planned is not None for planned, _ in times.values())
    columns = (Column("section"), *([Column("expected, s", "number")] if expected else []), Column("took, s", "number"))
    return Table(
        "Time by section",
        columns,
        tuple(
            (name.replace("_", " "), *([planned] if expected else []), took) for name, (planned, took) in times.items()
        ),
    )


def _cells(column: Column, values: Sequence[Value]) -> list[TableCell]:
    numbers = [value for value in values if isinstance(value, int | float)]
    places = 1 if column.kind == "percent" else decimals(numbers)
    return [_cell(column, value, places) for value in values]


def _cell(column: Column, value: Value, places: int) -> TableCell:
    if value is None:
        return TableCell("")
    if isinstance(value, str):
        return TableCell(value)
    style = "" if column.heat is None or math.isnan(value) else heat.style(value, column.heat)
    return TableCell(number(value, column.kind, places), None if math.isnan(value) else float(value), style)
