"""`shiftproof stream`: calibrate, look at and write streams of changing shifts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftproof.cli import options
from shiftproof.cli.application import app, listed, one_of

if TYPE_CHECKING:
    from shiftproof.streams import Stream

stream = typer.Typer(help="Streams of changing shifts: calibrate, preview, write.", no_args_is_help=True)
app.add_typer(stream, name="stream")

ImagesOption = Annotated[
    int | None, typer.Option(help="Length of the stream in images. Default: the stream's own.", show_default=False)
]
SpeedOption = Annotated[
    int | None, typer.Option(help="Images per step of severity. Default: the stream's own.", show_default=False)
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", help="Seed of every draw. Default: the stream's own.", show_default=False)
]
ShiftsOption = Annotated[
    str, typer.Option(help="Shifts or families, separated by commas; holdout is for choosing hyper-parameters.")
]
KindOption = Annotated[str, typer.Option("--stream", help="ccc, concatenated, mixed, correlated or gradual.")]
CalibrationOption = Annotated[
    Path | None, typer.Option(help="ccc: what `stream calibrate` wrote. Default: severities in a straight line.")
]


@stream.command()
def calibrate(
    model: options.Model = "demo",
    data: options.Data = "demo",
    out: options.Out = Path("shiftproof-calibration"),
    target: Annotated[
        str, typer.Option(help="Accuracy of the model along the stream: easy, medium, hard, or a number such as 0.34.")
    ] = "easy",
    images: Annotated[int, typer.Option(help="Length of the stream in images.")] = 100_000,
    speed: Annotated[int, typer.Option(help="Images per step of severity.")] = 1000,
    seed: options.Seed = 43,
    shifts: ShiftsOption = "",
    calibration_images: Annotated[
        int, typer.Option(help="Images a pair of severities is measured on, at most.")
    ] = 4000,
    precision: Annotated[float, typer.Option(help="Standard error of accuracies on the paths.")] = 0.01,
    crop: Annotated[float | None, typer.Option(help="Least area of the random crops. Default: by image size.")] = None,
    steady: Annotated[
        float, typer.Option(help="Avoid pairs that cannot stay within this of the target; 1 avoids none, as published.")
    ] = 0.02,
    variant: Annotated[
        str, typer.Option(help="steady over any window, exact in a path's mean, or release: as the released generator.")
    ] = "steady",
    weights: options.Weights = None,
    size: options.Size = None,
    classes: options.Classes = "auto",
    device: options.Device = "auto",
    executor: options.Executor = "inline",
    workers: options.Workers = None,
    address: options.Address = None,
    gpus_per_worker: options.GpusPerWorker = None,
) -> None:
    """Measure how hard pairs of corruptions are for a model, as far as a CCC stream needs it."""
    from shiftproof.cli.terminal import Progress
    from shiftproof.streams import calibrate as measure
    from shiftproof.streams.ccc.stream_calibration import FILE

    one_of("--variant", variant, ("steady", "exact", "release"))
    chosen: dict[str, Any] = {"variant": variant}
    with Progress() as progress:
        found = measure(
            model,
            data,
            out=out,
            length=images,
            target=target,
            speed=speed,
            seed=seed,
            shifts=listed(shifts),
            images=calibration_images,
            precision=precision,
            crop=crop,
            steady=steady,
            device=device,
            executor=options.where(executor, workers, device, address, gpus_per_worker),
            model_options={"weights": weights},
            data_options={"size": size, "classes": classes},
            on_progress=progress.heard,
            **chosen,
        )
    mean = sum(map(found.accuracy, found.paths)) / len(found.paths)
    typer.echo(f"pairs        {len(found.paths)}, of {len(found.noises)} corruptions")
    typer.echo(f"accuracy     {100 * mean:.1f}% along their paths, for a target of {100 * found.target:.3g}%")
    for note in found.notes:
        typer.echo(f"note         {note}")
    typer.echo(f"calibration  {out / FILE}")


@stream.command()
def preview(
    out: Annotated[Path, typer.Option("--out", "-o", help="What to write: a .png or an .html file.")] = Path(
        "stream.png"
    ),
    kind: KindOption = "ccc",
    data: options.Data = "demo",
    images: ImagesOption = None,
    speed: SpeedOption = None,
    seed: SeedOption = None,
    shifts: ShiftsOption = "",
    calibration: CalibrationOption = None,
    rows: Annotated[int, typer.Option(help="Positions to show.")] = 12,
    size: options.Size = None,
) -> None:
    """Show images of a stream at evenly spread positions, as a picture or a page."""
    from shiftproof.exports.stream_previews import preview_stream

    made = _stream(kind, data, images, speed, seed, shifts, calibration, size, "cpu")
    typer.echo(f"preview  {preview_stream(made, out, rows=rows)}")


@stream.command()
def write(
    out: Annotated[Path, typer.Argument(help="Folder of the shards; the same command resumes it.")],
    kind: KindOption = "ccc",
    data: options.Data = "demo",
    images: ImagesOption = None,
    speed: SpeedOption = None,
    seed: SeedOption = None,
    shifts: ShiftsOption = "",
    calibration: CalibrationOption = None,
    file_format: Annotated[str, typer.Option("--format", help="png, or jpg, which loses a little.")] = "png",
    quality: options.Quality = 85,
    shard_images: Annotated[int, typer.Option(help="Images per tar file.")] = 10_000,
    size: options.Size = None,
    device: options.WritingDevice = "cpu",
    executor: options.Executor = "inline",
    workers: options.Workers = None,
) -> None:
    """Write a stream as tar files of images, labels and shifts, for programs that cannot read it on the fly."""
    from shiftproof.cli.terminal import Progress
    from shiftproof.exports.shards import write_shards
    from shiftproof.models import choose_device

    one_of("--format", file_format, ("png", "jpg"))
    chosen: dict[str, Any] = {"format": file_format, "executor": executor}
    with Progress() as progress:
        made = _stream(kind, data, images, speed, seed, shifts, calibration, size, choose_device(device))
        manifest = write_shards(
            made, out, quality=quality, shard_images=shard_images, workers=workers, on_progress=progress.heard, **chosen
        )
    typer.echo(f"images    {len(made):,}")
    for note in made.notes:
        typer.echo(f"note      {note}")
    typer.echo(f"manifest  {manifest}")


def _stream(
    kind: str,
    data: str,
    images: int | None,
    speed: int | None,
    seed: int | None,
    shifts: str,
    calibration: Path | None,
    size: int | None,
    device: str,
) -> Stream:
    """Make a stream from the options of a command."""
    from shiftproof.data import load_images
    from shiftproof.streams import StreamCalibration, make_stream

    staged: dict[str, Any] = {"speed": speed} if kind != "mixed" else {}
    if calibration is not None:
        if kind != "ccc":
            raise typer.BadParameter(f"--calibration goes with --stream ccc; got {kind}")
        staged["calibration"] = StreamCalibration.load(calibration)
    return make_stream(
        kind, load_images(data, size=size), length=images, seed=seed, shifts=listed(shifts), device=device, **staged
    )
