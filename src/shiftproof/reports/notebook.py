"""An audit in a notebook: its figures, a short page of HTML, and a few lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from shiftproof.registry import unknown
from shiftproof.reports import headlines
from shiftproof.reports.view import Figure, Masthead, View


class Summarised(Protocol):
    """What a notebook shows of an audit."""

    @property
    def masthead(self) -> Masthead:
        """What was audited."""

    @property
    def views(self) -> Sequence[View]:
        """What its sections say."""

    @property
    def failed(self) -> Sequence[object]:
        """The tasks that failed."""

    @property
    def missing(self) -> object:
        """Whether tasks are missing."""

    @property
    def unfinished(self) -> str:
        """What is missing, in words."""

    @property
    def report(self) -> Path:
        """Where the report is."""


class Figures(tuple[Any, ...]):
    """Plotly figures in the report's order; a notebook shows them one below another."""

    __slots__ = ()

    def _ipython_display_(self) -> None:
        for figure in self:
            figure.show()


def figures(views: Sequence[View], section: str | None = None) -> Figures:
    """Return the figures of all sections, or of one, as Plotly's `Figure` objects in the report's light colours."""
    import plotly.graph_objects as plotly

    from shiftproof.reports import charts

    names = [view.section for view in views]
    if section is not None and section not in names:
        raise unknown("section in this audit", section, names)
    chosen = [block for view in views if section in (None, view.section) for block in view.blocks]
    return Figures(plotly.Figure(charts.standalone(block)) for block in chosen if isinstance(block, Figure))


def html(audit: Summarised) -> str:
    """Return the verdict, the tiles and where the report is, as a piece of HTML."""
    from shiftproof.reports.html import environment

    return (
        environment()
        .get_template("summary.html")
        .render(
            masthead=audit.masthead,
            verdict=headlines.verdict(audit.views),
            tiles=headlines.tiles(audit.views),
            failures=audit.failed,
            unfinished=audit.unfinished,
            report=str(audit.report),
        )
    )


def text(audit: Summarised) -> str:
    """Return the verdict and where the report is, as lines of text."""
    said = [
        f"  {'' if sentence.level == 'plain' else sentence.level:<5}  {sentence.text}"
        for _, sentence in headlines.verdict(audit.views)
    ]
    failed = [f"  {len(audit.failed)} tasks failed"] if audit.failed else []
    failed += [f"  {audit.unfinished}"] if audit.missing else []
    head = f"Audit of {audit.masthead.model} on {audit.masthead.data}"
    return "\n".join([head, *said, *failed, f"  report: {audit.report}"])
