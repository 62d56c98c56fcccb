"""What a person at a terminal sees of what verbs return."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from shiftproof.certificates.certification import Certification
from shiftproof.certificates.certifying import file_name
from shiftproof.certificates.certifying_maps import FILE as MAPS_FILE
from shiftproof.certificates.certifying_maps import MapCertification
from shiftproof.certificates.spectrum_result import Spectrum
from shiftproof.certificates.suite import FILE as SUITE_FILE
from shiftproof.certificates.suite import CertifiedSuite
from shiftproof.certificates.telling import (
    GROUPED,
    certified_maps_table,
    certified_table,
    spectrum_table,
    suite_table,
    verdict,
)
from shiftproof.cli.application import FAILED
from shiftproof.cli.terminal import escape
from shiftproof.data import DataSpec
from shiftproof.estimators import Estimate
from shiftproof.estimators.estimating import FILE as ESTIMATE_FILE
from shiftproof.exports.writing import Written
from shiftproof.models.denoising import DENOISER
from shiftproof.searchers import Search, Trial
from shiftproof.streams import StreamCalibration
from shiftproof.streams.ccc.stream_calibration import FILE as CALIBRATION_FILE
from shiftproof.training import Trained
from shiftproof.training.denoiser_training import DenoiserInTraining
from shiftproof.training.splitting import other_split, share_of


def show_estimate(result: Estimate, given: Mapping[str, Any]) -> None:
    """Print the estimate, its caveats, and every method's with how far off it is on shifts it has not seen."""
    console = Console()
    between = f"{100 * result.low:.1f} to {100 * result.high:.1f}%"
    if result.unlike:
        told = f"unlike anything calibrated on: {result.measure} [bold]between {between.replace(' to ', ' and ')}[/]"
    else:
        told = f"estimated {result.measure} [bold]{100 * result.accuracy:.1f}%[/] ({between}, {_holds(result)})"
    doubt = "" if result.trusted else ": not to be trusted"
    console.print(f"\n{told}, by {result.method} on {result.inputs:,} inputs{doubt}\n", soft_wrap=True, highlight=False)
    for mark, said in (
        *(("yellow]watch", one) for one in result.warnings),
        *(("cyan]note", one) for one in result.notes),
    ):
        console.print(f"  [{mark}[/] {escape(said)}", soft_wrap=True, highlight=False)
    if result.warnings or result.notes:
        console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    maps = result.measure != "accuracy"
    for title in (
        "method",
        "estimate" if maps else "accuracy",
        "interval",
        "error on unseen families",
        "in family",
        "trusted",
    ):
        table.add_column(
            title, justify="left" if title == "method" else "right", no_wrap=title in ("method", "interval")
        )
    ranked = sorted(
        (result, *result.others),
        key=lambda one: (one is not result, one.measure != result.measure, one.error is None, one.error),
    )
    for one in ranked:
        table.add_row(
            f"{one.measure}, {one.method}" if maps else one.method,
            f"{100 * one.accuracy:.1f}",
            f"{100 * one.low:.1f} to {100 * one.high:.1f}",
            "" if one.error is None else f"{100 * one.error:.1f}",
            "" if one.in_family is None else f"{100 * one.in_family:.1f}",
            "yes" if one.trusted else "no",
        )
    console.print(table)
    if result.by_class:
        console.print(_class_table(result))
    console.print(
        "Errors are mean absolute errors in points: on families of shifts left out of the calibration, and on new "
        "shifts of families in it. The interval is for shifts as different from those as they are from one another.",
        soft_wrap=True,
        highlight=False,
    )
    if given.get("out") is not None:
        console.print(f"numbers  {Path(given['out']) / ESTIMATE_FILE}", markup=False, soft_wrap=True)


def _holds(result: Estimate) -> str:
    if result.error is None:
        return f"{100 * result.level:.0f}%, for the sampling of inputs alone"
    return f"holds for {100 * result.level:.0f}% of shifts of unseen families"


def _class_table(result: Estimate) -> Table:
    """Return the figures of classes."""
    table = Table(title="Estimates per class", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for title in ("class", "inputs", "recall", "precision", "F1"):
        table.add_column(title, justify="left" if title == "class" else "right")
    for one in result.by_class:
        figures = ["" if each is None else f"{100 * each:.1f}" for each in (one.recall, one.precision, one.f1)]
        table.add_row(escape(one.name), f"{one.support:.0f}", *figures)
    return table


def show_search(found: Search, given: Mapping[str, Any]) -> None:
    """Print what was found and where it is."""
    out = Path(given["out"])
    trace, best, kept = found.trace, found.best, found.best_admissible
    lines = [("clean", f"{found.fitness} {found.clean:.3f} on {found.images:,} images")]
    lines.append(("worst", _under(found, best)))
    if found.constraint:
        lines.append(("preserving content", "no chain found" if kept is None else _under(found, kept)))
    if found.quantile is not None:
        lines.append(("0.1% of chains", f"{found.quantile:.3f} or less"))
    whole = len(list(trace.full()))
    part = f", {whole:,} of them on all images" if any(trial.images is not None for trial in trace.trials) else ""
    lines.append(("evaluations", f"{trace.evaluations:,} of {trace.space.size(trace.length):.3g} chains{part}"))
    if trace.failures:
        lines.append(("failed", f"{len(trace.failures)} chains; run the same command to try them again"))
        lines.append(("", str(trace.failures[0].score.error).splitlines()[0]))
    lines.append(("result", f"{out / 'search.json'}"))
    lines.append(("pictures", f"{out / 'worst.png'}"))
    margin = max(len(name) for name, _ in lines)
    for name, text in lines:
        typer.echo(f"{name:<{margin}}  {text}")
    if trace.failures:
        raise typer.Exit(FAILED)


def _under(found: Search, trial: Trial) -> str:
    """Say what a chain brings the model to, or that none that was tried brings it lower than it is."""
    if not trial.genes:
        return f"no chain found that is worse than clean ({found.clean:.3f})"
    return f"{trial.score.fitness:.3f} under {found.trace.space.words(trial.genes)}"


def show_certificates(found: Certification | CertifiedSuite | MapCertification, given: Mapping[str, Any]) -> None:
    """Print what was certified, clean or under each shift, and where the certificates are."""
    out = Path(given["out"])
    if isinstance(found, MapCertification):
        typer.echo(f"{certified_maps_table(found)}\n\ncertificate  {out / MAPS_FILE}")
        return
    if isinstance(found, Certification):
        typer.echo(f"{verdict(found)}\n\n{certified_table([found])}\n")
        typer.echo(f"certificate  {out / file_name(found.terms.shift)}")
        return
    typer.echo(f"{verdict(found.clean or found.parts[0])}\n\n{suite_table(found)}\n")
    typer.echo(f"numbers       {out / SUITE_FILE}")
    if len(found.parts) > GROUPED:
        typer.echo(f"certificates  {len(found.parts)} in {out}")
        return
    for each in found.parts:
        typer.echo(f"certificate   {out / file_name(each.terms.shift)}")


def show_spectrum(found: Spectrum, given: Mapping[str, Any]) -> None:
    """Print values by band of frequencies."""
    typer.echo(f"{spectrum_table(found)}\n\nspectrum  {Path(given['out']) / 'spectrum.json'}")


def show_calibration(found: StreamCalibration, given: Mapping[str, Any]) -> None:
    """Print how near paths come to the target."""
    mean = sum(map(found.accuracy, found.paths)) / len(found.paths)
    typer.echo(f"pairs        {len(found.paths)}, of {len(found.noises)} corruptions")
    typer.echo(f"accuracy     {100 * mean:.1f}% along their paths, for a target of {100 * found.target:.3g}%")
    for note in found.notes:
        typer.echo(f"note         {note}")
    typer.echo(f"calibration  {Path(given['out']) / CALIBRATION_FILE}")


def show_copy(written: Written, _: Mapping[str, Any]) -> None:
    """Print what was copied."""
    typer.echo(f"inputs    {written.images:,}, under {len(written.shifts)} shift{'s' * (len(written.shifts) > 1)}")
    if written.masks:
        without = written.images - written.masks
        typer.echo(f"masks     {written.masks:,}" + f"; images without one: {without:,}" * (without > 0))
    if written.beside:
        typer.echo(f"copied    {written.beside:,} other file{'s' * (written.beside > 1)}")
    if written.left_out:
        typer.echo(f"left out  {len(written.left_out)} that cannot be read; the manifest names them")
    typer.echo(f"manifest  {written.manifest}")


def show_shards(manifest: Path, _: Mapping[str, Any]) -> None:
    """Print how long the stream is, and what has to be said of it."""
    content = json.loads(manifest.read_text("utf-8"))
    typer.echo(f"images    {content['images']:,}")
    for note in content.get("notes", ()):
        typer.echo(f"note      {note}")
    typer.echo(f"manifest  {manifest}")


def show_preview(path: Path, _: Mapping[str, Any]) -> None:
    """Print where the picture is."""
    typer.echo(f"preview  {path}")


def show_training(trained: Trained, given: Mapping[str, Any]) -> None:
    """Print how training went, where the model is, and what to do with it; of several processes, one speaks."""
    if os.environ.get("RANK", "0") != "0":
        return
    row, out = trained.to_row(), Path(given["out"])
    validation = _given(given.get("validation"))
    share = share_of(validation)
    lines = [("recipe", f"{trained.recipe}, sigma {trained.sigma:g}" if trained.sigma else trained.recipe)]
    kept = "" if trained.kept is None else f", kept the weights of step {trained.kept:,}"
    lines += [("trained", f"{row['steps']:,} steps{kept}"), ("loss", f"{trained.loss:.4f}")]
    if trained.accuracy is not None:
        under = f" under noise of sigma {trained.sigma:g}, {trained.clean_accuracy:.4f} clean," if trained.sigma else ""
        lines.append(
            (
                "accuracy",
                f"{trained.accuracy:.4f}{under} on {validation if share is None else f'{share:.0%} of the data'}",
            )
        )
    lines += [("chain", text) for text in trained.tuples]
    denoiser = isinstance(trained.model, DenoiserInTraining)
    made = DENOISER if denoiser else "model.safetensors"
    lines += [("denoiser" if denoiser else "model", f"{out / made}"), ("log", f"{out / 'log.jsonl'}")]
    what = f"certify --sigma {trained.sigma:g} --images 100" if trained.sigma else "audit"
    which = f"--model {_given(given['model'])} --denoiser {out}" if denoiser else f"--model {out}"
    trained_on, other = given["data"], given.get("validation")
    where = trained_on if other is None or share is not None else other_split(other, trained_on)
    if where == trained_on:
        lines.append(("note", f"{_given(trained_on)} was trained on: measure on other images"))
    lines.append(("next", f"shiftproof {what} {which} {_data_options(where)}"))
    for name, text in lines:
        typer.echo(f"{name:<9} {text}")


def _data_options(data: object) -> str:
    """Return how a command says data, and how they are loaded."""
    loaded = data.options if isinstance(data, DataSpec) else {}
    options = (text for name, value in loaded.items() for text in (f"--{name.replace('_', '-')}", str(value)))
    return shlex.join(["--data", str(_given(data)), *options])


def _given(spec: Any) -> Any:
    return getattr(spec, "given", spec)
