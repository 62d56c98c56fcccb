"""An audit in a notebook: its figures, a short page of HTML, and a few lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shiftproof.audits import headlines
from shiftproof.audits.view import Figure, View
from shiftproof.registry import unknown

if TYPE_CHECKING:
    from shiftproof.audits.outcome import Audit


class Figures(tuple[Any, ...]):
    """Plotly figures in the report's order; a notebook shows them one below another."""

    __slots__ = ()

    def _ipython_display_(self) -> None:
        for figure in self:
            figure.show()


def figures(views: Sequence[View], section: str | None = None) -> Figures:
    """Return the figures of all sections, or of one, as Plotly's `Figure` objects in the report's light colours."""
    import plotly.graph_objects as plotly

    from shiftproof.audits.report import charts

    names = [view.section for view in views]
    if section is not None and section not in names:
        raise unknown("section in this audit", section, names)
    chosen = [block for view in views if section in (None, view.section) for block in view.blocks]
    return Figures(plotly.Figure(charts.standalone(block)) for block in chosen if isinstance(block, Figure))


def html(audit: Audit) -> str:
    """Return the verdict, the tiles and where the report is, as a piece of HTML."""
    from shiftproof.audits.report import environment

    return (
        environment()
        .get_template("summary.html")
        .render(
            masthead=audit.masthead,
            verdict=headlines.verdict(audit.views),
            tiles=headlines.tiles(audit.views),
            failures=audit.failures,
            unfinished=audit.unfinished,
            report=str(audit.report),
        )
    )


def text(audit: Audit) -> str:
    """Return the verdict and where the report is, as lines of text."""
    said = [
        f"  {'' if sentence.level == 'plain' else sentence.level:<5}  {sentence.text}"
        for _, sentence in headlines.verdict(audit.views)
    ]
    failed = [f"  {len(audit.failures)} cells failed"] if audit.failures else []
    failed += [f"  {audit.unfinished}"] if audit.missing else []
    head = f"Audit of {audit.masthead.model} on {audit.masthead.data}"
    return "\n".join([head, *said, *failed, f"  report: {audit.report}"])
