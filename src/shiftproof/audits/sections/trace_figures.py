"""Traces as the report shows them: rolling accuracy of each method beside the model as it is, collapses marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shiftproof.audits.sections.wording import percent
from shiftproof.prediction_tasks import CLASSES
from shiftproof.reports.view import Column, Figure, Table
from shiftproof.streams import Trace

POINTS = 200
"""A line has so many points at most."""


def trace_figure(traces: Mapping[str, Trace], window: int, measure: str = CLASSES.measure) -> Figure:
    """Return the rolling score of each method over the images seen; a cross is where it falls below the source."""
    source = traces["source"]
    falls = {name: trace.collapse(source, window) for name, trace in traces.items() if name != "source"}
    fallen = {name: place for name, place in falls.items() if place is not None}
    data = [_line(name, trace, window) for name, trace in traces.items()]
    data += [_mark(name, place, traces[name], window) for name, place in fallen.items()]
    layout = {
        "xaxis": {"title": {"text": "images seen"}},
        "yaxis": {"title": {"text": f"{measure} over the last {window:,} images, %"}, "rangemode": "tozero"},
    }
    if fallen:
        first = min(fallen, key=lambda name: fallen[name])
        finding = f"{_listed(sorted(fallen))} below the unadapted model, {first} after {fallen[first]:,} images"
    elif falls:
        finding = f"In {sum(source.images):,} images no method falls below the unadapted model for good"
    else:
        finding = f"The unadapted model stays near {percent(source.accuracy)}"
    return Figure(
        finding,
        {"data": data, "layout": layout},
        trace_table(traces, window, measure),
        caption=f"Where a method's line is below that of source, the unadapted model, adapting costs {measure}. A "
        "cross marks a fall below it for good.",
    )


def trace_table(traces: Mapping[str, Trace], window: int, measure: str = CLASSES.measure) -> Table:
    """Return one row per method: the score at the start, at the end and in all, and where it collapsed."""
    source = traces["source"]
    body: list[tuple[str | float | int | None, ...]] = []
    for name, trace in traces.items():
        _, rolling = trace.rolling(window)
        body.append(
            (
                name,
                trace.accuracy,
                rolling[0] if rolling else None,
                rolling[-1] if rolling else None,
                None if name == "source" else round(100 * trace.area(source), 1),
                None if name == "source" else trace.collapse(source, window),
                round(trace.seconds_per_batch / max(source.seconds_per_batch, 1e-9), 1),
                *((None, None) if name == "source" else (trace.updates, trace.resets)),
            )
        )
    return Table(
        "Along the stream",
        (
            Column("method"),
            Column(measure, "percent"),
            Column(f"first {window:,} images", "percent"),
            Column(f"last {window:,} images", "percent"),
            Column("points above source", "number"),
            Column("collapsed after, images", "number"),
            Column("time per batch, relative to source", "number"),
            Column("updates", "number"),
            Column("resets", "number"),
        ),
        tuple(body),
    )


def _line(name: str, trace: Trace, window: int) -> dict[str, Any]:
    ends, accuracy = trace.rolling(window)
    every = max(1, -(-len(ends) // POINTS))
    line = {"width": 4} if name == "source" else {}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": ends[::every],
        "y": [round(100 * value, 2) for value in accuracy[::every]],
        "line": line,
    }


def _mark(name: str, place: int, trace: Trace, window: int) -> dict[str, Any]:
    ends, accuracy = trace.rolling(window)
    nearest = min(range(len(ends)), key=lambda index: abs(ends[index] - place))
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{name} falls",
        "x": [ends[nearest]],
        "y": [round(100 * accuracy[nearest], 2)],
        "marker": {"symbol": "x", "size": 12},
        "showlegend": False,
    }


def _listed(names: list[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} falls"
    return f"{', '.join(names[:-1])} and {names[-1]} fall"
