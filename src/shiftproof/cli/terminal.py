"""What a person at a terminal sees: progress while an audit runs, and its verdict when it ends."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from types import TracebackType
from typing import Any, Literal, Self

import typer
from rich import markup, progress
from rich.console import Console
from rich.table import Table

from shiftproof.audits.conclusion import Audit
from shiftproof.audits.costs import duration
from shiftproof.audits.disk_space import told_size
from shiftproof.audits.forecast import Forecast
from shiftproof.audits.run_reports import RunReport
from shiftproof.certificates.spectral_analysis import SpectrumPlan
from shiftproof.cli.application import FAILED, GATED
from shiftproof.errors import printable
from shiftproof.estimators.fitting import CalibrationPlan
from shiftproof.reports import headlines, view
from shiftproof.runs import Result, Row
from shiftproof.training.rehearsal import TrainingPlan

SIGNS = {"good": "[green]good [/]", "watch": "[yellow]watch[/]", "bad": "[red]bad  [/]", "plain": "     "}
GAP = 2
"""Spaces between two columns."""
NAME = 20
"""Names of rows up to this length are not broken."""
EVERY = 30.0
"""Seconds between two lines of progress in a log."""


class Progress:
    """A bar of what is done, on the error stream so that output can be piped; a quiet one shows nothing.

    Where the error stream is no terminal, as in a log, a line says how far it is, every so many seconds.
    """

    def __init__(self, console: Console | None = None, *, every: float = EVERY) -> None:
        quiet = os.environ.get("RANK", "0") != "0"  # of several processes, one speaks
        self._console = console or Console(stderr=True, quiet=quiet)
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bar.add_task("preparing", total=None)
        self._every, self._ended, self._began = every, threading.Event(), time.monotonic()
        self._logger = None if self._console.is_terminal else threading.Thread(target=self._log, daemon=True)

    def on_progress(self, done: int, total: int, result: Result | Row | None) -> None:
        """Show how far the run is, and what it just measured, or how far training is."""
        what = "measuring"
        if isinstance(result, Result):
            what = str(result.task.parameters().get("shift", result.task.kind))
        elif result is not None:
            what = f"epoch {float(str(result['epoch'])):.1f} loss {float(str(result['loss'])):.4f}"
        self._bar.update(self._task, total=total, completed=done, description=f"{what:<26.26}")

    def on_plan(self, forecast: Forecast | SpectrumPlan | CalibrationPlan | TrainingPlan) -> None:
        """Print how long each section should take, and all of them, and which are cut and why."""
        if isinstance(forecast, TrainingPlan):
            self._console.print(f"{forecast}, about {duration(forecast.seconds)}", highlight=False)
            return
        if isinstance(forecast, CalibrationPlan):
            self._console.print(str(forecast), highlight=False)
            return
        if isinstance(forecast, SpectrumPlan):
            said = f"{forecast.cells:,} cells of {forecast.images:,} images, about {duration(forecast.seconds)}"
            self._console.print(said, highlight=False)
            return
        lines = [(name, duration(seconds / forecast.at_a_time)) for name, seconds in forecast.remaining.items()]
        disk = f", {told_size(forecast.disk)} on disk" if forecast.disk else ""
        for name, text in [*lines, ("all", f"{duration(forecast.seconds)}{disk}")]:
            cut = f", {100 * forecast.kept[name]:.2g}% of the budget's passes" if name in forecast.kept else ""
            self._console.print(f"{name:<12} about {text}{cut}", highlight=False)
        if forecast.kept:
            self._console.print(forecast.why, highlight=False, soft_wrap=True)

    def _log(self) -> None:
        """Say how far it is until it ends, also while a task takes long."""
        while not self._ended.wait(self._every):
            (task,) = self._bar.tasks
            done = "" if task.total is None else f" {task.completed:.0f} of {task.total:.0f}"
            spent = duration(time.monotonic() - self._began)
            self._console.print(f"{task.description.strip()}{done}, after {spent}", highlight=False, markup=False)

    def __enter__(self) -> Self:
        self._bar.start()
        if self._logger is not None:
            self._logger.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._logger is not None:
            self._logger.join()
        self._bar.stop()


def summary(audit: Audit, console: Console | None = None) -> None:
    """Print the verdict, the first table of every section, failed tasks, and where the report is."""
    console = console or Console()
    head = audit.masthead
    kind = "texts" if "texts" in head.facts else "images"
    count = f"{head.facts['cells']} cells of {head.facts[kind]}" if "cells" in head.facts else head.facts[kind]
    console.print(f"\n[bold]{escape(head.model)}[/] on [bold]{escape(head.data)}[/], {count} {kind}\n")
    if "data" in head.method:
        console.print(f"  {escape(head.method['data'])}\n", soft_wrap=True)
    for _, sentence in headlines.verdict(audit.views):
        console.print(f"  {SIGNS[sentence.level]} {escape(sentence.text)}", soft_wrap=True)
    for section in audit.views:
        tables = [block for block in section.blocks if isinstance(block, view.Table)]
        if tables and section.section != "clean":
            console.print()
            console.print(make_table(tables[0], console.width))
    if todo := headlines.actions(audit.views):
        console.print("\n[bold]What to do next[/]; the report has the commands")
        for number, (_, action) in enumerate(todo, start=1):
            console.print(f"  {number} {escape(action.title)}{escape(_gain(action))}", soft_wrap=True)
    for failure in audit.failed:
        console.print(f"[red]failed[/] {escape(failure.splitlines()[0])}", soft_wrap=True)
    if audit.failed:
        console.print(f"{len(audit.failed)} tasks failed; run the same command to try them again.")
    if audit.checks or audit.missing:
        console.print()
        show_checks(audit, console)
    console.print(
        f"\nreport   {escape(str(audit.report))}\nnumbers  {escape(str(audit.folder / 'results.json'))}", soft_wrap=True
    )


def _gain(action: view.Action) -> str:
    if action.gain is None:
        return ""
    return f": {'at most ' if action.bound else '+'}{action.gain:.1f} points {action.on}"


def show_checks(audit: Audit, console: Console | None = None) -> None:
    """Print what was required and whether it holds, and loudly where an audit is unfinished."""
    console = console or Console()
    if audit.missing:
        console.print(f"[bold red]{audit.unfinished}[/]", soft_wrap=True)
    for one in audit.checks:
        sign = "[green]holds[/]" if one.passed else "[red]fails[/]"
        console.print(f"{sign}  {escape(str(one))}", highlight=False, soft_wrap=True)


def make_table(table: view.Table, width: int) -> Table:
    """Return the table with as many of its columns as fit the width without cutting numbers or words of headings.

    What room there is beyond that goes first to columns that need little of it to be on one line, such as intervals,
    and last to headings.
    """
    cells = [[_cell(value, column) for value, column in zip(row, table.columns, strict=True)] for row in table.rows]
    titles = [escape(column.title.replace("severity ", "")) for column in table.columns]
    least = [_least_width(title, each) for title, *each in zip(titles, *cells, strict=True)]
    least[0] = max(least[0], *(len(row[0]) for row in cells if len(row[0]) <= NAME), 0)
    fitting = max(1, sum(end <= width + GAP for end in accumulate(each + GAP for each in least)))
    spare = width + GAP - sum(each + GAP for each in least[:fitting])
    left_out = len(titles) - fitting
    made = Table(
        title=escape(table.title),
        caption=f"{left_out} more column{'s' * (left_out > 1)} in the report" if left_out else None,
        title_justify="left",
        caption_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    widths = least[:fitting]
    for texts in (cells, [titles]):
        lacking = [max((len(row[place]) - widths[place] for row in texts), default=0) for place in range(fitting)]
        for place in sorted(range(fitting), key=lacking.__getitem__):
            more = max(0, min(spare, lacking[place]))
            widths[place] += more
            spare -= more
    for title, wide, column in zip(titles, widths, table.columns, strict=False):
        justify: Literal["left", "right"] = "left" if column.kind == "text" else "right"
        made.add_column(title, justify=justify, width=wide)
    for row in cells:
        made.add_row(*row[:fitting])
    return made


def _least_width(title: str, cells: Sequence[str]) -> int:
    """Return the width of a column whose words, and whose cells of one word, are not broken."""
    return max(map(len, chain(title.split(), *(cell.split() for cell in cells))), default=0)


def _cell(value: str | float | int | None, column: view.Column) -> str:
    if value is None:
        return ""
    if column.kind == "percent":
        return f"{100 * float(value):.1f}"
    return escape(str(value))


def escape(text: str) -> str:
    """Return a text that is shown as it is: neither this library nor the terminal reads commands in it."""
    return markup.escape(printable(text))


def show_report(result: Audit | RunReport, given: Mapping[str, Any]) -> None:
    """Print an audit as `audit` does, and of another run what its report says and where it is."""
    if isinstance(result, Audit):
        show_audit(result, given)
        return
    console = Console()
    for _, sentence in headlines.verdict(result.views):
        console.print(escape(sentence.text), soft_wrap=True, highlight=False)
    console.print(f"\nreport   {escape(str(result.report))}\ntable    {escape(str(result.table))}", soft_wrap=True)


def show_audit(result: Audit, _: Mapping[str, Any]) -> None:
    """Print an audit, and end with the status that says how it went."""
    summary(result)
    _exit(result)


def show_gate(result: Audit, _: Mapping[str, Any]) -> None:
    """Print what was required, and end with the status that says whether it holds."""
    show_checks(result)
    _exit(result)


def _exit(result: Audit) -> None:
    """End with the status that says how it went.

    Nothing is said to hold or not of an unfinished audit; else a requirement goes before a task that failed.
    """
    if result.missing:
        raise typer.Exit(FAILED)
    if not result.passed:
        raise typer.Exit(GATED)
    if result.failed:
        raise typer.Exit(FAILED)
