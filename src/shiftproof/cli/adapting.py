"""`shiftproof adapt`: methods of adaptation side by side, under shifts or along an endless stream."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftproof.cli import options
from shiftproof.cli.application import FAILED, app, listed, one_of

if TYPE_CHECKING:
    from shiftproof.comparisons.methods import MethodComparison

STREAMS = ("ccc", "concatenated", "mixed", "correlated", "gradual")


@app.command()
def adapt(
    model: options.Model = "demo",
    data: options.Data = "demo",
    shift: options.Shift = None,
    method: Annotated[
        str, typer.Option("--method", help="Methods, separated by commas; `shiftproof list adapters` names them.")
    ] = "bn,tent,rdumb",
    stream: Annotated[
        str | None, typer.Option(help=f"Instead of shifts, a stream: {', '.join(STREAMS)}.", show_default=False)
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="ccc: the source model's accuracy along the stream: easy, medium, hard, or a number. "
            "Default: easy, or the calibration's.",
            show_default=False,
        ),
    ] = None,
    speed: Annotated[
        int | None,
        typer.Option(
            help="Streams: images per step. Default: 1,000 of ccc and gradual, or the calibration's; else all images.",
            show_default=False,
        ),
    ] = None,
    shifts: Annotated[str, typer.Option(help="Streams: shifts or families, separated by commas.")] = "",
    calibration: Annotated[
        Path | None, typer.Option(help="ccc: what `stream calibrate` wrote, file or folder.")
    ] = None,
    calibration_images: Annotated[
        int, typer.Option(help="ccc: images a pair of severities is measured on, at most.")
    ] = 4000,
    images: Annotated[
        int | None,
        typer.Option(
            help="Images to adapt to. Default: all; of ccc 100,000, or the calibration's.", show_default=False
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Images per batch.")] = 64,
    preset: Annotated[
        str | None, typer.Option(help="imagenet, imagenet_vit, cifar or cifar100. Default: by classes and layers.")
    ] = None,
    lr_scale: Annotated[float, typer.Option(help="Streams: learning rates times this.")] = 1.0,
    prior: Annotated[str | None, typer.Option(help="Shifts: prior of bn, a number of images or auto.")] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of every random draw. Default: 0; of ccc 43, or the calibration's.", show_default=False
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run directory; the same command resumes it.")] = None,
    device: options.Device = "auto",
    workers: Annotated[int, typer.Option(help="Streams: methods at a time, one process each.")] = 1,
    weights: options.Weights = None,
    size: options.Size = None,
    labels: options.Labels = None,
    classes: options.Classes = "auto",
    on_bad_file: options.OnBadFile = "fail",
) -> None:
    """Compare methods that adapt while serving: under shifts, or along a long stream, where some collapse."""
    from shiftproof.cli.terminal import Progress

    if (stream is None) == (not shift):
        raise typer.BadParameter("say what to adapt to: --shift fog@3 (again for more), or --stream ccc")
    methods = listed(method) or []
    given: dict[str, Any] = {
        "methods": methods,
        "batch_size": batch_size,
        "preset": preset,
        "device": device,
        "weights": weights,
        "size": size,
        "labels": labels,
        "classes": classes,
        "on_bad_file": on_bad_file,
    }
    with Progress() as progress:
        if stream is not None:
            one_of("--stream", stream, STREAMS)
            from shiftproof.comparisons.along_streams import compare_on_stream, show

            endurance = compare_on_stream(
                model,
                data,
                stream=stream,
                images=images,
                seed=seed,
                target=target,
                speed=speed,
                shifts=listed(shifts),
                lr_scale=lr_scale,
                calibration=calibration,
                calibration_images=calibration_images,
                workers=workers,
                out=out or "shiftproof-stream",
                on_progress=progress.heard,
                **given,
            )
        else:
            from shiftproof.comparisons.methods import compare_methods

            comparison = compare_methods(
                model,
                data,
                shifts=shift or (),
                images=images,
                seed=seed or 0,
                options={} if prior is None else {"prior": _prior(prior)},
                out=out or "shiftproof-adapt",
                on_progress=progress.heard,
                **given,
            )
    if stream is not None:
        show(endurance)
        return
    _show(comparison)
    if len(comparison.reasons) == len(comparison.methods):
        raise typer.Exit(FAILED)


def _prior(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise typer.BadParameter(f"--prior takes a number of images, or auto; got {text!r}") from None


def _show(found: MethodComparison) -> None:
    """Print a row per shift, the mean gain and the cost of each method, and why some did not apply."""
    from rich.console import Console
    from rich.table import Table

    from shiftproof.adapters import method

    console = Console()
    table = Table(title="Accuracy, %", title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("shift")
    for name in found.methods:
        table.add_column(name, justify="right")
    ran = {name: found.total(name) for name in found.methods if name not in found.reasons}
    learning = {name: counts for name, counts in ran.items() if method(name).needs_gradients}

    def add(title: str, cells: Mapping[str, str], fix: str = "") -> None:
        table.add_row(title, *(cells.get(name, fix) for name in found.methods))

    for shift in found.shifts:
        add(shift, {name: f"{100 * found.accuracies[name, shift].value:.1f}" for name in ran}, "-")
    table.add_section()
    add("points won", {name: f"{100 * (found.gain(name) or 0.0):+.1f}" for name in ran}, "does not apply")
    add("time per batch", {name: f"{found.costs[name]:.1f}x" for name in ran}, "-")
    add("updates", {name: f"{counts.updates:,} of {counts.batches:,}" for name, counts in learning.items()})
    add("resets", {name: f"{counts.resets:,}" for name, counts in learning.items()})
    console.print(table)
    for said in (*(f"{name}: {reason}" for name, reason in found.reasons.items()), *found.notes):
        console.print(said, markup=False, soft_wrap=True)
    console.print(f"\nnumbers  {found.folder / 'methods.json'}", markup=False, soft_wrap=True)
