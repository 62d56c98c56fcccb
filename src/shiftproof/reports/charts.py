"""Figures on their way into the page: Plotly specifications with their text escaped, and the look they share.

A colour in a specification may be a variable of the style sheet, such as `var(--bad)`; the page's script puts in the
value it has in light or dark. Text in a specification is text: what looks like markup is shown as it is, a newline
breaks the line, and `<br>` and `<extra></extra>` keep their meaning in hover and text templates alone.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from markupsafe import Markup

from shiftproof.reports.formatting import clean
from shiftproof.reports.heat import CIVIDIS
from shiftproof.reports.view import Figure

HEIGHT = 400
"""Pixels, where a figure does not say."""

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
_PATTERNS = ("", "/", ".", "x", "-", "\\", "|")
_CIVIDIS = [[index / (len(CIVIDIS) - 1), colour] for index, colour in enumerate(CIVIDIS)]
_NOTHING = "rgba(0, 0, 0, 0)"
_AXIS = {
    "automargin": True,
    "color": "var(--muted)",
    "gridcolor": "var(--hairline)",
    "linecolor": "var(--hairline)",
    "zerolinecolor": "var(--hairline)",
    "zerolinewidth": 1,
    "ticklabelstandoff": 6,
    "title": {"standoff": 12, "font": {"size": 13}},
}
_BAR = {"outlinewidth": 0, "thickness": 12, "tickfont": {"color": "var(--muted)"}}

TEMPLATE: Mapping[str, Any] = {
    "layout": {
        "font": {"size": 13, "color": "var(--ink)"},
        "paper_bgcolor": _NOTHING,
        "plot_bgcolor": _NOTHING,
        "colorway": [f"var(--series-{number})" for number in range(1, 8)],
        "colorscale": {"sequential": _CIVIDIS, "sequentialminus": _CIVIDIS},
        "coloraxis": {"colorbar": _BAR},
        "margin": {"l": 0, "r": 24, "t": 16, "b": 0},
        "hoverlabel": {
            "bgcolor": "var(--surface)",
            "bordercolor": "var(--hairline)",
            "font": {"color": "var(--ink)"},
            "align": "left",
        },
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        "modebar": {"bgcolor": _NOTHING, "color": "var(--muted)", "activecolor": "var(--ink)"},
        "bargap": 0.35,
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    },
    # Traces of a kind take these in turn, so that lines and bars are told apart without their colours.
    "data": {
        "scatter": [
            {"line": {"dash": dash, "width": 2}, "marker": {"symbol": symbol, "size": 7}}
            for dash, symbol in zip(_DASHES, _SYMBOLS, strict=True)
        ],
        "bar": [{"marker": {"pattern": {"shape": shape}, "line": {"width": 0}}} for shape in _PATTERNS],
        "heatmap": [{"colorscale": _CIVIDIS, "colorbar": _BAR}],
    },
}
_TEMPLATES = ("hovertemplate", "texttemplate")
_MARKUP = ("<br>", "<extra>", "</extra>")


def figure_json(figure: Figure) -> Markup:
    """Return a figure's data and layout as JSON. The page owns its title, its width and its template."""
    layout = {
        name: value
        for name, value in figure.plot.get("layout", {}).items()
        if name not in ("title", "width", "template")
    }
    return to_json({"data": figure.plot.get("data", []), "layout": {"height": HEIGHT, **layout}})


def height(figure: Figure) -> int:
    """Return the pixels to keep for a figure until it is drawn."""
    return int(figure.plot.get("layout", {}).get("height", HEIGHT))


def standalone(figure: Figure) -> dict[str, Any]:
    """Return a figure as a Plotly specification that needs no page: with its title, in the light colours."""
    made = json.loads(figure_json(figure))
    made["layout"].pop("meta", None)
    made["layout"] |= {
        "title": {"text": _text(figure.title, markup=())},
        "template": {
            **TEMPLATE,
            "layout": {**TEMPLATE["layout"], "margin": {"t": 72}, "paper_bgcolor": "var(--paper)"},
        },
    }
    specification: dict[str, Any] = _coloured(made, _light_colours())
    return specification


def style_sheet() -> str:
    """Return the page's style sheet, which defines the colours that specifications may name."""
    return Path(__file__).with_name("style.css").read_text("utf-8")


def _light_colours() -> dict[str, str]:
    """Return the variables of the style sheet with their values on light paper."""
    found: dict[str, str] = dict(re.findall(r"(--[\w-]+): (?:light-dark\()?(#\w+|var\(--\w+\))", style_sheet()))
    return {name: found.get(value.removeprefix("var(").removesuffix(")"), value) for name, value in found.items()}


def _coloured(value: Any, colours: Mapping[str, str]) -> Any:
    """Put colours in the place of variables."""
    if isinstance(value, str) and value.startswith("var("):
        return colours[value.removeprefix("var(").removesuffix(")")]
    if isinstance(value, Mapping):
        return {key: _coloured(item, colours) for key, item in value.items()}
    return [_coloured(item, colours) for item in value] if isinstance(value, list | tuple) else value


def to_json(value: Mapping[str, Any]) -> Markup:
    """Return JSON that can stand inside a script element; numbers that are not finite become null."""
    text = json.dumps(_escaped(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", r"\u003c"))


def _escaped(value: Any, name: str = "") -> Any:
    """Escape the strings of a specification against Plotly's reading of a little HTML; `name` is what holds them."""
    if isinstance(value, str):
        return _text(value, markup=_MARKUP if name in _TEMPLATES else ())
    if isinstance(value, Mapping):
        return {key: _escaped(item, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item, name) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _text(text: str, markup: tuple[str, ...]) -> str:
    escaped = escape(clean(text), quote=False).replace("\n", "<br>")
    for tag in markup:
        escaped = escaped.replace(escape(tag), tag)
    return escaped
