"""How the section on estimates without labels draws and tabulates them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

from shiftproof.audits.sections.shift_names import named
from shiftproof.audits.sections.wording import labelled, title
from shiftproof.estimators import Calibration, Monitor
from shiftproof.estimators.source_copies import Copy
from shiftproof.measures.estimation import mean_absolute_error
from shiftproof.reports.view import Column, Figure, Table
from shiftproof.runs import Row
from shiftproof.shifts import Shift

PANELS = ("combined", "calibrated_confidence", "invariance", "bn_distance", "atc_entropy", "average_confidence")


def panels(estimates: Mapping[str, Sequence[float]], sets: Sequence[Copy]) -> Figure:
    """Draw estimated against true accuracy, one panel per estimator; in a narrow window there are two in a row."""
    shown = [method for method in PANELS if method in estimates]
    truth = [100 * one.accuracy for one in sets]
    data: list[dict[str, Any]] = []
    for place, method in enumerate(shown):
        number = "" if place == 0 else str(place + 1)
        axes = {"xaxis": f"x{number}", "yaxis": f"y{number}"}
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [0, 100],
                "y": [0, 100],
                "hoverinfo": "skip",
                "line": {"dash": "dot", "color": "var(--muted)"},
                **axes,
            }
        )
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": title(method),
                "x": truth,
                "y": [100 * value for value in estimates[method]],
                "text": [labelled(one.shift) for one in sets],
                "hovertemplate": "%{text}: true %{x:.1f}%, estimated %{y:.1f}%<extra></extra>",
                "marker": {"symbol": "circle", "color": "var(--series-1)", "opacity": 0.75},
                **axes,
            }
        )
    layout = {"showlegend": False, **_arranged(shown, 3), "meta": {"narrow": _arranged(shown, 2)}}
    table = Table(
        "Estimated and true accuracy",
        (Column("shift"), Column("true", "percent"), *(Column(title(method), "percent") for method in shown)),
        tuple(
            (one.shift, one.accuracy, *(estimates[method][place] for method in shown)) for place, one in enumerate(sets)
        ),
    )
    closest = min(shown, key=lambda method: mean_absolute_error(estimates[method], [one.accuracy for one in sets]))
    return Figure(
        f"Of these estimators, {title(closest)} stays closest to the truth",
        {"data": data, "layout": layout},
        table,
        caption="Each point is a shift. On the dotted line the estimate is right; above it the estimate is too high.",
    )


def _arranged(shown: Sequence[str], columns: int) -> dict[str, Any]:
    """Return the axes, titles and height of panels in rows."""
    columns = min(columns, len(shown))
    lines = -(-len(shown) // columns)
    layout: dict[str, Any] = {"annotations": [], "height": 40 + 270 * lines}
    for place, method in enumerate(shown):
        number = "" if place == 0 else str(place + 1)
        left, top = place % columns / columns, 1 - place // columns / lines
        first, last = place % columns == 0, place + columns >= len(shown)
        layout[f"xaxis{number}"] = {
            "domain": [left, left + 0.8 / columns],
            "anchor": f"y{number}",
            "range": [0, 100],
            "title": {"text": "true accuracy, %" if last else ""},
        }
        layout[f"yaxis{number}"] = {
            "domain": [top - 0.82 / lines, top - 0.08 / lines],
            "anchor": f"x{number}",
            "range": [0, 100],
            "title": {"text": "estimated, %" if first else ""},
        }
        layout["annotations"].append(
            {
                "text": title(method),
                "xref": "paper",
                "yref": "paper",
                "x": left,
                "y": top,
                "showarrow": False,
                "xanchor": "left",
                "yanchor": "top",
            }
        )
    return layout


def error_table(calibration: Calibration, errors: Mapping[str, float], ranks: Mapping[str, float | None]) -> Table:
    """Tabulate how far every estimator is off, here and on the source's own shifted copies."""
    order = sorted(errors, key=lambda method: errors[method])
    return Table(
        "Error of every estimator",
        (
            Column("estimator"),
            Column("mean error, points", "number"),
            Column("rank correlation", "number"),
            Column("mean error on families left out, points", "number"),
        ),
        tuple(
            (
                "chosen for each set" if method == "auto" else title(method),
                round(100 * errors[method], 1),
                None if ranks[method] is None else round(cast(float, ranks[method]), 3),
                None if method == "auto" else round(100 * calibration.errors[method], 1),
            )
            for method in order
        ),
        caption="Only the last column is known without labels of the target: the estimator is chosen by it.",
    )


def monitor_table(drop: float, told: str) -> Table:
    """Tabulate the settings of a monitor that suit the model."""
    usual = {name: each.default for name, each in inspect.signature(Monitor).parameters.items()}
    return Table(
        "Settings for a monitor of this model",
        (Column("setting"), Column("value"), Column("why")),
        (
            ("drop", f"{drop:.2f}", f"{told}; 0.05 at least"),
            ("window", f"{usual['window']:,}", "the latest inputs: too few make it restless, too many make it slow"),
            ("alpha", f"{usual['alpha']:g}", "the share of streams of 20,000 inputs with a false alarm, at most"),
        ),
    )


def strangeness_table(found: Sequence[tuple[Shift, Row]], one_input: str) -> Table:
    """Tabulate how well single shifted inputs are told from clean ones."""
    strongest = {named(shift): (shift, row) for shift, row in found}  # the last of each
    body = [
        (labelled(shift.label), cast(float, row["auroc_invariance"]), cast(float, row["auroc_confidence"]))
        for shift, row in strongest.values()
        if "auroc_invariance" in row
    ]
    return Table(
        f"Detecting a single shifted {one_input}",
        (
            Column("shift"),
            Column("AUROC of invariance", "number", heat=(0.5, 1.0)),
            Column("AUROC of confidence", "number", heat=(0.5, 1.0)),
        ),
        tuple((label, round(one, 3), round(other, 3)) for label, one, other in sorted(body, key=lambda row: -row[1])),
        caption=f"At the strongest severity: how often a clean {one_input} scores above a shifted one; 0.5 is chance.",
    )
