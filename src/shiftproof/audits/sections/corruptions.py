"""Where it breaks: accuracy under each corruption at each severity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from shiftproof import shifts
from shiftproof.audits.sections.base import Scope, Section, Subject
from shiftproof.audits.sections.measuring import accuracy, excerpt, picture, predictions, rows, tally
from shiftproof.audits.sections.wording import interval, percent, title
from shiftproof.audits.view import Column, Figure, Gallery, Level, Picture, Sentence, Table, Tile, View
from shiftproof.measures import ALEXNET, Accuracy, mce
from shiftproof.models import logits
from shiftproof.runs import Cell, Json, Result, Row
from shiftproof.shifts.text import TextShift

EXAMPLES = 4
WORST = 3
GOOD, WATCH = 0.10, 0.25
HARMLESS = 0.05
LEVEL_RULE = "points lost to corruption on average: good under 10, bad over 25"

Grid = Mapping[str, Mapping[float, Accuracy]]


class Corruptions(Section):
    """Accuracy under common corruptions."""

    name = "corruptions"
    title = "Where it breaks"
    question = "Which changes of the input cost accuracy, and how much?"
    takes = ("images", "texts")

    def plan(self, scope: Scope) -> Iterator[Cell]:
        """Plan a cell per corruption, severity and slice, and example images at the highest severity."""
        settings = scope.settings
        for start, stop in scope.slices():
            yield Cell("clean", start=start, stop=stop)  # the same cell as the section clean's: it runs once
        for name in settings.shifts:
            for severity in settings.severities:
                for start, stop in scope.slices():
                    label = f"{name}@{severity:g}"
                    yield Cell("corruptions", shift=label, start=start, stop=stop, seed=settings.seed)
        for name in settings.shifts:
            label = f"{name}@{settings.severities[-1]:g}"
            yield Cell("corruptions.examples", shift=label, images=min(EXAMPLES, scope.images), seed=settings.seed)

    def measure(self, cell: Cell, subject: Subject) -> Row:
        """Return the tally of a slice under a shift, or example images."""
        if cell.task == "corruptions.examples":
            return _examples(cell, subject)
        start, stop = cast(int, cell["start"]), cast(int, cell["stop"])
        shift = shifts.parse(cast(str, cell["shift"]))
        return tally(*predictions(subject, start, stop, shift, cast(int, cell["seed"])))

    def view(self, results: Sequence[Result]) -> View:
        """Tell what breaks the model first, how far it falls, and show it."""
        clean = accuracy([row for _, row in rows(results, "clean")])
        grid = _grid(rows(results, "corruptions"))
        if clean is None or not grid:
            return View(self.name, self.title, self.question, notes=("No corruption was measured.",))
        means = {name: _mean(cells.values()) for name, cells in grid.items()}
        ranked = sorted(means, key=lambda name: means[name])
        overall = sum(means.values()) / len(means)
        lost = clean.value - overall
        level: Level = "good" if lost < GOOD else "watch" if lost < WATCH else "bad"
        numbers = {
            "corruption_accuracy": overall,
            "corruption_loss": lost,
            "worst_corruption_accuracy": means[ranked[0]],
        }
        numbers |= {f"accuracy.{name}": mean for name, mean in means.items()}
        tile = Tile("Accuracy under corruption", percent(overall), f"{100 * lost:.1f} points lost", level, LEVEL_RULE)
        tiles = [tile]
        if set(grid) <= set(ALEXNET):
            numbers["mce"] = mce({name: [1 - cell.value for cell in cells.values()] for name, cells in grid.items()})
            tiles.append(
                Tile("mCE", f"{numbers['mce']:.1f}", rule="errors relative to AlexNet's on ImageNet-C, 100 = equal")
            )
        return View(
            self.name,
            self.title,
            self.question,
            verdict=_verdict(clean, grid, ranked, overall, level),
            tiles=tuple(tiles),
            blocks=(
                _heat(grid, ranked),
                _bars(means, ranked, clean),
                *_galleries(rows(results, "corruptions.examples"), ranked),
            ),
            notes=_notes(grid),
            numbers=numbers,
        )


def _examples(cell: Cell, subject: Subject) -> Row:
    """Return a few corrupted images with what the model says of them."""
    count = cast(int, cell["images"])
    (batch,) = subject.data.subset(range(count)).batches(count, device=subject.device)
    images: Any = shifts.parse(cast(str, cell["shift"]))(batch.images, batch.keys, seed=cast(int, cell["seed"]))
    confidence, predicted = logits(subject.model, images).softmax(1).max(1)
    names = subject.data.classes

    def name(label: int) -> str:
        return names[label] if label < len(names) else str(label)

    labels = batch.labels.tolist() if batch.labels is not None else []
    texts = isinstance(images, list)
    examples: list[Json] = [
        {
            **({"text": excerpt(image)} if texts else {"png": picture(image)}),
            "label": name(label),
            "predicted": name(guess),
            "confidence": round(sure, 3),
        }
        for image, label, guess, sure in zip(images, labels, predicted.tolist(), confidence.tolist(), strict=True)
    ]
    return {"texts" if texts else "pictures": examples}


def _grid(found: Sequence[tuple[Cell, Row]]) -> Grid:
    """Return accuracies by corruption and severity, in the order of the plan."""
    parts: dict[str, dict[float, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for cell, row in found:
        shift = shifts.parse(cast(str, cell["shift"]))
        parts[shift.name][shift.severity].append(row)
    grid = {name: {level: accuracy(some) for level, some in cells.items()} for name, cells in parts.items()}
    return {name: {level: value for level, value in cells.items() if value is not None} for name, cells in grid.items()}


def _mean(cells: Any) -> float:
    values = [cell.value for cell in cells]
    return float(sum(values) / len(values))


def _verdict(clean: Accuracy, grid: Grid, ranked: Sequence[str], overall: float, level: Level) -> tuple[Sentence, ...]:
    worst = min(
        ((cell.value, name, severity, cell) for name, cells in grid.items() for severity, cell in cells.items()),
        key=lambda entry: entry[:3],
    )
    _, name, severity, cell = worst
    first = " and ".join(title(other) for other in ranked[:2])
    lost = 100 * (clean.value - overall)
    kept = f"Over {len(grid)} corruptions it keeps" if len(grid) > 1 else f"Under {title(name)} it keeps"
    keeps = Sentence(f"{kept} {percent(overall)} on average, {lost:.1f} points less than clean.", level)
    if clean.value - cell.value < HARMLESS:
        drop = 100 * (clean.value - cell.value)
        most = f"No corruption costs more than {drop:.1f} points, not even at its strongest ({title(name)})."
        return Sentence(most, level), keeps
    return (
        Sentence(
            f"Breaks first under {first}: from {percent(clean.value)} clean to {percent(cell.value)} "
            f"({interval(cell)}) at its worst ({title(name)}, severity {severity:g}).",
            level,
        ),
        keeps,
    )


def _heat(grid: Grid, ranked: Sequence[str]) -> Table:
    severities = sorted({severity for cells in grid.values() for severity in cells})
    rows_by_name = {name: grid[name] for name in ranked}
    return Table(
        "Accuracy by corruption and severity, most damaging first",
        (
            Column("corruption"),
            Column("category"),
            Column("mean", "percent", heat=(0.0, 1.0)),
            *(Column(f"severity {severity:g}", "percent", heat=(0.0, 1.0)) for severity in severities),
        ),
        tuple(
            (
                title(name),
                shifts.facts(name)["category"],
                _mean(cells.values()),
                *(cells[severity].value if severity in cells else None for severity in severities),
            )
            for name, cells in rows_by_name.items()
        ),
        caption="Read along a row: how quickly accuracy falls as the change grows.",
    )


def _bars(means: Mapping[str, float], ranked: Sequence[str], clean: Accuracy) -> Figure:
    names = [title(name) for name in ranked]
    lost = [100 * (clean.value - means[name]) for name in ranked]
    plot = {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "x": lost[::-1],
                "y": names[::-1],
                "hovertemplate": "%{y}: %{x:.1f} points<extra></extra>",
            }
        ],
        "layout": {
            "xaxis": {"title": {"text": "points of accuracy lost, mean over severities"}},
            "yaxis": {"automargin": True},
        },
    }
    table = Table(
        "Points lost",
        (Column("corruption"), Column("points lost", "number")),
        tuple((name, round(value, 1)) for name, value in zip(names, lost, strict=True)),
    )
    finding = f"{names[0].capitalize()} costs {lost[0]:.1f} points, {names[-1]} {lost[-1]:.1f}"
    return Figure(finding, plot, table, caption="Longer bars are what to train or adapt against first.")


def _galleries(found: Sequence[tuple[Cell, Row]], ranked: Sequence[str]) -> Iterator[Gallery | Table]:
    examples = {shifts.parse(cast(str, cell["shift"])).name: (cell, row) for cell, row in found}
    for name in [name for name in ranked if name in examples][:WORST]:
        cell, row = examples[name]
        if "texts" in row:
            yield _texts(cell, row)
            continue
        made = [
            Picture(
                str(entry["png"]),
                f"{entry['label']}: taken for {entry['predicted']}, {percent(float(str(entry['confidence'])))} sure",
                entry["label"] == entry["predicted"],
            )
            for entry in cast(Sequence[Mapping[str, Json]], row["pictures"])
        ]
        severity = shifts.parse(cast(str, cell["shift"])).severity
        yield Gallery(f"What the model sees under {title(name)}, severity {severity:g}", tuple(made))


def _texts(cell: Cell, row: Row) -> Table:
    """Show texts after a shift with what the model says of them."""
    shift = shifts.parse(cast(str, cell["shift"]))
    return Table(
        f"What the model reads under {title(shift.name)}, severity {shift.severity:g}",
        (Column("text"), Column("label"), Column("taken for"), Column("sure", "percent")),
        tuple(
            (str(one["text"]), str(one["label"]), str(one["predicted"]), float(str(one["confidence"])))
            for one in cast(Sequence[Mapping[str, Json]], row["texts"])
        ),
    )


def _notes(grid: Grid) -> tuple[str, ...]:
    images = next(iter(next(iter(grid.values())).values())).images
    notes = [f"{images:,} images per cell; the same images, with the same random draws, at every severity."]
    uneven = [title(name) for name in grid if not shifts.facts(name)["monotone"]]
    if uneven:
        notes.append(f"Published parameters do not grow steadily with severity for: {', '.join(uneven)}.")
    return (*notes, *(note for name in grid for note in _shift_notes(name)))


def _shift_notes(name: str) -> tuple[str, ...]:
    """Return what a text shift has to say of itself, such as where its synonyms come from."""
    shift = shifts.parse(f"{name}@1")
    return shift.notes if isinstance(shift, TextShift) else ()
