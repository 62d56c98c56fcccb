"""`shiftproof list`: what there is."""

from __future__ import annotations

from typing import Annotated

import typer

from shiftproof.cli.application import app


@app.command("list")
def list_names(
    kind: Annotated[
        str,
        typer.Argument(
            help="shifts, adapters, recipes, estimators, searchers, spaces, streams, sections, models or data."
        ),
    ],
) -> None:
    """List what there is of a kind, with what installed packages add."""
    from shiftproof.cli import catalogue

    catalogue.show(kind)
