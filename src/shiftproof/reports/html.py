"""The report: one HTML file that reads, prints and can be mailed; it asks the network for nothing.

Views hold what is to be said, `template.html` says it. Text is escaped where it meets the markup, and the page's own
policy lets only its own scripts run and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from shiftproof.reports import charts, glossary, headlines, heat, pictures
from shiftproof.reports.formatting import clean, coded, rows, scale, time_table, unit_apart
from shiftproof.reports.view import Figure, Gallery, Masthead, View
from shiftproof.runs.files import write_atomically

__all__ = ["environment", "render", "write"]

_FOLDER = Path(__file__).parent
_TAKEN = ("main", "top", "verdict", "next", "limits", "measured", "theme", "chart-template")
"""Anchors of the page itself, which no section may have."""


def write(path: Path | str, masthead: Masthead, views: Sequence[View]) -> None:
    """Write the report to a file, atomically."""
    write_atomically(Path(path), render(masthead, views))


def render(masthead: Masthead, views: Sequence[View]) -> str:
    """Return the report as HTML. Plotly comes with it where there is a figure to draw."""
    scripts = [(_FOLDER / "script.js").read_text("utf-8")]
    if any(isinstance(block, Figure) for view in views for block in view.blocks):
        from plotly.offline import get_plotlyjs

        scripts.append(get_plotlyjs())
    sections = list(zip(anchors(views), views, strict=True))
    anchor = {id(view): name for name, view in sections}
    return (
        environment()
        .get_template("template.html")
        .render(
            masthead=masthead,
            sections=sections,
            verdict=[(anchor[id(view)], sentence) for view, sentence in headlines.verdict(views)],
            tiles=[(anchor[id(view)], view.title, tile) for view, tile in headlines.tiles(views)],
            actions=[(anchor[id(view)], view.title, action) for view, action in headlines.actions(views)],
            sprite=pictures.repeated(views),
            style=Markup(charts.style_sheet()),
            scripts=[Markup(script) for script in scripts],
            policy=_policy(scripts),
            chart_template=charts.to_json(charts.TEMPLATE),
            gradient=heat.GRADIENT,
        )
    )


def anchors(views: Sequence[View]) -> list[str]:
    """Return an id for each view, made from its section's name; no two are the same."""
    found: list[str] = []
    for view in views:
        slug = re.sub(r"[^a-z0-9]+", "-", view.section.lower()).strip("-") or "section"
        anchor, number = slug, 1
        while anchor in found or anchor in _TAKEN:
            number += 1
            anchor = f"{slug}-{number}"
        found.append(anchor)
    return found


def _policy(scripts: Sequence[str]) -> str:
    """Return the content security policy: these very scripts may run, and nothing may be fetched.

    Plotly makes code for traces such as `scattergl` at run time, so its scripts may evaluate text.
    """
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def environment() -> Environment:
    """Return what renders templates: text is escaped, and hidden characters are left out."""
    made = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_clean,
    )
    made.filters |= {
        "coded": coded,
        "defined": glossary.defined,
        "figure_json": charts.figure_json,
        "height": charts.height,
        "measures": glossary.used,
        "rows": rows,
        "scale": scale,
        "size": pictures.size,
        "time_table": time_table,
        "unit_apart": unit_apart,
    }
    made.tests |= {
        "figure": lambda block: isinstance(block, Figure),
        "gallery": lambda block: isinstance(block, Gallery),
    }
    return made


def _clean(value: object) -> object:
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
