"""`shiftproof train`: robust training, one loop and every recipe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftproof.cli import options
from shiftproof.cli.application import app

if TYPE_CHECKING:
    from shiftproof.runs import Row


@app.command()
def train(
    data: Annotated[
        str, typer.Option("--data", "-d", help="Labelled images: a folder, an .npz file, CIFAR files, or demo.")
    ],
    model: Annotated[
        str, typer.Option("--model", "-m", help="resnet20, resnet110, wrn16_4, convnet, file.py:build, a folder, demo.")
    ] = "resnet20",
    recipe: Annotated[
        str, typer.Option("--recipe", "-r", help="erm, gaussian, augmix+jsd, fouriermix+hcr, esda, ...")
    ] = "erm",
    sigma: Annotated[
        float | None, typer.Option(help="Standard deviation of the noise. Default: 0.25, where a recipe has noise.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-O", help="A setting of the recipe, such as lam=20; can be given again."),
    ] = None,
    out: options.Out = Path("shiftproof-train"),
    validation: Annotated[
        str | None, typer.Option(help="Images to take the accuracy on at every checkpoint, with noise where there is.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data. Default: 200.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images of a step, over all devices. Default: 256.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate. Default: 0.1.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd or adam. Default: sgd.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Default: 1e-4.")] = None,
    schedule: Annotated[str | None, typer.Option(help="step, cosine or constant. Default: step.")] = None,
    warmup: Annotated[float | None, typer.Option(help="Epochs over which the learning rate rises.")] = None,
    clip: Annotated[float | None, typer.Option(help="Largest norm of the gradient.")] = None,
    ema: Annotated[float | None, typer.Option(help="Decay of an average of the weights, such as 0.999.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, float32 or bf16. Default: bf16 on CUDA.")] = None,
    framing: Annotated[
        str | None, typer.Option(help="A shift every image goes through first. Default: pad_crop; none for none.")
    ] = None,
    images: options.Images = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    weights: options.Weights = None,
    size: options.Size = None,
    labels: options.Labels = None,
    classes: options.Classes = "auto",
    split: Annotated[str | None, typer.Option(help="The part of the data to train on, such as train.")] = None,
    workers: Annotated[int, typer.Option(help="Processes that decode images, where they are not held.")] = 0,
    log_every: Annotated[int | None, typer.Option(help="Steps between two lines of the log. Default: 50.")] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Steps between two checkpoints. Default: an epoch.")
    ] = None,
) -> None:
    """Train a network robustly. Writes model.safetensors, which `--model DIR` loads, and log.jsonl."""
    from shiftproof.cli.terminal import Progress
    from shiftproof.training import train as run

    settings: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "optimizer": optimizer,
        "weight_decay": weight_decay,
        "schedule": schedule,
        "warmup": warmup,
        "clip": clip,
        "ema": ema,
        "precision": precision,
        "framing": "" if framing == "none" else framing,
        "seed": seed,
        "log_every": log_every,
        "checkpoint_every": checkpoint_every,
    }
    quiet = os.environ.get("RANK", "0") != "0"  # of several processes, one speaks
    with Progress(quiet=quiet) as progress:
        trained = run(
            model,
            data,
            recipe=recipe,
            sigma=sigma,
            options=options.pairs(option or [], "lam=20"),
            out=out,
            validation=validation,
            device=device,
            weights=weights,
            images=images,
            size=size,
            labels=labels,
            classes=classes,
            split=split,
            workers=workers,
            on_progress=lambda step, steps, row: progress.show(step, steps, _told(row)),
            **settings,
        )
    if quiet:
        return
    row = trained.to_row()
    lines = [("recipe", f"{trained.recipe}, sigma {trained.sigma:g}" if trained.sigma else trained.recipe)]
    lines += [("trained", f"{row['steps']:,} steps"), ("loss", f"{trained.loss:.4f}")]
    if trained.accuracy is not None:
        under = f" under noise of sigma {trained.sigma:g}, {trained.clean_accuracy:.4f} clean," if trained.sigma else ""
        lines.append(("accuracy", f"{trained.accuracy:.4f}{under} on {validation}"))
    lines += [("tuple", text) for text in trained.tuples]
    lines += [("model", f"{out / 'model.safetensors'}"), ("log", f"{out / 'log.jsonl'}")]
    what = f"certify --sigma {trained.sigma:g} --images 100" if trained.sigma else "audit"
    lines.append(("next", f"shiftproof {what} --model {out} --data {validation or data}"))
    for name, text in lines:
        typer.echo(f"{name:<9} {text}")


def _told(row: Row | None) -> str:
    """Say how far training is."""
    return "training" if row is None else f"epoch {float(str(row['epoch'])):.1f} loss {float(str(row['loss'])):.4f}"
