"""What a person at a terminal sees of comparisons: of methods, along streams, by a protocol, and of audits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from shiftproof.adapters import method
from shiftproof.cli.application import FAILED
from shiftproof.cli.terminal import escape
from shiftproof.comparisons import (
    Comparison,
    MethodComparison,
    ProtocolResult,
    StreamComparison,
    audit_views,
    side_by_side,
)
from shiftproof.comparisons.along_streams import FILE as STREAM_FILE
from shiftproof.comparisons.protocols import FILE as PROTOCOL_FILE
from shiftproof.estimators import Estimate
from shiftproof.runs import Json

SHOWN_LABEL = 14
"""Names of runs that stand over a column as they are are no longer than this."""


def show_methods(found: MethodComparison, _: Mapping[str, Any]) -> None:
    """Print a row per shift, the mean gain and the cost of each method, and why some did not apply."""
    console = Console()
    measure = found.measure if found.measure != "accuracy" else "Accuracy"
    title = f"{measure}, %" if found.scores else "Agreement with the source model, %"
    rows: dict[str, list[str]] = {}
    ran = {name: found.total(name) for name in found.methods if name not in found.reasons}
    learning = {name: counts for name, counts in ran.items() if method(name).needs_gradients}

    def add(title: str, cells: Mapping[str, str], fix: str = "") -> None:
        rows[title] = [cells.get(name, fix) for name in found.methods]

    shares = {place: each.value for place, each in found.scores.items()} or found.agreements
    for shift in found.shifts:
        add(shift, {name: f"{100 * shares[name, shift]:.1f}" for name in ran}, "-")
    if found.scores:
        add("points gained", {name: f"{100 * (found.gain(name) or 0.0):+.1f}" for name in ran}, "does not apply")
        if found.gain_intervals:
            sides = {
                name: f"{100 * low:+.1f} to {100 * high:+.1f}" for name, (low, high) in found.gain_intervals.items()
            }
            add("95% interval", sides)
    for shift in found.shifts if found.estimates else ():
        told = {name: _between(found.estimates[name, shift]) for name in ran}
        add(f"estimated accuracy, {shift}", told, "does not apply")
    add("time per batch", {name: f"{found.costs[name]:.1f}x" for name in ran if name in found.costs}, "-")
    add("updates", {name: f"{counts.updates:,} of {counts.batches:,}" for name, counts in learning.items()})
    add("resets", {name: f"{counts.resets:,}" for name, counts in learning.items()})
    console.print(_table(title, found.methods, rows, console))
    for said in (*(f"{name}: {reason}" for name, reason in found.reasons.items()), *found.notes):
        console.print(said, markup=False, soft_wrap=True)
    console.print(f"\nnumbers      {found.folder / 'methods.json'}", markup=False, soft_wrap=True)
    if not found.overlaps:
        console.print(f"predictions  {found.predictions}", markup=False, soft_wrap=True)
    if len(found.reasons) == len(found.methods):
        raise typer.Exit(FAILED)


def _table(title: str, methods: Sequence[str], rows: Mapping[str, Sequence[str]], console: Console) -> Table:
    """Return a table with a column per method, or, where these are many and too wide, with a row per method."""

    def made(corner: str, columns: Sequence[str], lines: Mapping[str, Sequence[str]]) -> Table:
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
        table.add_column(corner)
        for name in columns:
            table.add_column(escape(name), justify="right")
        for name, cells in lines.items():
            table.add_row(escape(name), *cells)
        return table

    wide = made("shift", methods, rows)
    if (
        len(methods) <= len(rows)
        or console.measure(wide, options=console.options.update(width=10_000)).maximum <= console.width
    ):
        return wide
    return made("method", list(rows), dict(zip(methods, zip(*rows.values(), strict=True), strict=True)))


def _between(found: Estimate) -> str:
    """Write an estimated accuracy with its limits, in %."""
    return f"{100 * found.accuracy:.1f} ({100 * found.low:.0f} to {100 * found.high:.0f})"


def show_stream_comparison(result: StreamComparison, _: Mapping[str, Any]) -> None:
    """Print a row per method: accuracy, against the source model, where it collapsed, resets and pace."""
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    standing = (
        (f"{result.measure}, %", "against source", "collapsed after")
        if result.labelled
        else ("agreement with source, %",)
    )
    for title in ("method", *standing, "updates", "resets", "ms/batch"):
        table.add_column(title, justify="left" if title == "method" else "right")
    for row in result.to_rows():
        table.add_row(
            str(row["method"]),
            *(_standing(row) if result.labelled else (f"{100 * float(str(row['agreement'])):.1f}",)),
            *(f"{row[count]:,}" if row[count] else "" for count in ("updates", "resets")),
            f"{1e3 * float(str(row['seconds_per_batch'])):.1f}",
        )
    console.print(table)
    for name, reason in result.reasons.items():
        console.print(f"{name}: {reason}", markup=False, soft_wrap=True)
    for note in result.notes:
        console.print(note, markup=False, soft_wrap=True)
    console.print(f"\nshifts   {', '.join(result.shifts)}", markup=False, soft_wrap=True)
    console.print(f"numbers  {result.folder / STREAM_FILE}", markup=False, soft_wrap=True)
    if result.predictions is not None:
        console.print(f"answers  {result.predictions}", markup=False, soft_wrap=True)


def _standing(row: Mapping[str, Json]) -> tuple[str, str, str]:
    """Write a method's accuracy, beside the source model's, and where it collapsed."""
    after, above = row["collapsed_after"], 100 * float(str(row["area_against_source"]))
    return (
        f"{100 * float(str(row['accuracy'])):.1f}",
        "" if row["method"] == "source" else f"{above:+.1f}",
        "" if after is None else f"{after:,} images",
    )


def show_protocol(found: ProtocolResult, _: Mapping[str, object]) -> None:
    """Print a row per group of streams and method: mean accuracy over streams, against the source model, and counts."""
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    titles = ("streams", "method", "accuracy, %", "against source", "worst, %", "collapsed", "updates", "resets")
    for title in titles:
        table.add_column(title, justify="left" if title in ("streams", "method") else "right")
    for row in found.to_rows():
        table.add_row(
            f"{row['group']} ({row['streams']})",
            str(row["method"]),
            _within(row, "accuracy"),
            "" if row["method"] == "source" else _within(row, "against_source", "+"),
            f"{100 * float(str(row['worst'])):.1f}",
            f"{row['collapsed']}" if row["collapsed"] else "",
            f"{row['updates']:,} of {row['batches']:,}" if row["updates"] else "",
            f"{row['resets']:,}" if row["resets"] else "",
        )
    console.print(table)
    for said in (
        *dict.fromkeys(f"{name}: {why}" for run in found.runs for name, why in run.reasons.items()),
        *found.notes,
    ):
        console.print(said, markup=False, soft_wrap=True)
    console.print(f"\nnumbers  {found.folder / PROTOCOL_FILE}", markup=False, soft_wrap=True)


def _within(row: Mapping[str, Json], name: str, sign: str = "") -> str:
    """Write a mean over streams with its limits, in points."""
    value, *limits = (row[part] for part in (name, f"{name}_low", f"{name}_high"))
    low, high = (f"{100 * float(str(limit)):{sign}.1f}" if limit is not None else "" for limit in limits)
    return f"{100 * float(str(value)):{sign}.1f}" + (f" ({low} to {high})" if low else "")


def show_comparison(found: Comparison, _: Mapping[str, Any]) -> None:
    """Print the verdict and every difference."""
    console = Console()
    several = len(found.labels) > 2
    if several:
        _show_side_by_side(found, console)
    for label in found.differences:
        console.print(f"\n{escape(audit_views.verdict(found, label).text)}\n", soft_wrap=True, highlight=False)
        if several:
            continue
        grid = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("number", found.labels[0], label, "difference", "95% interval", ""):
            grid.add_column(escape(name), justify="left" if name in ("number", "") else "right", no_wrap=True)
        for one in found.differences[label]:
            reach = "" if one.low is None else f"{one.low:+.2g} to {one.high:+.2g}"
            grid.add_row(
                escape(one.name), f"{one.one:.3g}", f"{one.other:.3g}", f"{one.value:+.2g}", reach, one.verdict
            )
        console.print(grid)
    for note in found.notes:
        console.print(escape(note), soft_wrap=True)
    console.print(
        f"\nreport   {escape(str(found.report))}\nnumbers  {escape(str(found.folder / 'comparison.json'))}",
        soft_wrap=True,
    )


def _show_side_by_side(found: Comparison, console: Console) -> None:
    """Print all runs in one table; long names of runs are numbered, and listed below."""
    short = {label: label if len(label) <= SHOWN_LABEL else f"({place})" for place, label in enumerate(found.labels, 1)}
    grid = Table(box=None, pad_edge=False, header_style="bold")
    grid.add_column("number", no_wrap=True)
    for label in found.labels:
        grid.add_column(escape(short[label]), justify="right", no_wrap=True)
    for name, cells in side_by_side.rows(found):
        grid.add_row(escape(name), *cells)
    console.print(grid)
    for label, name in short.items():
        if name != label:
            console.print(f"{name} {escape(label)}", soft_wrap=True, highlight=False)
    console.print(side_by_side.NOTE)
