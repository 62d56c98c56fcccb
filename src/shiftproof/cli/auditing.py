"""`shiftproof audit` and `report`: the main job."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shiftproof.cli.application import FAILED, app, listed, numbers, one_of


@app.command()
def audit(
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="demo, file.py:build, torchvision:NAME, timm:NAME, model.onnx, a saved module or text model.",
        ),
    ] = "demo",
    data: Annotated[
        str,
        typer.Option(
            "--data",
            "-d",
            help="demo, a folder with one sub-folder per class, an .npz file, CIFAR files, or texts.csv.",
        ),
    ] = "demo",
    out: Annotated[Path, typer.Option("--out", "-o", help="Run directory; the same command resumes it.")] = Path(
        "shiftproof-audit"
    ),
    budget: Annotated[str, typer.Option(help="quick (1,000 images), standard (5,000) or full (all).")] = "quick",
    sections: Annotated[str, typer.Option(help="Sections to run, separated by commas. Default: all.")] = "",
    shifts: Annotated[str, typer.Option(help="Shifts or families, separated by commas. Default: common.")] = "",
    severities: Annotated[
        str, typer.Option(help="Severities in (0, 5], separated by commas. Default: 1,2,3,4,5.")
    ] = "",
    images: Annotated[int | None, typer.Option(help="Use this many images instead of the budget's.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random draw.")] = 0,
    methods: Annotated[str, typer.Option(help="Methods of adaptation, separated by commas. Default: by budget.")] = "",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")] = "auto",
    batch_size: Annotated[
        int | None, typer.Option(help="Images per forward pass. Default: 64 on a CPU, 256 on a GPU.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Weights for a reference network (safetensors or state dict).")
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="Resize the short side and crop the centre to this many pixels.")
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="CSV of labels (columns file, label) for a flat folder.")] = None,
    on_bad_file: Annotated[str, typer.Option(help="fail or skip, when an image cannot be read.")] = "fail",
    text_column: Annotated[
        str | None, typer.Option(help="Column of texts in a table, or two with a comma between them for pairs.")
    ] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of labels in a table of texts.")] = None,
    executor: Annotated[str, typer.Option(help="inline or processes.")] = "inline",
    workers: Annotated[int | None, typer.Option(help="Number of processes. Default: one per core.")] = None,
) -> None:
    """Audit a model: where it breaks, how badly. Writes report.html, results.json and results.csv."""
    from shiftproof.audits import audit as run
    from shiftproof.audits.terminal import Progress, summary

    one_of("--on-bad-file", on_bad_file, ("fail", "skip"))
    one_of("--executor", executor, ("inline", "processes"))
    options: dict[str, Any] = {"on_bad_file": on_bad_file, "executor": executor}
    with Progress() as progress:
        result = run(
            model,
            data,
            out=out,
            budget=budget,
            sections=listed(sections),
            shifts=listed(shifts),
            severities=numbers("--severities", severities),
            images=images,
            seed=seed,
            methods=listed(methods),
            device=device,
            batch_size=batch_size,
            weights=weights,
            size=size,
            labels=labels,
            text_column=text_column,
            label_column=label_column,
            workers=workers,
            command=shlex.join(["shiftproof", *sys.argv[1:]]),
            watch=progress.heard,
            **options,
        )
    summary(result)
    if result.failures:
        raise typer.Exit(FAILED)


@app.command()
def report(run_dir: Annotated[Path, typer.Argument(help="A folder that `shiftproof audit` wrote.")]) -> None:
    """Write the report of a run directory again, from what was measured so far."""
    from shiftproof.audits import reopen
    from shiftproof.audits.terminal import summary

    summary(reopen(run_dir))
