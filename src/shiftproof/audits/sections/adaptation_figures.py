"""Tables and figures of the section `adaptation`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from shiftproof.adapters import Counts
from shiftproof.audits.sections.measuring import accuracy
from shiftproof.audits.sections.wording import percent, title
from shiftproof.measures import Accuracy
from shiftproof.reports.view import Column, Figure, Table
from shiftproof.runs import Row

CORRELATED = "sorted by class"
"""What tables call streams in which images of a class come together."""


def gain_table(
    grid: Mapping[str, Mapping[str, Accuracy]],
    source: Mapping[str, Accuracy],
    gains: Mapping[str, float],
    together: tuple[float, Mapping[str, float], str] | None,
) -> Table:
    """Return accuracies by corruption and method.

    `together` has those where images of a class come together: the source's, what methods add, and under what.
    """
    ranked = sorted(gains, key=lambda method: -gains[method])
    body = sorted(source, key=lambda name: source[name].value)
    lines = [
        (title(name), source[name].value, *(grid[m][name].value if name in grid[m] else None for m in ranked))
        for name in body
    ]
    caption = "source is the unadapted model; the other columns adapt to the stream they are tested on."
    if together is not None:
        alone, added, under = together
        lines.append((CORRELATED, alone, *(alone + added[m] if m in added else None for m in ranked)))
        caption += f" {CORRELATED.capitalize()}: images of one class arrive together, batches in turn under {under}."
    return Table(
        "Accuracy with each method, hardest corruption first",
        (Column("corruption"), *(Column(name, "percent", heat=(0.0, 1.0)) for name in ("source", *ranked))),
        tuple(lines),
        caption=caption,
    )


def cost_table(
    pace: Mapping[str, Sequence[float]],
    gains: Mapping[str, float],
    counts: Mapping[str, Counts],
    refused: Sequence[str],
) -> Table:
    """Return what methods gain and cost, and how often they updated and went back."""
    plain = median(pace["source"])
    ranked = sorted(gains, key=lambda method: -gains[method])
    return Table(
        "What it costs",
        (
            Column("method"),
            Column("points gained", "number"),
            Column("time per batch, relative to source", "number"),
            *(Column(title, "number") for title in Counts._fields),
        ),
        (
            *(
                (m, round(100 * gains[m], 1), round(median(pace[m]) / plain, 1), *counts.get(m, (None,) * 3))
                for m in ranked
            ),
            *((m, "does not apply", *(None,) * 4) for m in refused),
        ),
        caption="Times are medians over batches and corruptions, after a warm-up batch; batches, updates and resets "
        "are totals over all corruptions.",
    )


def prior_figure(found: Sequence[tuple[int, int, Row]]) -> Figure:
    """Return accuracy by prior, a line per size of batches; `found` has the size, the prior and what was counted."""
    parts: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for batch, prior, row in found:
        parts[batch, prior].append(row)
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
