"""Can it be helped while serving: accuracy of adaptation methods under corruption, and what they cost."""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from shiftproof import shifts
from shiftproof.adapters import Adapter, Counts, adapt
from shiftproof.adapters import method as find
from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.advice import Gains, adapting_code, advised, diagnoses, never_resets
from shiftproof.audits.sections.base import Scope, Section, Subject, Work
from shiftproof.audits.sections.measuring import accuracy, check_labels, image_means, preset_for, rows, tally
from shiftproof.audits.sections.statistics import TASK as STATISTICS
from shiftproof.audits.sections.statistics import (
    measure_statistics,
    plan_statistics,
    statistics_blocks,
    statistics_work,
)
from shiftproof.audits.sections.wording import between, percent, title
from shiftproof.audits.view import Action, Column, Figure, Level, Sentence, Table, Tile, View
from shiftproof.errors import ModelError
from shiftproof.measures import Accuracy
from shiftproof.measures.means import mean
from shiftproof.models.outputs import check_logits
from shiftproof.runs import Cell, Json, Result, Row

BATCH = 64
SPARSE_BATCH = 16
"""Where a model is so costly that streams are short, batches are too, so that there are several."""
GRID_BATCHES = (1, 8, 64)
GRID_PRIORS = (0, 4, 16, 64, 256)
GRID_SHIFTS = {"quick": 2, "standard": 4, "full": 4}
"""Corruptions, of a category each, that batch sizes and priors are tried under: single images take long."""
HELPS = 0.02
LEVEL_RULE = "points won on average, without labels: good over 2, bad under 0"


class Adaptation(Section):
    """Accuracy gained by adapting to the shifted images themselves, without labels."""

    name = "adaptation"
    title = "Can it be helped while serving"
    question = "How much accuracy do methods win back by adapting to the incoming images, without labels?"
    numbers = (
        Number("best_adaptation_gain", "accuracy the best method adds, the mean over corruptions", None),
        Number("gain.*", "accuracy a method adds, the mean over corruptions", None),
        Number("distance_prediction_error", "how far errors predicted from normalisation statistics are off", "lower"),
    )

    def plan(self, scope: Scope) -> Iterator[Cell]:
        """Plan a stream per method and corruption at the highest severity, and batch sizes against priors."""
        settings = scope.settings
        severity = settings.severities[-1]
        images = min(scope.images, scope.scaled(settings.adaptation_images, 48))
        names = _one_per_category(settings.shifts) if settings.sparse else settings.shifts
        smaller = {"batch": SPARSE_BATCH} if settings.sparse else {}
        for method in ("source", *settings.methods):
            for name in names:
                label = f"{name}@{severity:g}"
                yield Cell("adaptation", method=method, shift=label, images=images, seed=settings.seed, **smaller)
        yield from plan_statistics(scope)
        if "bn" in settings.methods:
            for name in _one_per_category(settings.shifts)[: 1 if settings.sparse else GRID_SHIFTS[settings.budget]]:
                for batch in GRID_BATCHES:
                    for prior in GRID_PRIORS:
                        yield Cell(
                            "adaptation.prior",
                            shift=f"{name}@{severity:g}",
                            batch=batch,
                            prior=prior,
                            images=min(images, SPARSE_BATCH if settings.sparse else max(BATCH, images // 4)),
                            seed=settings.seed,
                        )

    def measure(self, cell: Cell, subject: Subject) -> Row:
        """Stream shifted images through a fresh adapter and tally its answers."""
        if cell.task == STATISTICS:
            return measure_statistics(cell, subject)
        try:
            preset = cast(str, cell.parameters.get("preset") or preset_for(subject)) if cell.task == self.name else None
            adapter = _adapter(cell, subject, preset)
        except ModelError as error:
            return {"applies": False, "reason": error.headline}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # single images without a prior are measured on purpose
            return {**_streamed(adapter, cell, subject, _batch(cell)), "preset": preset}

    def work(self, cell: Cell) -> Work:
        """Count images through an adapter."""
        if cell.task == STATISTICS:
            return statistics_work(cell)
        images, method = cast(int, cell["images"]), cell.parameters.get("method", "bn")
        adapting = {f"adapter {method}": 1.0, f"adapt {method} {_batch(cell)}": images}
        return {"read": images, f"shift {cell['shift']}": images, **adapting}

    def needs(self, number: str, cell: Cell) -> bool:
        """Say that a method's own number needs its cells and the source model's; none needs batch sizes and priors."""
        if number == "distance_prediction_error":
            return cell.task == STATISTICS or cell.parameters.get("method") == "source"
        if cell.task != self.name:
            return False
        return number == "best_adaptation_gain" or cell["method"] in ("source", number.removeprefix("gain."))

    def per_image(self, results: Sequence[Result]) -> Mapping[str, NDArray[np.float64]]:
        """Return how much more often each image is right with each method than without."""
        found: dict[str, dict[str, list[Row]]] = defaultdict(dict)
        for cell, row in rows(results, "adaptation"):
            if row.get("applies", True):
                found[cast(str, cell["method"])][cast(str, cell["shift"])] = [row]
        source = found.pop("source", {})
        gains = {}
        for method, streams in found.items():
            shared = [label for label in streams if label in source]
            helped, alone = (image_means([some[label] for label in shared]) for some in (streams, source))
            if helped is not None and alone is not None and len(helped) == len(alone):
                gains[f"gain.{method}"] = helped - alone
        return gains

    def view(self, results: Sequence[Result]) -> View:
        """Tell which method wins back most, and what it costs."""
        found = [(cell, row) for cell, row in rows(results, "adaptation") if row.get("applies", True)]
        refused = {
            cast(str, cell["method"]): str(row["reason"])
            for cell, row in rows(results, "adaptation")
            if not row.get("applies", True)
        }
        if not found:
            notes = tuple(sorted(set(refused.values()))) or ("Nothing was measured.",)
            return View(self.name, self.title, self.question, notes=notes)
        grid: dict[str, dict[str, Accuracy]] = defaultdict(dict)
        pace: dict[str, list[float]] = defaultdict(list)
        for cell, row in found:
            value = accuracy([row])
            if value is not None:
                method = cast(str, cell["method"])
                grid[method][shifts.parse(cast(str, cell["shift"])).name] = value
                pace[method].append(cast(float, row["milliseconds"]))
        source = grid.pop("source")
        gains = {method: _gain(cells, source) for method, cells in grid.items()}
        best = max(gains, key=lambda method: gains[method], default=None)
        if best is None:
            return View(self.name, self.title, self.question, notes=("No method was measured.",))
        per_image = {name.removeprefix("gain."): each for name, each in self.per_image(results).items()}
        chosen = advised({name: each for name, each in per_image.items() if len(each) > 1}, long=False)
        told = chosen if chosen and gains[chosen] > HELPS else best
        numbers = {f"gain.{method}": gain for method, gain in gains.items()} | {"best_adaptation_gain": gains[best]}
        helps = gains[told] > HELPS
        reach = f" ({_reach(per_image, told)})" if _reach(per_image, told) else ""
        won = f"{100 * max(gains[told], 0):.1f} points{reach} on average at the strongest severity"
        said = (
            f"Adapting while serving ({told}) wins back {won}."
            if helps
            else f"No adaptation wins back more than {won}."
        )
        tile = Tile(
            "Best gain by adaptation",
            f"{100 * gains[best]:+.1f} points",
            ", ".join([each for each in (_reach(per_image, best), best) if each]),
            _level(gains[best]),
            LEVEL_RULE,
        )
        batch = _batch(found[0][0])
        images = next(iter(source.values())).images
        preset = next((cast(str, row["preset"]) for _, row in found if "preset" in row), None)
        prior = [(cell, row) for cell, row in rows(results, "adaptation.prior") if row.get("applies", True)]
        moved = [row for _, row in rows(results, STATISTICS) if row.get("applies", True)]
        blocks, predicted = statistics_blocks(moved[0], source) if moved else ((), {})
        counts = _counts(found)
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(Sentence(f"{said}{_why_not(best, told, gains) if helps else ''}", "good" if helps else "plain"),),
            tiles=(tile,),
            blocks=(
                _gain_table(grid, source, gains),
                _cost_table(pace, gains, counts, list(dict.fromkeys(refused))),
                *([_prior_figure(prior)] if prior else []),
                *blocks,
            ),
            notes=(
                f"{images:,} images a stream, in batches of {batch}, each from a fresh start"
                + (f", with the options of the preset {preset}." if preset else "."),
                *diagnoses(counts),
                *sorted(set(refused.values())),
            ),
            numbers={**numbers, **predicted},
            actions=(_action(chosen, gains[chosen], preset, batch),) if helps and chosen == told else (),
        )


def _batch(cell: Cell) -> int:
    return cast(int, cell.parameters.get("batch", BATCH))


def _reach(gains: Gains, name: str) -> str:
    """Return the interval of a method's mean gain over images, in points."""
    return between(mean(gains[name]), "") if len(gains.get(name, ())) > 1 else ""


def _level(gain: float) -> Level:
    return "good" if gain > HELPS else "watch" if gain >= 0 else "bad"


def _why_not(best: str, told: str, gains: Mapping[str, float]) -> str:
    """Return why the method with the highest mean is not the one that is named."""
    more = f" {best} wins {100 * (gains[best] - gains[told]):.1f} points more"
    if best == told:
        return f" {best} never resets: a short stream does not show whether that lasts." if _unproven(best) else ""
    if _unproven(best):
        return f"{more}, but never resets: a short stream does not show whether that lasts."
    return f"{more}, which is within noise, at a higher cost."


def _unproven(name: str) -> bool:
    return never_resets(find(name))


def _counts(found: Sequence[tuple[Cell, Row]]) -> dict[str, Counts]:
    """Return batches, updates and resets of each method over all streams; those of older runs are not known."""
    counted: dict[str, Counts] = {}
    for cell, row in found:
        if "updates" in row:
            name = cast(str, cell["method"])
            new = (cast(int, row[part]) for part in Counts._fields)
            counted[name] = Counts(*map(sum, zip(counted.get(name, (0, 0, 0)), new, strict=True)))
    return counted


def _action(chosen: str, gain: float, preset: str | None, batch: int) -> Action:
    return Action(
        f"Let it adapt while it serves ({chosen})",
        f"It wins back {100 * gain:.1f} points on average at the strongest severity, without labels. Of the methods "
        "that do not learn without end it is the cheapest within noise of the best.",
        f"{adapting_code(chosen, preset)}\nlogits = adapted(images)  # in batches of {batch}, as they come",
        gain=100 * gain,
        on="on average at the strongest severity",
    )


def _adapter(cell: Cell, subject: Subject, preset: str | None) -> Adapter:
    """Return a fresh adapter of the cell's method."""
    if not isinstance(subject.model, nn.Module):
        raise ModelError("The model is a black box: it has no layers that can adapt.")
    if cell.task == "adaptation.prior":
        return adapt(subject.model, "bn", prior=cast(int, cell["prior"]))
    chosen = find(cast(str, cell["method"]))
    given = cast(Mapping[str, Any], cell.parameters.get("options", {}))
    options = {name: value for name, value in given.items() if name in chosen.defaults.to_dict()}
    return adapt(subject.model, chosen.name, preset=preset, **options)


def _streamed(adapter: Adapter, cell: Cell, subject: Subject, batch: int) -> dict[str, Json]:
    """Return the tally of an adapter's answers to a stream, the milliseconds a batch takes, and what was counted."""
    shift, seed = shifts.parse(cast(str, cell["shift"])), cast(int, cell["seed"])
    labels, predicted, confidences, spent = [], [], [], []
    for part in subject.data.subset(range(cast(int, cell["images"]))).batches(batch, device=subject.device):
        images = shift(part.images, part.keys, seed=seed)
        start = time.perf_counter()
        logits = check_logits(adapter(images), len(images))
        confidence, classes = logits.softmax(1).max(1)
        predicted.append(classes.cpu())
        spent.append(time.perf_counter() - start)
        confidences.append(confidence.cpu())
        labels.append(check_labels(part.labels, logits.shape[1]))
    return {
        **tally(torch.cat(labels), torch.cat(predicted), torch.cat(confidences)),
        "milliseconds": 1e3 * median(spent[1:] or spent),  # the first batch warms up
        **dict(zip(Counts._fields, (len(spent), adapter.updates, adapter.resets), strict=True)),
    }


def _one_per_category(names: Sequence[str]) -> list[str]:
    return list({shifts.facts(name)["category"]: name for name in reversed(names)}.values())[::-1]


def _gain(cells: Mapping[str, Accuracy], source: Mapping[str, Accuracy]) -> float:
    shared = [name for name in cells if name in source]
    return sum(cells[name].value - source[name].value for name in shared) / max(1, len(shared))


def _gain_table(
    grid: Mapping[str, Mapping[str, Accuracy]], source: Mapping[str, Accuracy], gains: Mapping[str, float]
) -> Table:
    ranked = sorted(gains, key=lambda method: -gains[method])
    body = sorted(source, key=lambda name: source[name].value)
    return Table(
        "Accuracy with each method, hardest corruption first",
        (Column("corruption"), *(Column(name, "percent", heat=(0.0, 1.0)) for name in ("source", *ranked))),
        tuple(
            (title(name), source[name].value, *(grid[m][name].value if name in grid[m] else None for m in ranked))
            for name in body
        ),
        caption="source is the model as it is; the other columns adapt to the stream they are tested on.",
    )


def _cost_table(
    pace: Mapping[str, Sequence[float]],
    gains: Mapping[str, float],
    counts: Mapping[str, Counts],
    refused: Sequence[str],
) -> Table:
    plain = median(pace["source"])
    ranked = sorted(gains, key=lambda method: -gains[method])
    return Table(
        "What it costs",
        (
            Column("method"),
            Column("points won", "number"),
            Column("time per batch, times a plain forward", "number"),
            *(Column(title, "number") for title in Counts._fields),
        ),
        (
            *(
                (m, round(100 * gains[m], 1), round(median(pace[m]) / plain, 1), *counts.get(m, (None,) * 3))
                for m in ranked
            ),
            *((m, "does not apply", *(None,) * 4) for m in refused),
        ),
        caption="Medians of times over batches and corruptions, after a first batch to warm up; batches, updates and "
        "resets over all corruptions.",
    )


def _prior_figure(found: Sequence[tuple[Cell, Row]]) -> Figure:
    parts: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for cell, row in found:
        if row.get("applies", True):
            parts[cast(int, cell["batch"]), cast(int, cell["prior"])].append(row)
    means = {key: value.value for key, some in parts.items() if (value := accuracy(some)) is not None}
    batches = sorted({batch for batch, _ in means})
    priors = sorted({prior for _, prior in means})
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": f"batches of {batch}",
            "x": [str(prior) for prior in priors],
            "y": [100 * means[batch, prior] for prior in priors],
        }
        for batch in batches
    ]
    smallest = batches[0]
    best = max(priors, key=lambda prior: means[smallest, prior])
    table = Table(
        "Accuracy by batch size and prior",
        (
            Column("prior N", "number"),
            *(Column(f"batches of {batch}", "percent", heat=(0.0, 1.0)) for batch in batches),
        ),
        tuple((prior, *(means[batch, prior] for batch in batches)) for prior in priors),
    )
    layout = {
        "xaxis": {"title": {"text": "prior N: source statistics count as so many images"}, "type": "category"},
        "yaxis": {"title": {"text": "accuracy, %"}},
    }
    return Figure(
        f"With batches of {smallest}, a prior of {best} images is best ({percent(means[smallest, best])})",
        {"data": data, "layout": layout},
        table,
        caption="Batch statistics alone (N = 0) suit large batches; small batches need the source's as a prior.",
    )
