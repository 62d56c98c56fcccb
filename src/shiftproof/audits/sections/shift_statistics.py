"""How far the model's normalisation statistics move under each shift: what that predicts, and which shifts are alike.

A part of the section `adaptation` (Schneider et al. 2020, sections 5 and C.5, figure 10).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from torch import nn

from shiftproof import shifts
from shiftproof.audits.sections.base import READ, STATISTICS, Measurement, Scope, Work, shifting
from shiftproof.audits.sections.measuring import check_labels
from shiftproof.audits.sections.point_labels import place
from shiftproof.audits.sections.shift_names import named
from shiftproof.audits.sections.wording import title
from shiftproof.errors import ModelError
from shiftproof.measures import Accuracy, ErrorLine, mean_distance, shift_map
from shiftproof.measures.normalization import LayerStatistics
from shiftproof.models import StatisticsTap, logits, source_statistics
from shiftproof.reports.view import Block, Column, Figure, Table
from shiftproof.runs import Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

IMAGES = {"quick": 64, "standard": 512, "full": 2_000}
BATCH = 32
"""A size of its own: sums are rounded differently in other batches, and results must not depend on the user's."""

Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Distances(Measurement):
    """How far statistics move under shifts: one task, as maps need those of all together, too large to keep."""

    kind = "adaptation.statistics"
    shifts: tuple[Shift, ...]
    holdout: tuple[Shift, ...]
    images: int
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Return distances, points of a map, and errors predicted by a line through hold-out corruptions."""
        model = subject.inner_model
        if not isinstance(model, nn.Module):
            return {"applies": False, "reason": "The model is a black box: it shows no statistics."}
        try:
            source = source_statistics(model)
        except ModelError as error:
            return {"applies": False, "reason": error.headline}

        def moved(shift: Shift) -> tuple[tuple[LayerStatistics, ...], float]:
            """Return statistics under a shift, and the error in the same passes."""
            tap, wrong = StatisticsTap(model), 0
            for each in subject.data.subset(range(self.images)).batches(BATCH, device=subject.device):
                with tap:
                    scores = logits(model, shift(each.inputs, each.keys, seed=self.seed))
                wrong += int((scores.argmax(1) != check_labels(each.labels, scores.shape[1])).sum())
            return tap.statistics(self.images), wrong / self.images

        targets = {shift.label: moved(shift)[0] for shift in self.shifts}
        distances = {label: mean_distance(source, target) for label, target in targets.items()}
        found = shift_map(source, targets)
        held_out = [moved(shift) for shift in self.holdout]
        line = ErrorLine.fit([mean_distance(source, far) for far, _ in held_out], [error for _, error in held_out])
        predicted = {label: min(1.0, max(0.0, float(line.predict(value)))) for label, value in distances.items()}
        return {
            "images": self.images,
            "distances": distances,
            "points": dict(zip(found.names, found.points.tolist(), strict=True)),
            "share": found.share,
            "predicted": predicted,
            "r_squared": line.r_squared,
        }

    def work(self) -> Work:
        """Count a pass of the images under every shift, with statistics."""
        shifted = (*self.shifts, *self.holdout)
        return [
            (READ, self.images * len(shifted)),
            (STATISTICS, self.images * len(shifted)),
            *(unit for shift in shifted for unit in shifting(shift, self.images)),
        ]


def plan_statistics(scope: Scope) -> Iterator[Distances]:
    """Plan the distances of all shifts at the highest severity."""
    settings = scope.settings
    levels = settings.severities if not settings.sparse else (settings.severities[0], settings.severities[-1])
    yield Distances(
        shifts=scope.at(settings.severities[-1]),
        holdout=tuple(
            shifts.corruption(name, severity) for name in shifts.names("holdout") for severity in dict.fromkeys(levels)
        ),
        images=min(scope.images, scope.scaled(IMAGES[settings.budget], 12)),
        seed=settings.seed,
    )


def statistics_blocks(task: Distances, row: Row, source: Mapping[str, Accuracy]) -> tuple[tuple[Block, ...], Numbers]:
    """Return the figures of a measured row, and the mean error of its predictions against the measured accuracies."""
    measured, told = cast(Numbers, row["distances"]), cast(Numbers, row["predicted"])
    distances = {named(shift): measured[shift.label] for shift in task.shifts}
    predicted = {named(shift): told[shift.label] for shift in task.shifts}
    known = [name for name in distances if name in source]
    if not known:
        return (), {}
    missed = sum(abs(predicted[name] - 1 + source[name].value) for name in known) / len(known)
    return (
        (_prediction(distances, predicted, source, known, missed), _map(task, row)),
        {"distance_prediction_error": missed},
    )


def _prediction(
    distances: Numbers, predicted: Numbers, source: Mapping[str, Accuracy], known: Sequence[str], missed: float
) -> Figure:
    ranked = sorted(known, key=lambda name: -distances[name])
    measured = [100 * (1 - source[name].value) for name in ranked]
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": [distances[name] for name in ranked],
        "y": measured,
        "text": [title(name) for name in ranked],
        "name": "measured",
        "hovertemplate": "%{text}: %{y:.1f}% wrong at a distance of %{x:.2f}<extra></extra>",
    }
    line = {
        "type": "scatter",
        "mode": "lines",
        "x": [distances[name] for name in ranked],
        "y": [100 * predicted[name] for name in ranked],
        "name": "predicted",
    }
    table = Table(
        "Distance and error",
        (
            Column("corruption"),
            Column("distance", "number"),
            Column("predicted error", "percent", heat=(0.0, 1.0)),
            Column("measured error", "percent", heat=(0.0, 1.0)),
        ),
        tuple((title(name), round(distances[name], 3), predicted[name], 1 - source[name].value) for name in ranked),
    )
    layout = {
        "xaxis": {"title": {"text": "distance of the statistics from the source's, in standard deviations"}},
        "yaxis": {"title": {"text": "error, %"}, "rangemode": "tozero"},
    }
    return Figure(
        f"How far its statistics move predicts the error to within {100 * missed:.0f} points on average",
        {"data": [points, line], "layout": layout},
        table,
        caption="The line was fitted to the hold-out corruptions. Distances need no labels, so a large one can warn.",
    )


def _map(task: Distances, row: Row) -> Figure:
    points = cast(Mapping[str, Sequence[float]], row["points"])
    names = [title(named(shift)) for shift in task.shifts]
    across, up = ([points[shift.label][axis] for shift in task.shifts] for axis in (0, 1))
    positions = place([(0.0, 0.0), *zip(across, up, strict=True)], ["clean", *names])
    data = [
        _named_points(["clean"], [0.0], [0.0], positions[:1]),
        _named_points(names, across, up, positions[1:]),
    ]
    layout = {
        "showlegend": False,
        "xaxis": {"title": {"text": "first axis, in standard deviations"}, "zeroline": False},
        "yaxis": {"title": {"text": "second axis"}, "zeroline": False, "scaleanchor": "x"},
    }
    table = Table(
        "Points of the map",
        (Column("corruption"), Column("first axis", "number"), Column("second axis", "number")),
        tuple((name, round(x, 3), round(y, 3)) for name, x, y in zip(names, across, up, strict=True)),
    )
    return Figure(
        _alike(names, across, up),
        {"data": data, "layout": layout},
        table,
        caption=f"Near points move its statistics alike; far from clean is far from training. The plane shows "
        f"{100 * cast(float, row['share']):.0f}% of the squared distances. Names without room show on hover.",
    )


def _alike(names: Sequence[str], across: Sequence[float], up: Sequence[float]) -> str:
    """Return the finding: the two corruptions that move the statistics most alike."""
    if len(names) < 2:
        return f"Where {names[0]} moves its statistics"
    pairs = [(one, other) for one in range(len(names)) for other in range(one)]
    one, other = min(pairs, key=lambda pair: math.dist(*((across[number], up[number]) for number in pair)))
    return f"To the model, {names[other]} and {names[one]} look most alike"


def _named_points(
    names: Sequence[str], across: Sequence[float], up: Sequence[float], positions: Sequence[str | None]
) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": list(across),
        "y": list(up),
        "text": [name if position else "" for name, position in zip(names, positions, strict=True)],
        "textposition": [position or "top center" for position in positions],
        "hovertext": list(names),
        "hovertemplate": "%{hovertext}<extra></extra>",
        "cliponaxis": False,
    }
