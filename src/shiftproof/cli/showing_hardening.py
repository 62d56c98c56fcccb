"""What a person at a terminal sees of hardening."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from shiftproof.cli.terminal import escape
from shiftproof.hardening.hardened import FILE, Hardened
from shiftproof.hardening.hardening_views import verdict


def show_hardened(found: Hardened, _: Mapping[str, Any]) -> None:
    """Print what was weak, what came of training against it, and where the model is."""
    console = Console()
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("weakness", "points lost", "augmentation"):
        grid.add_column(name, justify="right" if name == "points lost" else "left", overflow="fold")
    for each in found.weaknesses:
        grid.add_row(each.remedy, f"{100 * each.loss:.1f}", escape(each.chosen or "left out"))
    console.print(grid)
    console.print(f"\n{escape(verdict(found).text)}\n", soft_wrap=True, highlight=False)
    lines: dict[str, object] = {"report": found.report, "numbers": found.folder / FILE, "time": found.spending}
    if found.model is not None:
        lines = {"model": found.model, **lines}
    for name, said in lines.items():
        console.print(f"{name:<8} {escape(str(said))}", soft_wrap=True, highlight=False)
