"""`shiftproof audit`, `report`, `gate` and `compare`: the main job."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftproof.cli import options
from shiftproof.cli.application import FAILED, GATED, app, listed, numbers
from shiftproof.cli.config import Config

if TYPE_CHECKING:
    from shiftproof.audits import Audit

Require = Annotated[
    list[str] | None,
    typer.Option(
        "--require", "-r", help="What must hold, such as 'mce < 70' or 'worst_case > 40%'; can be given again."
    ),
]
Junit = Annotated[Path | None, typer.Option("--junit", help="Also write whether what is required holds, as JUnit XML.")]
Run = Annotated[Path, typer.Argument(help="A folder that `shiftproof audit` wrote.")]


@app.command()
def audit(
    model: options.Model = "demo",
    data: options.Data = "demo",
    out: options.Out = Path("shiftproof-audit"),
    budget: Annotated[str, typer.Option(help="quick (1,000 images), standard (5,000) or full (all).")] = "quick",
    sections: Annotated[str, typer.Option(help="Sections to run, separated by commas. Default: all.")] = "",
    shifts: Annotated[str, typer.Option(help="Shifts or families, separated by commas. Default: common.")] = "",
    severities: Annotated[
        str, typer.Option(help="Severities in (0, 5], separated by commas. Default: 1,2,3,4,5.")
    ] = "",
    images: Annotated[int | None, typer.Option(help="Use this many images instead of the budget's.")] = None,
    seed: options.Seed = 0,
    methods: Annotated[str, typer.Option(help="Methods of adaptation, separated by commas. Default: by budget.")] = "",
    device: options.Device = "auto",
    amp: options.Amp = False,
    batch_size: options.BatchSize = None,
    weights: options.Weights = None,
    size: options.Size = None,
    labels: options.Labels = None,
    classes: options.Classes = "auto",
    on_bad_file: options.OnBadFile = "fail",
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    executor: options.Executor = "inline",
    workers: options.Workers = None,
    address: options.Address = None,
    gpus_per_worker: options.GpusPerWorker = None,
    require: Require = None,
    junit: Junit = None,
    config: Config = None,
) -> None:
    """Audit a model: where it breaks, how badly. Writes report.html, results.json and results.csv.

    Exit status 3 says that something required does not hold.
    """
    from shiftproof.audits import audit as run
    from shiftproof.cli.terminal import Progress, summary

    chosen: dict[str, Any] = {"on_bad_file": on_bad_file}
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
            amp=amp,
            batch_size=batch_size,
            weights=weights,
            size=size,
            labels=labels,
            classes=classes,
            text_column=text_column,
            label_column=label_column,
            executor=options.where(executor, workers, device, address, gpus_per_worker),
            require=require or (),
            junit=junit,
            command=shlex.join(["shiftproof", *sys.argv[1:]]),
            on_progress=progress.heard,
            on_plan=progress.on_plan,
            **chosen,
        )
    summary(result)
    _exit(result)


@app.command()
def report(run: Run) -> None:
    """Write the report of a run directory again, from what was measured so far.

    Exit status 1 says that cells failed or are missing.
    """
    from shiftproof.audits import reopen
    from shiftproof.cli.terminal import summary

    result = reopen(run)
    summary(result)
    _exit(result)


@app.command()
def gate(run: Run, require: Require = None, junit: Junit = None) -> None:
    """Check what is required of an audit that was made before.

    Exit status 3 says that something does not hold, and 1 that cells failed or are missing.
    """
    from shiftproof.audits import reopen
    from shiftproof.cli.terminal import show_checks

    result = reopen(run, require=require or (), junit=junit)
    show_checks(result)
    _exit(result)


@app.command()
def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders that `shiftproof audit` wrote; the first is the baseline.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the report.")] = Path("shiftproof-compare"),
) -> None:
    """Compare audits of the same images: what got better and worse, with intervals. Writes report.html."""
    from shiftproof.comparisons import compare as run
    from shiftproof.comparisons.audit_views import show

    show(run(*runs, out=out, command=shlex.join(["shiftproof", *sys.argv[1:]])))


def _exit(result: Audit) -> None:
    """End with the status that says how it went.

    Nothing is said to hold or not of an unfinished audit; else a requirement goes before a cell that failed.
    """
    if result.missing:
        raise typer.Exit(FAILED)
    if not result.passed:
        raise typer.Exit(GATED)
    if result.failures:
        raise typer.Exit(FAILED)
