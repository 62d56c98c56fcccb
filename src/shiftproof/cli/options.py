"""Options that several commands share: one name, one meaning and one text for each, whatever the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from shiftproof.runs import Executor as Where


def among(*choices: str) -> Callable[[str], str]:
    """Return a callback that refuses a value which is not among the choices."""

    def check(value: str) -> str:
        if value not in choices:
            raise typer.BadParameter(f"it is one of {', '.join(choices)}; got {value!r}")
        return value

    return check


def where(
    executor: str, workers: int | None, device: str, address: str | None = None, gpus_per_worker: float | None = None
) -> Where:
    """Return the executor that the options describe."""
    from shiftproof.models import choose_device
    from shiftproof.runs import choose_executor

    device = choose_device(device)
    return choose_executor(executor, workers, device=device, address=address, gpus_per_worker=gpus_per_worker)


Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="demo, file.py:build, torchvision:NAME, timm:NAME, model.onnx, a saved module or text model.",
    ),
]
Data = Annotated[
    str,
    typer.Option(
        "--data", "-d", help="demo, a folder with one sub-folder per class, an .npz file, CIFAR files, or texts.csv."
    ),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Run directory; the same command resumes it.")]
Images = Annotated[int | None, typer.Option("--images", help="Use this many images. Default: all.")]
Shift = Annotated[
    list[str] | None,
    typer.Option("--shift", "-s", help="fog@3, contrast=0.8, 'fog@3 + jpeg_compression@2'; can be given again."),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of every random draw.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1.")]
WritingDevice = Annotated[
    str,
    typer.Option("--device", help="cpu, on which every machine draws the same numbers; cuda, cuda:1 or auto."),
]
Amp = Annotated[bool, typer.Option("--amp", help="Let the model compute in bfloat16 where PyTorch deems it safe.")]
BatchSize = Annotated[int | None, typer.Option("--batch-size", help="Images per forward pass. Default: by device.")]
Weights = Annotated[
    Path | None, typer.Option("--weights", help="Weights for a reference network (safetensors or state dict).")
]
Size = Annotated[
    int | None, typer.Option("--size", help="Resize the short side and crop the centre to this many pixels.")
]
Labels = Annotated[Path | None, typer.Option("--labels", help="CSV of labels (columns file, label) for a flat folder.")]
Classes = Annotated[
    str,
    typer.Option(
        "--classes",
        help="File of the model's class names, one a line, in the order of its outputs. Default: matched by name.",
        show_default=False,
    ),
]
OnBadFile = Annotated[
    str,
    typer.Option("--on-bad-file", help="fail or skip, when an image cannot be read.", callback=among("fail", "skip")),
]
TextColumn = Annotated[
    str | None,
    typer.Option("--text-column", help="Column of texts in a table, or two with a comma between them for pairs."),
]
LabelColumn = Annotated[str | None, typer.Option("--label-column", help="Column of labels in a table of texts.")]
Executor = Annotated[
    str,
    typer.Option(
        "--executor",
        help="inline, processes, processes:4, ray or ray:16.",
        callback=lambda value: among("inline", "processes", "ray")(value.partition(":")[0]) and value,
    ),
]
Workers = Annotated[
    int | None, typer.Option("--workers", help="Number of worker processes. Default: one per core or GPU.")
]
Address = Annotated[
    str | None,
    typer.Option("--address", help="Of a Ray cluster: auto, ray://HOST:10001. Default: RAY_ADDRESS, or this machine."),
]
GpusPerWorker = Annotated[
    float | None, typer.Option("--gpus-per-worker", help="With ray: GPUs of each worker, such as 0.5. Default: 1.")
]
Quality = Annotated[int, typer.Option("--quality", help="Quality of JPEG files, 1 to 100.")]


def pairs(texts: list[str], example: str) -> dict[str, str]:
    """Read settings written name=value."""
    found = dict[str, str]()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"--option takes name=value, such as {example}; got {text!r}")
        found[name.strip()] = value.strip()
    return found
