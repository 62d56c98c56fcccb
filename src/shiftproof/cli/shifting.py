"""`shiftproof corrupt` and `preview`: shifted copies of images, to keep or to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shiftproof.cli import options
from shiftproof.cli.application import app, listed, numbers


@app.command()
def corrupt(
    source: Annotated[
        str,
        typer.Argument(metavar="IN", help="A folder of images, or demo, an .npz or .npy file, CIFAR files, texts.csv."),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of the copy; the same command resumes it.")],
    shift: options.Shift = None,
    suite: Annotated[
        str | None, typer.Option(help="Instead of shifts: imagenet-c, imagenet-c-bar, cifar-c or cifar-c-bar.")
    ] = None,
    seed: options.Seed = 0,
    file_format: Annotated[
        str | None,
        typer.Option("--format", help="png, jpg or same; csv, tsv or jsonl. Default: png; jpg for imagenet-c."),
    ] = None,
    quality: options.Quality = 85,
    size: options.Size = None,
    preset: Annotated[
        str | None, typer.Option(help="Severities of imagenet or cifar. Default: by image size, or the suite's.")
    ] = None,
    textures: Annotated[Path | None, typer.Option(help="Folder of photographs for a suite's frost.")] = None,
    on_bad_file: options.OnBadFile = "fail",
    device: options.WritingDevice = "cpu",
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    executor: options.Executor = "inline",
    workers: options.Workers = None,
) -> None:
    """Write a corrupted copy of a data set: files in the same folders, or arrays. Ends with a manifest.json."""
    from shiftproof.cli.terminal import Progress
    from shiftproof.data.text.loading import is_text_source
    from shiftproof.exports.writing import write_corrupted

    chosen: dict[str, Any] = {"on_bad_file": on_bad_file, "executor": executor, "format": file_format}
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
            device=device,
            workers=workers,
            text_column=text_column,
            label_column=label_column,
            on_progress=progress.heard,
            **chosen,
        )
    kind = "texts" if is_text_source(source) else "images"
    typer.echo(f"{kind:<9} {written.images:,}, under {len(written.shifts)} shift{'s' * (len(written.shifts) > 1)}")
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
    seed: options.Seed = 0,
) -> None:
    """Show an image under every shift, by severity, as a picture or a page."""
    from shiftproof.exports.previews import preview as write

    written = write(
        image,
        out,
        families=listed(family) or (),
        severities=numbers("--severities", severities) or (),
        seed=seed,
    )
    typer.echo(f"preview  {written}")
