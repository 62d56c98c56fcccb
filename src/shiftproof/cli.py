"""The command line: a thin shell over the same verbs, with the same option names.

Nothing heavy is imported until a command runs, so that `shiftproof --help` answers at once.
"""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from shiftproof.errors import ShiftproofError
from shiftproof.version import __version__

app = typer.Typer(
    name="shiftproof",
    help="Where a classifier breaks under distribution shift, how badly, what helps, and what is guaranteed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

FAILED, INTERRUPTED = 1, 130


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shiftproof {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Where a classifier breaks under distribution shift, how badly, what helps, and what is guaranteed."""
    # `--version` acts in its callback; `--debug` is taken by `main`, so that it works after a command too.


@app.command()
def audit(
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="demo, file.py:build, torchvision:NAME, timm:NAME, model.onnx, or a saved module."
        ),
    ] = "demo",
    data: Annotated[
        str,
        typer.Option(
            "--data", "-d", help="demo, a folder with one sub-folder per class, an .npz file, or CIFAR files."
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


@app.command()
def corrupt(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="A folder of images, or demo, an .npz or .npy file, CIFAR files.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of the copy; the same command resumes it.")],
    shift: Annotated[
        list[str] | None,
        typer.Option("--shift", "-s", help="fog@3, contrast=0.8, 'fog@3 + jpeg_compression@2'; can be given again."),
    ] = None,
    suite: Annotated[
        str | None, typer.Option(help="Instead of shifts: imagenet-c, imagenet-c-bar, cifar-c or cifar-c-bar.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random draw.")] = 0,
    file_format: Annotated[
        str | None, typer.Option("--format", help="png, jpg or same. Default: png; jpg for imagenet-c.")
    ] = None,
    quality: Annotated[int, typer.Option(help="Quality of JPEG files, 1 to 100.")] = 85,
    size: Annotated[
        int | None, typer.Option(help="Resize the short side and crop the centre to this many pixels.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Severities of imagenet or cifar. Default: by image size, or the suite's.")
    ] = None,
    textures: Annotated[Path | None, typer.Option(help="Folder of photographs for a suite's frost.")] = None,
    on_bad_file: Annotated[str, typer.Option(help="fail or skip, when an image cannot be read.")] = "fail",
    device: Annotated[
        str, typer.Option(help="cpu, on which every machine draws the same numbers; cuda, cuda:1 or auto.")
    ] = "cpu",
    executor: Annotated[str, typer.Option(help="inline or processes.")] = "inline",
    workers: Annotated[int | None, typer.Option(help="Number of processes. Default: one per core.")] = None,
) -> None:
    """Write a corrupted copy of a data set: files in the same folders, or arrays. Ends with a manifest.json."""
    from shiftproof.audits.bench import choose_device
    from shiftproof.audits.terminal import Progress
    from shiftproof.shifts.writing import write_corrupted

    one_of("--on-bad-file", on_bad_file, ("fail", "skip"))
    one_of("--executor", executor, ("inline", "processes"))
    options: dict[str, Any] = {"on_bad_file": on_bad_file, "executor": executor, "format": file_format}
    with Progress() as progress:
        written = write_corrupted(
            source,
            out,
            shifts=shift or (),
            suite=suite,
            seed=seed,
            quality=quality,
            size=size,
            preset=preset,
            textures=None if textures is None else str(textures),
            device=choose_device(device),
            workers=workers,
            watch=progress.heard,
            **options,
        )
    typer.echo(f"images    {written.images:,}, under {len(written.shifts)} shift{'s' * (len(written.shifts) > 1)}")
    if written.left_out:
        typer.echo(f"left out  {len(written.left_out)} that cannot be read; the manifest names them")
    typer.echo(f"manifest  {written.manifest}")


@app.command()
def preview(
    image: Annotated[Path | None, typer.Argument(help="An image file. Default: images of the demo.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="What to write: a .png or an .html file.")] = Path(
        "preview.png"
    ),
    family: Annotated[str, typer.Option(help="common, holdout or bar, or several separated by commas.")] = "common",
    severities: Annotated[str, typer.Option(help="Severities in [0, 5], separated by commas.")] = "1,3,5",
    seed: Annotated[int, typer.Option(help="Seed of every random draw.")] = 0,
) -> None:
    """Show an image under every shift, by severity, as a picture or a page."""
    from shiftproof.shifts.preview import preview as write

    written = write(
        image,
        out,
        families=listed(family) or (),
        severities=numbers("--severities", severities) or (),
        seed=seed,
    )
    typer.echo(f"preview  {written}")


@app.command("list")
def list_names(
    kind: Annotated[str, typer.Argument(help="shifts, adapters, sections, models or data.")],
) -> None:
    """List what there is: shifts, adapters, sections, models, data."""
    from shiftproof.audits import listing

    listing.show(kind)


def listed(text: str) -> list[str] | None:
    """Split an option's text at its commas; nothing is None."""
    return [part.strip() for part in text.split(",") if part.strip()] or None


def numbers(option: str, text: str) -> list[float] | None:
    """Read an option's numbers, separated by commas."""
    try:
        return [float(part) for part in listed(text) or ()] or None
    except ValueError:
        raise typer.BadParameter(f"{option} takes numbers separated by commas, such as 1,3,5; got {text!r}") from None


def one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not among the choices."""
    if value not in choices:
        raise typer.BadParameter(f"{option} is one of {', '.join(choices)}; got {value!r}")


def main() -> None:
    """Run a command; an error that a user can act on is one paragraph and an exit status, never a traceback."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    debug = "--debug" in sys.argv  # understood before or after the command
    try:
        app([argument for argument in sys.argv[1:] if argument != "--debug"])
    except ShiftproofError as error:
        if debug:
            raise
        typer.echo(f"shiftproof: {error}", err=True)
        sys.exit(FAILED)
    except _Interrupt:
        typer.echo(
            "shiftproof: interrupted. What was measured is saved; the same command goes on from there.", err=True
        )
        sys.exit(INTERRUPTED)


class _Interrupt(BaseException):
    """Ctrl-C or a request to end; of its own kind because the argument parser swallows KeyboardInterrupt."""


def _interrupt(*_: object) -> NoReturn:
    raise _Interrupt
