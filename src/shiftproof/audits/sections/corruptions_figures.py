"""How the section on corruptions shows what it found: a heat table with examples, bars, and galleries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeAlias, cast

from shiftproof.audits.sections.base import Condition
from shiftproof.audits.sections.shift_names import AS_GIVEN, at_severity, cell_of, facts, named
from shiftproof.audits.sections.wording import percent, title
from shiftproof.measures import Accuracy
from shiftproof.reports.view import Column, Figure, Gallery, Picture, Table
from shiftproof.runs import Json, Row

WORST = 3
"""Corruptions whose examples are shown."""

Grid: TypeAlias = Mapping[str, Mapping[float, Accuracy]]
"""Corruption -> severity -> accuracy."""


class Valued(Protocol):
    """What has a value from 0 to 1: an accuracy, or the overlap of label maps."""

    @property
    def value(self) -> float:
        """The value."""


def mean_accuracy(cells: Iterable[Valued]) -> float:
    """Return the mean of accuracies, or of other measures."""
    values = [cell.value for cell in cells]
    return float(sum(values) / len(values))


def heat_table(grid: Grid, ranked: Sequence[str], examples: Sequence[tuple[Condition, Row]]) -> Table:
    """Tabulate accuracy by corruption and severity, with the first image of each cell."""
    severities = _severities(grid)
    pictures = {}
    for shift, row in examples:
        name, level = cell_of(shift)
        if "pictures" in row and name in ranked and level in severities:
            where = ranked.index(name), 3 + severities.index(level)
            pictures[where] = _picture(cast(Sequence[Mapping[str, Json]], row["pictures"])[0])
    return severity_table(grid, ranked, pictures)


def _severities(grid: Mapping[str, Mapping[float, Valued]]) -> list[float]:
    return sorted({severity for cells in grid.values() for severity in cells})


def severity_table(
    grid: Mapping[str, Mapping[float, Valued]],
    ranked: Sequence[str],
    pictures: Mapping[tuple[int, int], Picture] = MappingProxyType({}),
    measure: str = "accuracy",
) -> Table:
    """Tabulate a measure by corruption and severity, with pictures of cells."""
    severities = _severities(grid)
    return Table(
        f"{measure[0].upper() if measure == 'accuracy' else measure[0]}{measure[1:]} by corruption and severity, most "
        "damaging first",
        (
            Column("corruption"),
            Column("category"),
            Column("mean", "percent", heat=(0.0, 1.0)),
            *(
                Column(f"severity {level:g}" if level != AS_GIVEN else "as given", "percent", heat=(0.0, 1.0))
                for level in severities
            ),
        ),
        tuple(
            (
                title(name),
                facts(name)["category"],
                mean_accuracy(cells.values()),
                *(cells[severity].value if severity in cells else None for severity in severities),
            )
            for name, cells in ((name, grid[name]) for name in ranked)
        ),
        caption=f"Read along a row: how quickly {measure} falls as the change grows."
        + (" Hover over a cell, or focus it, to see its first image." if pictures else ""),
        pictures=pictures,
    )


def cell_table(grid: Grid) -> Table:
    """List every corruption and severity by itself: how many images, how many right, and the interval."""
    return Table(
        "Every corruption and severity",
        (
            Column("corruption"),
            Column("severity", "number"),
            Column("images", "number"),
            Column("accuracy", "percent", heat=(0.0, 1.0)),
            Column("from", "percent"),
            Column("to", "percent"),
        ),
        tuple(
            (title(name), level, cell.images, cell.value, *cell.interval())
            for name, cells in grid.items()
            for level, cell in cells.items()
        ),
        caption="Clopper-Pearson intervals, each at 95% by itself.",
    )


def loss_figure(
    means: Mapping[str, float], ranked: Sequence[str], clean: Valued | None, measure: str = "accuracy"
) -> Figure:
    """Draw the points each corruption costs; without clean accuracy, its error."""
    names = [title(name) for name in ranked]
    lost = [100 * ((1.0 if clean is None else clean.value) - means[name]) for name in ranked]
    what = "points lost" if clean is not None else "error, percent"
    axis = f"points of {measure} lost" if clean is not None else "error in percent"
    plot = {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "x": lost[::-1],
                "y": names[::-1],
                "hovertemplate": f"%{{y}}: %{{x:.1f}}{' points' if clean is not None else '%'}<extra></extra>",
            }
        ],
        "layout": {
            "xaxis": {"title": {"text": f"{axis}, mean over severities"}},
            "yaxis": {"automargin": True},
        },
    }
    table = Table(
        what.capitalize(),
        (Column("corruption"), Column(what, "number")),
        tuple((name, round(value, 1)) for name, value in zip(names, lost, strict=True)),
    )
    finding = f"{names[0][0].upper()}{names[0][1:]} costs {lost[0]:.1f} points"
    finding += f", {names[-1]} {lost[-1]:.1f}" if len(names) > 1 else ""
    if clean is None:
        finding = f"The error is {lost[0]:.1f}% under {names[0]}, {lost[-1]:.1f}% under {names[-1]}"
    return Figure(finding, plot, table, caption="Train or adapt against the longest bars first.")


def galleries(found: Sequence[tuple[Condition, Row]], ranked: Sequence[str]) -> Iterator[Gallery | Table]:
    """Show examples of the worst corruptions, with what the model says of them."""
    strongest = sorted(found, key=lambda entry: entry[0].severity)
    examples = {named(shift): (shift, row) for shift, row in strongest}
    for name in [name for name in ranked if name in examples][:WORST]:
        shift, row = examples[name]
        if "texts" in row:
            yield _texts(shift, row)
            continue
        made = [_picture(entry) for entry in cast(Sequence[Mapping[str, Json]], row["pictures"])]
        yield Gallery(f"What the model sees under {title(name)}{at_severity(cell_of(shift)[1])}", tuple(made))


def _picture(entry: Mapping[str, Json]) -> Picture:
    right, confidence = entry["label"] == entry["predicted"], percent(float(str(entry["confidence"])))
    predicted = "" if right else f" predicted as {entry['predicted']}"
    return Picture(str(entry["png"]), f"{entry['label']}{predicted}, confidence {confidence}", right)


def _texts(shift: Condition, row: Row) -> Table:
    """Show texts after a shift with what the model says of them."""
    return Table(
        f"What the model reads under {title(named(shift))}{at_severity(cell_of(shift)[1])}",
        (Column("text"), Column("label"), Column("predicted"), Column("confidence", "percent")),
        tuple(
            (str(one["text"]), str(one["label"]), str(one["predicted"]), float(str(one["confidence"])))
            for one in cast(Sequence[Mapping[str, Json]], row["texts"])
        ),
    )
