"""`shiftproof search`: the worst case over transformation tuples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftproof.cli import options
from shiftproof.cli.application import FAILED, app

if TYPE_CHECKING:
    from shiftproof.searchers import Search, Trial


@app.command()
def search(
    model: options.Model = "demo",
    data: options.Data = "demo",
    space: Annotated[
        str, typer.Option(help="mnist, cifar, camvid, faces, geometric, corruptions, or a JSON file of your own.")
    ] = "cifar",
    length: Annotated[int, typer.Option(help="Operations in a tuple.")] = 5,
    searcher: Annotated[
        str, typer.Option(help="random, evolution, racing, optuna, cma, or a package's.")
    ] = "evolution",
    budget: Annotated[int, typer.Option(help="Tuples to try.")] = 1000,
    seed: options.Seed = 0,
    images: options.Images = None,
    fitness: Annotated[
        str, typer.Option(help="accuracy, detection_rate, or with --targets pixel_accuracy, mean_iou.")
    ] = "accuracy",
    targets: Annotated[
        Path | None, typer.Option(help="Label maps for segmentation: a .npy file of whole numbers [N, H, W].")
    ] = None,
    ignore: Annotated[int | None, typer.Option(help="The class of pixels that do not count, with --targets.")] = None,
    similarity: Annotated[
        float | None, typer.Option(help="Keep the content: least mean structural similarity, such as 0.8.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Keep the content: a model that must still agree with itself.")
    ] = None,
    agreement: Annotated[
        float | None, typer.Option(help="Least share of images the reference agrees on. Default: 0.9.")
    ] = None,
    variant: Annotated[
        str | None, typer.Option(help="Of evolution: ranked, paper or release. Default: ranked.")
    ] = None,
    population: Annotated[int | None, typer.Option(help="Of evolution: tuples per generation. Default: 10.")] = None,
    mutation: Annotated[float | None, typer.Option(help="Of evolution: rate of mutation. Default: 0.1.")] = None,
    sampler: Annotated[str | None, typer.Option(help="Of optuna: tpe or nsgaii. Default: tpe.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-O", help="A setting of the searcher, such as keep=4; can be given again."),
    ] = None,
    out: options.Out = Path("shiftproof-search"),
    device: options.Device = "auto",
    batch_size: options.BatchSize = None,
    weights: options.Weights = None,
    size: options.Size = None,
    labels: options.Labels = None,
    classes: options.Classes = "auto",
    executor: options.Executor = "inline",
    workers: options.Workers = None,
    address: options.Address = None,
    gpus_per_worker: options.GpusPerWorker = None,
) -> None:
    """Search for the tuple of image operations a model is most vulnerable to. Writes search.json and worst.png."""
    from shiftproof.cli.terminal import Progress
    from shiftproof.data.images.arrays import read_array
    from shiftproof.searchers import search as run

    own = {"variant": variant, "population": population, "mutation": mutation, "sampler": sampler}
    chosen: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
    chosen |= options.pairs(option or [], "keep=4")
    with Progress() as progress:
        found = run(
            model,
            data,
            space=space,
            length=length,
            searcher=searcher,
            budget=budget,
            seed=seed,
            images=images,
            fitness=fitness,
            targets=None if targets is None else read_array(targets),
            ignore=ignore,
            similarity=similarity,
            agreement=agreement,
            reference=reference,
            out=out,
            device=device,
            batch_size=batch_size,
            weights=weights,
            size=size,
            labels=labels,
            classes=classes,
            executor=options.where(executor, workers, device, address, gpus_per_worker),
            on_progress=progress.heard,
            **chosen,
        )
    _summary(found, out)
    if found.trace.failures:
        raise typer.Exit(FAILED)


def _summary(found: Search, out: Path) -> None:
    """Print what was found and where it is."""
    trace, best, kept = found.trace, found.best, found.best_admissible
    lines = [("clean", f"{found.fitness} {found.clean:.3f} on {found.images:,} images")]
    lines.append(("worst", _under(found, best)))
    if found.constraint:
        lines.append(("keeping the content", "no tuple that was tried" if kept is None else _under(found, kept)))
    if found.quantile is not None:
        lines.append(("0.1% of tuples", f"{found.quantile:.3f} or less"))
    whole = len(list(trace.full()))
    part = f", {whole:,} of them on all images" if any(trial.images is not None for trial in trace.trials) else ""
    lines.append(("evaluations", f"{trace.evaluations:,} of {trace.space.size(trace.length):.3g} tuples{part}"))
    if trace.failures:
        lines.append(("failed", f"{len(trace.failures)} tuples; the same command tries them again"))
        lines.append(("", str(trace.failures[0].score.error).splitlines()[0]))
    lines.append(("result", f"{out / 'search.json'}"))
    lines.append(("pictures", f"{out / 'worst.png'}"))
    margin = max(len(name) for name, _ in lines)
    for name, text in lines:
        typer.echo(f"{name:<{margin}}  {text}")


def _under(found: Search, trial: Trial) -> str:
    """Say what a tuple brings the model to, or that none that was tried brings it lower than it is."""
    if not trial.genes:
        return f"nothing worse than clean was found: no tuple that was tried brings it below {found.clean:.3f}"
    return f"{trial.score.fitness:.3f} under {found.trace.space.words(trial.genes)}"
