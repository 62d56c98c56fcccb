"""What the commands print that say where exactly a model fails, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from shiftproof.diagnoses.diagnosing import Diagnosis
from shiftproof.diagnoses.diagnosis_views import CAUSE, sentences
from shiftproof.diagnoses.failure_views import verdict
from shiftproof.diagnoses.finding_failures import EXPORTED, Failures


def show_failures(found: Failures, given: Mapping[str, Any]) -> None:
    """Print the weak slices, the faults of the data, and where the tables are."""
    for shift, accuracy in found.slices.accuracies.items():
        typer.echo(f"accuracy  {100 * accuracy:.1f}%, {shift}")
    for sentence in verdict(found):
        typer.echo(f"slice     {sentence.text}")
    rest = len(found.slices) - len(verdict(found))
    if rest > 0:
        typer.echo(f"          {rest} more in the report")
    if len(found.slices):
        typer.echo(f"note      {found.slices.power_note}")
    for told in found.quality.sentences([str(file) for file in found.table["file"]], found.classes):
        typer.echo(f"data      {told}")
    if given.get("export_failures") is not None:
        without = "" if found.copies else ": the images have no files to copy"
        typer.echo(f"copies    {len(found.copies)} (at most {EXPORTED} a shift) in {given['export_failures']}{without}")
    for path in found.files:
        typer.echo(f"images    {path}")
    typer.echo(f"report    {found.report}")


def show_diagnosis(found: Diagnosis, _: Mapping[str, Any]) -> None:
    """Print what the new images behave like, what that costs, and where the report is."""
    for sentence in sentences(found):
        typer.echo(sentence.text)
    if found.likeness.shifts:
        typer.echo(CAUSE)
        typer.echo(f"shift     {found.shift}")
    for told in found.quality.sentences(found.files, found.classes):
        typer.echo(f"data      {told}")
    typer.echo(f"report    {found.report}")
