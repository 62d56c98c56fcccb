"""Reports of runs that are no audits: training, certificates, spectra and searches, from the files they wrote."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftproof.audits.sections.spectrum_figures import wave_map
from shiftproof.audits.sections.wording import percent, title
from shiftproof.certificates.certification import load_certificate
from shiftproof.certificates.frequencies import Band
from shiftproof.errors import RunError
from shiftproof.measures import certified_accuracy
from shiftproof.reports import html
from shiftproof.reports.view import Column, Figure, Masthead, Sentence, Table, View
from shiftproof.runs import write_atomically
from shiftproof.runs.files import read_json

CSV = "results.csv"
POINTS = 25
"""Distances that a curve of certified accuracy is drawn at."""
Cell = str | float | int | None


@dataclass(frozen=True)
class RunReport:
    """The report of a run that is no audit: what kind of run it was, what it says, and its table as CSV."""

    folder: Path
    kind: str
    masthead: Masthead
    views: tuple[View, ...]

    @property
    def report(self) -> Path:
        """Path of the HTML report."""
        return self.folder / "report.html"

    @property
    def table(self) -> Path:
        """The numbers behind its chart."""
        return self.folder / CSV


def report_run(folder: Path) -> RunReport | None:
    """Write the report of a run by what it left in its folder; None where it is none of these kinds."""
    for name, (kind, make) in _KINDS.items():
        files = sorted(folder.glob(name))
        if files:
            try:
                masthead, view, rows = make(files)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise RunError(
                    f"Cannot read the {kind} in {str(folder)!r}.",
                    expected=f"{files[0].name}, written by this version",
                    got=f"{type(error).__name__}: {error}",
                ) from error
            found = RunReport(folder, kind, masthead, (view,))
            html.write(found.report, masthead, found.views)
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows(rows)
            write_atomically(found.table, text.getvalue())
            return found
    return None


Made = tuple[Masthead, View, list[list[Cell]]]


def _training(files: Sequence[Path]) -> Made:
    """Show the loss and the accuracies of a run of training, by step."""
    log = [json.loads(line) for line in files[0].read_text("utf-8").splitlines()]
    facts: Mapping[str, Any] = (
        read_json(files[0].with_name("model.json")) if files[0].with_name("model.json").is_file() else {}
    )
    names = [
        name
        for name in ("loss", "train_accuracy", "accuracy", "noisy_accuracy", "clean_accuracy", "goal")
        if any(name in row for row in log)
    ]
    lines = {name: [(row["step"], row[name]) for row in log if name in row] for name in names}
    last = log[-1]
    said = f"{last['step']:,} steps, loss {log[0]['loss']:.4g} to {last['loss']:.4g}"
    kept = facts.get("last") or last
    where = "" if kept["step"] == last["step"] else f"; kept are the weights of step {kept['step']:,}"
    shown = "".join(f", {title(name)} {percent(kept[name])}" for name in names if name != "loss" and name in kept)
    table = Table(
        "The log",
        (Column("step", "number"), *(Column(title(name), "number") for name in names)),
        tuple((row["step"], *(row.get(name) for name in names)) for row in log),
    )
    second = {"yaxis2": {"title": {"text": "accuracy"}, "overlaying": "y", "side": "right", "range": [0, 1]}}
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": title(name),
            "x": [step for step, _ in points],
            "y": [value for _, value in points],
            **({} if name == "loss" else {"yaxis": "y2"}),
        }
        for name, points in lines.items()
    ]
    layout = {"xaxis": {"title": {"text": "step"}}, "yaxis": {"title": {"text": "loss"}}, **second}
    figure = Figure(said, {"data": data, "layout": layout}, table)
    view = View(
        "training",
        "Training",
        "Did it learn?",
        verdict=(Sentence(f"Trained for {said}{where}{shown}."),),
        blocks=(figure,),
    )
    head = Masthead(
        str(facts.get("model") or "a module"),
        str(facts.get("data", "")),
        {"recipe": str(facts.get("recipe", "")), "epochs": f"{last['epoch']:g}"},
        method={name: str(value) for name, value in (facts.get("settings") or {}).items()},
        kind="Training",
    )
    return head, view, [[column.title for column in table.columns], *map(list, table.rows)]


def _certificates(files: Sequence[Path]) -> Made:
    """Show certified accuracy by distance, a curve for every certificate of a folder."""
    found = [load_certificate(file) for file in files]
    curves: dict[str, list[float]] = {}
    for each in found:
        columns = each["columns"]
        place = {name: columns.index(name) for name in ("label", "prediction", "radius")}
        curves[str(each["terms"]["shift"])] = [
            row[place["radius"]] if row[place["label"]] in (None, row[place["prediction"]]) else 0.0
            for row in each["images"]
        ]
    reach = max((max(radii) for radii in curves.values()), default=0.0) or 1.0
    distances = [reach * number / (POINTS - 1) for number in range(POINTS)]
    shares = {name: [certified_accuracy(radii, at).value for at in distances] for name, radii in curves.items()}
    table = Table(
        "Certified accuracy by distance",
        (Column("distance", "number"), *(Column(name, "percent", heat=(0.0, 1.0)) for name in shares)),
        tuple((round(at, 4), *(shares[name][place] for name in shares)) for place, at in enumerate(distances)),
    )
    first, numbers = found[0], found[0]["numbers"]
    data = [
        {"type": "scatter", "mode": "lines", "name": name, "x": distances, "y": [100 * value for value in some]}
        for name, some in shares.items()
    ]
    against = str(first["terms"]["against"])
    layout = {
        "xaxis": {"title": {"text": "L2 distance, pixel values 0 to 1" if against == "l2" else f"range of {against}"}},
        "yaxis": {"title": {"text": "certified accuracy, %"}, "rangemode": "tozero"},
    }
    said = f"Average certified radius {numbers['acr']:.4f} under noise {first['terms']['sigma']:g}"
    guarantee = str(first["guarantee"])
    view = View(
        "certificates",
        "Certified robustness",
        "How large a change is guaranteed not to change the answer of the smoothed model?",
        verdict=(Sentence(f"{said}."),),
        blocks=(Figure(said, {"data": data, "layout": layout}, table),),
        notes=(guarantee, *(f"Not guaranteed: {each}." for each in first["not_guaranteed"])),
    )
    images = {"images": f"{first['data']['images']:,}"}
    head = Masthead(str(first["model"]["name"]), str(first["data"]["name"]), images, kind="Certified robustness")
    rows: list[list[Cell]] = [["shift", *first["columns"]]]
    rows += [[name, *row] for name, each in zip(curves, found, strict=True) for row in each["images"]]
    return head, view, rows


def _spectrum(files: Sequence[Path]) -> Made:
    """Show the map of waves, and the bands."""
    found: Mapping[str, Any] = read_json(files[0])
    waves = {(int(i), int(j)): float(value) for i, j, value in found["waves"]}
    height, width = found["shape"]
    steps = sorted({abs(i) for i, _ in waves} - {0})
    bands: dict[Band, float] = {name: float(value) for name, value in found["bands"].items()}
    said = ", ".join(f"{value:.3f} at {name} frequencies" for name, value in bands.items())
    block: Figure | Table = Table("By band", (Column("band"), Column(found["measure"], "number")), tuple(bands.items()))
    if found["measure"] == "accuracy" and height == width:
        block = wave_map(waves, height, steps[0] if steps else 1, bands)
    view = View(
        "spectrum",
        "Frequencies",
        "Which frequencies is the model sensitive to?",
        verdict=(Sentence(f"{found['measure']} {float(found['clean']):.3f} on clean images; {said}."),),
        blocks=(block,),
    )
    told = {name: str(value) for name, value in found["facts"].items()}
    head = Masthead(str(found["model"]), str(found["data"]), told, kind="Sensitivity by frequency")
    rows: list[list[Cell]] = [["down", "across", str(found["measure"])]]
    rows.extend([i, j, value] for (i, j), value in waves.items())
    return head, view, rows


def _search(files: Sequence[Path]) -> Made:
    """Show the worst chains of a search."""
    found: Mapping[str, Any] = read_json(files[0])
    rows = [(str(each["tuple"]), each["fitness"], each.get("similarity")) for each in found["worst_tuples"]]
    columns = (Column("chain"), Column(str(found["fitness"]), "number"), Column("similarity", "number"))
    clean, worst = float(found["clean"]), float(found["worst"])
    said = f"{found['fitness']} {clean:.3f} on clean images, {worst:.3f} under the worst chain"
    view = View(
        "search",
        "Worst case",
        "Which chain of transformations breaks the model most?",
        verdict=(Sentence(f"{said}, of {found['evaluations']:,} evaluations."),),
        blocks=(Table("The worst chains", columns, tuple(rows)),),
    )
    images = {"images": f"{found['images']:,}"}
    head = Masthead(str(found["model"]), str(found["data"]), images, kind="Worst-case search")
    return head, view, [[column.title for column in columns], *map(list, rows)]


_KINDS: Mapping[str, tuple[str, Callable[[Sequence[Path]], Made]]] = {
    "certificate*.json": ("certificate", _certificates),
    "spectrum.json": ("spectrum", _spectrum),
    "search.json": ("search", _search),
    "log.jsonl": ("training", _training),
}
"""What a kind of run leaves -> its name, and what makes its report."""
