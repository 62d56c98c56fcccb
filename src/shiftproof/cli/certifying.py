"""`shiftproof certify` and `spectrum`: what is guaranteed, and which frequencies a model leans on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shiftproof.cli.application import app, listed, numbers, one_of


@app.command()
def certify(
    sigma: Annotated[float, typer.Option(help="Standard deviation of the noise, on the [0, 1] scale of images.")],
    model: Annotated[
        str, typer.Option("--model", "-m", help="demo, file.py:build, torchvision:NAME, timm:NAME, model.onnx.")
    ] = "demo",
    data: Annotated[
        str, typer.Option("--data", "-d", help="demo, a folder with one sub-folder per class, an .npz file, CIFAR.")
    ] = "demo",
    shift: Annotated[
        list[str] | None,
        typer.Option("--shift", "-s", help="Certify shifted images, fog@3; can be given again. Default: clean ones."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Run directory; the same command resumes it.")] = Path(
        "shiftproof-certificate"
    ),
    rule: Annotated[str, typer.Option(help="sequential, fixed, or radius: is it at least --radius?")] = "sequential",
    radius: Annotated[float | None, typer.Option(help="The radius to ask for, with --rule radius.")] = None,
    images: Annotated[int | None, typer.Option(help="Certify so many images. Default: all.")] = None,
    n0: Annotated[int, typer.Option("--n0", help="Samples that choose a class.")] = 100,
    n: Annotated[int, typer.Option("--n", help="Fresh samples that count it, at most.")] = 100_000,
    alpha: Annotated[float, typer.Option(help="Probability that a certificate is wrong, at most.")] = 0.001,
    seed: Annotated[int, typer.Option(help="Seed of every random draw.")] = 0,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16: certify the model in it.")] = "float32",
    compile_: Annotated[bool, typer.Option("--compile", help="Compile the model first.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")] = "auto",
    batch_size: Annotated[int | None, typer.Option(help="Noisy images per forward pass. Default: by device.")] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Weights for a reference network (safetensors or state dict).")
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="Resize the short side and crop the centre to this many pixels.")
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="CSV of labels (columns file, label) for a flat folder.")] = None,
    executor: Annotated[str, typer.Option(help="inline or processes.")] = "inline",
    workers: Annotated[int | None, typer.Option(help="Number of processes. Default: one per core.")] = None,
) -> None:
    """Certify a model by randomized smoothing: distances within which its class cannot change. Writes a certificate."""
    from shiftproof.audits.bench import choose_device
    from shiftproof.audits.terminal import Progress
    from shiftproof.certificates import certify as run
    from shiftproof.certificates.certifying import file_name
    from shiftproof.certificates.telling import certified_table, verdict
    from shiftproof.measures import mean_average_radius

    one_of("--executor", executor, ("inline", "processes"))
    one_of("--dtype", dtype, ("float32", "bfloat16", "float16"))
    options: dict[str, Any] = {"executor": executor, "dtype": dtype, "compile": compile_, "rule": rule}
    found = []
    for changed in shift or (None,):
        with Progress() as progress:
            found.append(
                run(
                    model,
                    data,
                    labels,
                    sigma=sigma,
                    radius=radius,
                    n0=n0,
                    n=n,
                    alpha=alpha,
                    shift=changed,
                    take=images,
                    seed=seed,
                    device=choose_device(device),
                    batch_size=batch_size,
                    weights=weights,
                    size=size,
                    out=out,
                    workers=workers,
                    watch=progress.heard,
                    **options,
                )
            )
    typer.echo(verdict(found[0]))
    typer.echo()
    typer.echo(certified_table(found))
    typer.echo()
    if len(found) > 1:
        typer.echo(f"mACR         {mean_average_radius({each.terms.shift: each.radii for each in found}).value:.4f}")
    for each in found:
        typer.echo(f"certificate  {out / file_name(each.terms.shift)}")


@app.command()
def spectrum(
    model: Annotated[
        str, typer.Option("--model", "-m", help="demo, file.py:build, torchvision:NAME, timm:NAME, model.onnx.")
    ] = "demo",
    data: Annotated[
        str, typer.Option("--data", "-d", help="demo, a folder with one sub-folder per class, an .npz file, CIFAR.")
    ] = "demo",
    out: Annotated[Path, typer.Option("--out", "-o", help="Run directory; the same command resumes it.")] = Path(
        "shiftproof-spectrum"
    ),
    measure: Annotated[str, typer.Option(help="accuracy, or acr: the average certified radius.")] = "accuracy",
    images: Annotated[int, typer.Option(help="Images for each frequency.")] = 200,
    eps: Annotated[float, typer.Option(help="L2 norm of a wave, in each channel.")] = 4.0,
    step: Annotated[int, typer.Option(help="Measure frequencies that are multiples of this.")] = 1,
    alphas: Annotated[str, typer.Option(help="Powers of the noise around a frequency.")] = "0.5,1,2,3",
    strengths: Annotated[str, typer.Option(help="L2 norms of that noise; values are averaged over them.")] = "8,10,12",
    corruptions: Annotated[str, typer.Option(help="Corruptions whose amplitudes are told. Default: common.")] = "",
    severity: Annotated[float, typer.Option(help="Their severity.")] = 3.0,
    sigma: Annotated[float, typer.Option(help="With --measure acr: standard deviation of the noise.")] = 0.25,
    n0: Annotated[int, typer.Option("--n0", help="With --measure acr: samples that choose a class.")] = 100,
    n: Annotated[int, typer.Option("--n", help="With --measure acr: samples that count it, at most.")] = 10_000,
    alpha: Annotated[float, typer.Option(help="Probability that a certificate is wrong, at most.")] = 0.001,
    seed: Annotated[int, typer.Option(help="Seed of every random draw.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")] = "auto",
    batch_size: Annotated[int | None, typer.Option(help="Images per forward pass. Default: by device.")] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Weights for a reference network (safetensors or state dict).")
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="Resize the short side and crop the centre to this many pixels.")
    ] = None,
    executor: Annotated[str, typer.Option(help="inline or processes.")] = "inline",
    workers: Annotated[int | None, typer.Option(help="Number of processes. Default: one per core.")] = None,
) -> None:
    """Measure a model by frequency: under single waves, under noise around a frequency. Writes spectrum.json."""
    from shiftproof.audits.bench import choose_device
    from shiftproof.audits.terminal import Progress
    from shiftproof.certificates import spectrum as run
    from shiftproof.certificates.telling import spectrum_table

    one_of("--executor", executor, ("inline", "processes"))
    one_of("--measure", measure, ("accuracy", "acr"))
    options: dict[str, Any] = {"executor": executor, "measure": measure}
    with Progress() as progress:
        found = run(
            model,
            data,
            take=images,
            eps=eps,
            step=step,
            alphas=numbers("--alphas", alphas) or (),
            strengths=numbers("--strengths", strengths) or (),
            corruptions=listed(corruptions),
            severity=severity,
            sigma=sigma,
            n0=n0,
            n=n,
            alpha=alpha,
            seed=seed,
            device=choose_device(device),
            batch_size=batch_size,
            weights=weights,
            size=size,
            out=out,
            workers=workers,
            watch=progress.heard,
            **options,
        )
    typer.echo(spectrum_table(found))
    typer.echo(f"\nspectrum  {out / 'spectrum.json'}")
