"""Sphinx directives that make tables from the data files of `shiftproof.shifts`, so that the documents follow them.

```{shift-families}
```
```{shift-facts} common holdout
```
```{shift-parameters} bar
```
```{operation-sets}
```
```{policy-magnitudes} augmix
```
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from docutils.nodes import Node
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from shiftproof import shifts
from shiftproof.keyed import Keyed
from shiftproof.shifts import tables
from shiftproof.shifts.catalogue import FAMILIES
from shiftproof.shifts.image_shift import Shape

SEVERITIES = range(6)


class Generated(SphinxDirective):
    """Markdown made by code, in the place of the directive; its arguments are words."""

    optional_arguments = 9

    def run(self) -> list[Node]:
        """Parse the lines."""
        return self.parse_text_to_nodes("\n".join(self.lines()), allow_section_headings=True)

    def lines(self) -> Iterator[str]:
        """Yield the lines of Markdown."""
        raise NotImplementedError


class Families(Generated):
    """Families of shifts, with what they hold."""

    def lines(self) -> Iterator[str]:
        """Yield a row per family."""
        rows = []
        for family, what in FAMILIES.items():
            meaning, _, form = what.rpartition(", ")
            rows.append((code(family), f"{meaning}, {code(form)}", ", ".join(map(code, shifts.names(family)))))
        yield from table(("family", "what it is, with an example", "names"), rows)


class Facts(Generated):
    """What the tables say of the corruptions of families, and whether they draw anything."""

    def lines(self) -> Iterator[str]:
        """Yield a row per corruption."""
        several, every = len(self.arguments) > 1, list(corruptions(self.arguments))
        selected = any("published" in facts for _, facts in every)
        head = ["corruption", "category", "frequency", "draws", "monotone", "moves content"]
        yield from table(
            [*head, *["family"] * several, *["published for"] * selected],
            [
                (
                    f"[{code(name)}](#{anchor(name)})",
                    facts["category"],
                    facts.get("frequency", "varies"),
                    "random" if is_random(name) else "nothing",
                    "yes" if facts["monotone"] else "**no**",
                    "**yes**" if facts["moves"] else "no",
                    *[facts["family"]] * several,
                    *[" and ".join(sorted(facts.get("published", tables.PRESET_SIDES)))] * selected,
                )
                for name, facts in every
            ],
        )


class Parameters(Generated):
    """What each corruption of families does, and its parameters at every severity and preset."""

    def lines(self) -> Iterator[str]:
        """Yield a section per corruption."""
        for name, facts in corruptions(self.arguments):
            yield from (f"({anchor(name)})=", f"### {name}", "", description(name), "")
            rows = []
            for preset in tables.PRESET_SIDES:
                known = preset in facts.get("published", (preset,))
                for parameter, column in facts[preset].items():
                    first = facts["zero"].get(parameter, column[0])
                    values = [number(value) for value in (first, *column)]
                    rows.append((code(parameter), preset if known else f"{preset} (not published)", *values))
            yield from table(("parameter", "preset", *map(str, SEVERITIES)), rows)


class OperationSets(Generated):
    """The published sets of operations for worst-case search."""

    def lines(self) -> Iterator[str]:
        """Yield a row per operation, a column per set."""
        sets = tables.table("enhance")
        names = dict.fromkeys(name for levels in sets.values() for name in levels)
        rows = [(code(name), *(levels_of(levels.get(name)) for levels in sets.values())) for name in names]
        yield from table(("operation", *map(code, sets)), rows)


class Magnitudes(Generated):
    """How a policy's magnitudes become levels."""

    def lines(self) -> Iterator[str]:
        """Yield a row per operation."""
        rows = []
        for name, row in tables.table("policies")[self.arguments[0]].items():
            sign = "either" if row.get("signed") else "" if not row else "as given"
            start, span = (number(row[key]) if row else "" for key in ("start", "span"))
            rows.append((code(name), start, span, sign, row.get("whole", "")))
        yield from table(("operation", "start", "span", "sign", "whole numbers"), rows)


def corruptions(families: Iterable[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the corruptions of families with their rows of the data files."""
    for family in families:
        for name in shifts.names(family):
            yield name, shifts.facts(name)


def is_random(name: str) -> bool:
    """Return whether a corruption draws anything."""
    shape = Shape(3, 32, 32)
    return shifts.corruption(name, 3).draw(Keyed(0, [0]), shape) is not None


def description(name: str) -> str:
    """Return the first paragraph of a recipe's docstring."""
    text = inspect.getdoc(shifts.corruption(name, 3).recipe) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("**2", "²")


def anchor(name: str) -> str:
    """Return the label of a corruption's section."""
    return f"shift-{name.replace('_', '-')}"


def levels_of(row: Mapping[str, Any] | None) -> str:
    """Write the levels of an operation in a set: their number and range."""
    if row is None:
        return ""
    return f"{row['count']}: {number(row['low'])} to {number(row['high'])}" if row else "1"


def number(value: float) -> str:
    """Write a number with the digits it has."""
    return "∞" if math.isinf(value) else f"{value:g}"


def code(text: str) -> str:
    """Mark a text as code."""
    return f"`{text}`"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a Markdown table, with an empty line on either side."""
    yield ""
    for cells in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    directives = {
        "shift-families": Families,
        "shift-facts": Facts,
        "shift-parameters": Parameters,
        "operation-sets": OperationSets,
        "policy-magnitudes": Magnitudes,
    }
    for name, directive in directives.items():
        app.add_directive(name, directive)
    return {"parallel_read_safe": True}
