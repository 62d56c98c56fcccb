"""`shiftproof certify` and `spectrum`: what is guaranteed, and which frequencies a model leans on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shiftproof.cli import options
from shiftproof.cli.application import app, listed, numbers, one_of


@app.command()
def certify(
    sigma: Annotated[
        float, typer.Option(help="Standard deviation of the noise, on the [0, 1] scale of images; 2 at most.")
    ],
    model: options.Model = "demo",
    data: options.Data = "demo",
    shift: Annotated[
        list[str] | None,
        typer.Option("--shift", "-s", help="Certify shifted images, fog@3; can be given again. Default: clean ones."),
    ] = None,
    out: options.Out = Path("shiftproof-certificate"),
    rule: Annotated[
        str,
        typer.Option(help="sequential, fixed, or radius: is it at least --radius? ACR is that times the share."),
    ] = "sequential",
    radius: Annotated[float | None, typer.Option(help="The radius to ask for, with --rule radius.")] = None,
    images: options.Images = None,
    n0: Annotated[int, typer.Option("--n0", help="Samples that choose a class.")] = 100,
    n: Annotated[int, typer.Option("--n", help="Fresh samples that count it, at most.")] = 100_000,
    alpha: Annotated[float, typer.Option(help="Probability that a certificate is wrong, at most.")] = 0.001,
    seed: options.Seed = 0,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16: certify the model in it.")] = "float32",
    compile_: Annotated[bool, typer.Option("--compile", help="Compile the model first.")] = False,
    device: options.Device = "auto",
    batch_size: options.BatchSize = None,
    weights: options.Weights = None,
    size: options.Size = None,
    classes: options.Classes = "auto",
    labels: options.Labels = None,
    executor: options.Executor = "inline",
    workers: options.Workers = None,
    address: options.Address = None,
    gpus_per_worker: options.GpusPerWorker = None,
) -> None:
    """Certify a model by randomized smoothing: distances within which the smoothed model's class cannot change.

    The guarantee is the smoothed model's, served with noise and a vote, not the model's own. Writes a certificate.
    """
    from shiftproof.certificates import certify as run
    from shiftproof.certificates.certifying import file_name
    from shiftproof.certificates.telling import certified_table, verdict
    from shiftproof.cli.terminal import Progress
    from shiftproof.measures import mean_average_radius

    one_of("--dtype", dtype, ("float32", "bfloat16", "float16"))
    chosen: dict[str, Any] = {"dtype": dtype, "compile": compile_, "rule": rule}
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
                    images=images,
                    seed=seed,
                    device=device,
                    batch_size=batch_size,
                    weights=weights,
                    size=size,
                    classes=classes,
                    out=out,
                    executor=options.where(executor, workers, device, address, gpus_per_worker),
                    on_progress=progress.heard,
                    **chosen,
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
    model: options.Model = "demo",
    data: options.Data = "demo",
    out: options.Out = Path("shiftproof-spectrum"),
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
    seed: options.Seed = 0,
    device: options.Device = "auto",
    batch_size: options.BatchSize = None,
    weights: options.Weights = None,
    size: options.Size = None,
    classes: options.Classes = "auto",
    executor: options.Executor = "inline",
    workers: options.Workers = None,
    address: options.Address = None,
    gpus_per_worker: options.GpusPerWorker = None,
) -> None:
    """Measure a model by frequency: under single waves, under noise around a frequency. Writes spectrum.json."""
    from shiftproof.certificates import spectrum as run
    from shiftproof.certificates.telling import spectrum_table
    from shiftproof.cli.terminal import Progress

    one_of("--measure", measure, ("accuracy", "acr"))
    chosen: dict[str, Any] = {"measure": measure}
    with Progress() as progress:
        found = run(
            model,
            data,
            images=images,
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
            device=device,
            batch_size=batch_size,
            weights=weights,
            size=size,
            classes=classes,
            out=out,
            executor=options.where(executor, workers, device, address, gpus_per_worker),
            on_progress=progress.heard,
            **chosen,
        )
    typer.echo(spectrum_table(found))
    typer.echo(f"\nspectrum  {out / 'spectrum.json'}")
