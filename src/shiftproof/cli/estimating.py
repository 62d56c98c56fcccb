"""`shiftproof estimate`: the accuracy to expect on images without labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftproof.cli import options
from shiftproof.cli.application import app, listed

if TYPE_CHECKING:
    from shiftproof.estimators import Estimate


@app.command()
def estimate(
    model: options.Model = "demo",
    data: Annotated[
        str,
        typer.Option(
            "--data", "-d", help="Images or texts without labels: a folder, an .npz file, texts.csv, demo, ..."
        ),
    ] = "demo",
    source: Annotated[
        str, typer.Option("--source", "-s", help="Labelled images like those the model was made for.")
    ] = "demo-source",
    method: Annotated[
        str, typer.Option(help="auto, or a method, such as combined, invariance, atc_entropy or bn_distance.")
    ] = "auto",
    other: Annotated[str | None, typer.Option(help="A second model, for the method agreement.")] = None,
    neighborhood: Annotated[
        str | None,
        typer.Option(
            help="randaugment, translate, erase, ..., eda, or any shift. Default: randaugment; eda for texts."
        ),
    ] = None,
    n: Annotated[int, typer.Option("--views", "-n", help="Views of every image.")] = 10,
    shifts: Annotated[
        str, typer.Option(help="Shifts to calibrate on, separated by commas. Default: ten corruptions, thrice.")
    ] = "",
    images: Annotated[int | None, typer.Option(help="Use this many images. Default: 1,000; 0 is all.")] = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    batch_size: options.BatchSize = None,
    size: options.Size = None,
    classes: options.Classes = "auto",
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the numbers to this JSON file.")] = None,
) -> None:
    """Estimate a model's accuracy on images without labels, with what speaks against it.

    The interval is for shifts like those it is calibrated on.
    """
    from shiftproof.cli.terminal import Progress
    from shiftproof.estimators.estimating import IMAGES
    from shiftproof.estimators.estimating import estimate as run
    from shiftproof.estimators.evidence import BATCH_SIZE
    from shiftproof.runs import write_atomically

    with Progress() as progress:
        result = run(
            model,
            data,
            source=source,
            method=method,
            other=other,
            neighborhood=neighborhood,
            n=n,
            shifts=listed(shifts),
            images={None: IMAGES, 0: None}.get(images, images),
            seed=seed,
            device=device,
            batch_size=BATCH_SIZE if batch_size is None else batch_size,
            size=size,
            classes=classes,
            text_column=text_column,
            label_column=label_column,
            on_progress=lambda done, total: progress.show(done, total, "calibrating"),
        )
    _show(result)
    if out is not None:
        content = {**result.to_row(), "others": [one.to_row() for one in result.others]}
        write_atomically(out, json.dumps(content, indent=1) + "\n")
        typer.echo(f"numbers  {out}")


def _show(result: Estimate) -> None:
    """Print the answer, what speaks against it, and every method's with how far off it is on shifts it has not seen."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    console.print(
        f"\n[bold]{100 * result.accuracy:.1f}%[/] accuracy is to be expected ({100 * result.low:.1f} to "
        f"{100 * result.high:.1f}% for shifts like the calibration's), by {result.method} on {result.inputs:,} "
        f"inputs{'' if result.trusted else ': not to be trusted'}\n",
        soft_wrap=True,
        highlight=False,
    )
    for warning in result.warnings:
        console.print(f"  [yellow]watch[/] {escape(warning)}", soft_wrap=True, highlight=False)
    if result.warnings:
        console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("method", "accuracy", "95% interval", "points off", ""):
        table.add_column(title, justify="left" if title in ("method", "") else "right")
    ranked = sorted((result, *result.others), key=lambda one: (one.error is None, one.error))
    for one in ranked:
        table.add_row(
            one.method,
            f"{100 * one.accuracy:.1f}",
            f"{100 * one.low:.1f} to {100 * one.high:.1f}",
            "" if one.error is None else f"{100 * one.error:.1f}",
            "" if one.trusted else "not to be trusted",
        )
    console.print(table)
    console.print(
        "Intervals and points off are for shifts like those calibrated on. Other shifts, and classes in another mix, "
        "can be far outside without a warning.",
        soft_wrap=True,
        highlight=False,
    )
