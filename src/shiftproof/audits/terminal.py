"""What a person at a terminal sees: progress while an audit runs, and its verdict when it ends."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich import progress
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shiftproof.audits import view
from shiftproof.audits.outcome import Audit
from shiftproof.runs import Result

SIGNS = {"good": "[green]good [/]", "watch": "[yellow]watch[/]", "bad": "[red]bad  [/]", "plain": "     "}


class Progress:
    """A bar of cells done, on the error stream so that output can be piped."""

    def __init__(self) -> None:
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("loading", total=None)

    def heard(self, done: int, total: int, result: Result | None) -> None:
        """Show how far the run is, and what it just measured."""
        what = "measuring" if result is None else str(result.cell.parameters.get("shift", result.cell.task))
        self._bar.update(self._task, total=total, completed=done, description=f"{what:<24.24}")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


def summary(audit: Audit, console: Console | None = None) -> None:
    """Print the verdict, the first table of every section, failed cells, and where the report is."""
    console = console or Console()
    head = audit.masthead
    kind = "texts" if "texts" in head.facts else "images"
    console.print(f"\n[bold]{escape(head.model)}[/] on [bold]{escape(head.data)}[/], {head.facts[kind]} {kind}\n")
    for section in audit.views:
        for sentence in section.verdict:
            console.print(f"  {SIGNS[sentence.level]} {escape(sentence.text)}", soft_wrap=True)
    for section in audit.views:
        tables = [block for block in section.blocks if isinstance(block, view.Table)]
        if tables and section.section != "clean":
            console.print()
            console.print(_table(tables[0]))
    for failure in audit.failures:
        console.print(f"[red]failed[/] {escape(failure.splitlines()[0])}", soft_wrap=True)
    if audit.failures:
        console.print(f"{len(audit.failures)} cells failed; the same command tries them again.")
    console.print(
        f"\nreport   {escape(str(audit.report))}\nnumbers  {escape(str(audit.folder / 'results.json'))}", soft_wrap=True
    )


def _table(table: view.Table) -> Table:
    made = Table(title=escape(table.title), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in table.columns:
        made.add_column(
            escape(column.title.replace("severity ", "")), justify="left" if column.kind == "text" else "right"
        )
    for row in table.rows:
        made.add_row(*(_cell(value, column) for value, column in zip(row, table.columns, strict=True)))
    return made


def _cell(value: str | float | int | None, column: view.Column) -> str:
    if value is None:
        return ""
    if column.kind == "percent":
        return f"{100 * float(value):.1f}"
    return escape(str(value))
