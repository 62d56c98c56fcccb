"""How the section on confidence draws and tabulates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shiftproof.audits.sections.answer_scores import LEVEL, AnswerScores
from shiftproof.audits.sections.wording import title
from shiftproof.measures.self_knowledge import Reliability
from shiftproof.reports.view import Column, Figure, Table

if TYPE_CHECKING:
    from shiftproof.audits.sections.confidence_under_shift import AnswerSummary

NAMES = {"confidence": "confidence", "energy": "energy", "neighbors": "kNN"}


def reliability_figure(clean: AnswerScores, shifted: AnswerScores, inputs: str) -> Figure:
    """Draw accuracy against confidence in bins, clean and under all shifts together."""
    curves = {name: Reliability.of(one.confidence, one.right) for name, one in (("clean", clean), ("shifted", shifted))}
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [0, 100],
            "y": [0, 100],
            "hoverinfo": "skip",
            "showlegend": False,
            "line": {"dash": "dot", "color": "var(--muted)"},
        },
        *(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": (100 * one.confidence).round(2).tolist(),
                "y": (100 * one.accuracy).round(2).tolist(),
                "text": [f"{count:,} {inputs}" for count in one.inputs.tolist()],
                "hovertemplate": "%{text}: confidence %{x:.1f}%, accuracy %{y:.1f}%<extra></extra>",
                "marker": {"color": f"var(--series-{number})"},
            }
            for number, (name, one) in enumerate(curves.items(), 1)
        ),
    ]
    layout = {
        "xaxis": {"title": {"text": "mean confidence, %"}, "range": [0, 101]},
        "yaxis": {"title": {"text": "accuracy, %"}, "range": [0, 101]},
        "height": 360,
    }
    table = Table(
        "Confidence and accuracy by bin",
        (Column("set"), Column(inputs, "number"), Column("mean confidence", "percent"), Column("accuracy", "percent")),
        tuple(
            (name, count, sure, right)
            for name, one in curves.items()
            for count, sure, right in zip(
                one.inputs.tolist(), one.confidence.tolist(), one.accuracy.tolist(), strict=True
            )
        ),
    )
    gap = float(shifted.confidence.mean() - shifted.right.mean())
    side = "overconfident" if gap > 0 else "underconfident"
    return Figure(
        f"Under shift it is {side} by {abs(100 * gap):.1f} points",
        {"data": data, "layout": layout},
        table,
        caption="Reliability diagram: answers in bins of confidence. On the dotted line confidence equals accuracy; "
        "below it the model is overconfident.",
    )


def shift_table(known: Mapping[str, AnswerSummary], coverages: Sequence[int], scores: Sequence[str]) -> Table:
    """Tabulate all of it by shift, the worst calibrated first, after the clean set."""
    first, *others = known
    order = [first, *sorted(others, key=lambda name: -known[name].ece)]
    return Table(
        "Confidence by shift",
        (
            Column("shift"),
            Column("accuracy", "percent"),
            Column("mean confidence", "percent"),
            Column("ECE, points", "number", heat=(40, 0)),
            *(Column(f"accuracy at {share}% coverage", "percent") for share in coverages),
            *(Column(f"AUROC of {NAMES[score]}, wrong answers", "number", heat=(0.5, 1.0)) for score in scores),
            Column(f"coverage of {100 * LEVEL:.0f}% prediction sets", "percent", heat=(0.5, 1.0)),
            Column("classes per set", "number"),
        ),
        tuple(
            (
                title(name),
                known[name].accuracy,
                known[name].confidence,
                round(100 * known[name].ece, 1),
                *(known[name].at_coverage(share) for share in coverages),
                *(_rounded(known[name].error_auroc(score)) for score in scores),
                known[name].coverage,
                round(known[name].size, 2),
            )
            for name in order
        ),
        caption="Accuracy at 70% coverage is on the 70% of inputs of highest confidence. Coverage of prediction sets "
        "is how often they contain the true class.",
    )


def foreign_table(clean: AnswerSummary, foreign: Mapping[str, AnswerScores], scores: Sequence[str]) -> Table:
    """Tabulate how well foreign inputs are told from clean ones."""
    return Table(
        "Inputs of no class",
        (
            Column("what they are"),
            Column("mean confidence", "percent"),
            *(Column(f"AUROC of {NAMES[score]}", "number", heat=(0.5, 1.0)) for score in scores),
        ),
        tuple(
            (
                what,
                float(one.confidence.mean()),
                *(_rounded(clean.foreign_auroc(score, one)) for score in scores),
            )
            for what, one in foreign.items()
        ),
        caption="How often a clean input scores above a foreign one; 0.5 is chance.",
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
