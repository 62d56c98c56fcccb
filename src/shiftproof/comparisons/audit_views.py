"""What a comparison has to say: in a report, and at a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from shiftproof.audits.sections.wording import between, listed, title
from shiftproof.comparisons.audit_comparison import Comparison, Difference
from shiftproof.measures.intervals import CONFIDENCE, MIN_IMAGES, Interval
from shiftproof.reports.view import Column, Figure, Level, Masthead, Sentence, Table, Tile, View
from shiftproof.version import __version__

HEADLINES = ("clean_accuracy", "corruption_accuracy", "mce")
LEVELS: dict[str, Level] = {"better": "good", "worse": "bad"}
RULE = "good or bad where the interval of the difference excludes zero"
AS_THEY_ARE = ("mce", "acr", "stability.collapsed")
"""Numbers that are no fractions: their differences are not points of accuracy."""
SHOWN = 3


def masthead(found: Comparison, command: str) -> Masthead:
    """Return what was compared."""
    return Masthead(
        " against ".join([*reversed(found.labels[1:]), found.labels[0]]),
        found.data,
        {
            "images": f"{found.images:,}",
            **dict(zip(found.labels, found.models, strict=True)),
            "written": time.strftime("%Y-%m-%d %H:%M"),
        },
        command,
        {
            "version": f"shiftproof {__version__}",
            "intervals": f"of paired differences over images, {100 * CONFIDENCE:.0f}%",
            **({"left out": " ".join(found.notes)} if found.notes else {}),
        },
        kind="Comparison of audits",
    )


def views(found: Comparison) -> tuple[View, ...]:
    """Return a view for every audit that is compared with the first."""
    return tuple(_view(found, label) for label in found.differences)


def _view(found: Comparison, label: str) -> View:
    first, differences = found.labels[0], found.differences[label]
    charted = [one for one in differences if one.low is not None and one.better and one.name not in AS_THEY_ARE]
    return View(
        label,
        f"{label} against {first}",
        f"Is {label} better or worse than {first}, and where?",
        verdict=(verdict(found, label),),
        tiles=tuple(_tile(one, label) for name in HEADLINES for one in differences if one.name == name),
        blocks=(*([_chart(charted, label, first)] if charted else []), _table(differences, label, first)),
        notes=(
            "The same images under the same shifts with the same random draws: each image is its own control.",
            "Intervals are of other images like these, so that models that agree on all of these have one too. Those "
            "of a family, such as the accuracies under each corruption, hold together at 95%; of twenty numbers of "
            "different kinds that did not change, one at most is expected to look as if it had. A number without an "
            f"interval is not a mean over {MIN_IMAGES} images or more, and its difference may be chance.",
        ),
    )


def verdict(found: Comparison, label: str) -> Sentence:
    """Say in a sentence whether an audit is better or worse than the first."""
    first, differences = found.labels[0], found.differences[label]
    better, worse = found.with_verdict(label, "better"), found.with_verdict(label, "worse")
    if all(one.verdict == "equal" for one in differences):
        return Sentence(f"{label} is equal to {first} in all of {len(differences)} numbers.")
    if not better and not worse and (changed := found.with_verdict(label, "changed")):
        return Sentence(
            f"Nothing got better or worse from {first} to {label} beyond chance. Changed: {_most(changed)}."
        )
    if not better and not worse:
        return Sentence(f"No difference between {label} and {first} can be told from chance.")
    if worse and not better:
        return Sentence(f"{label} is worse than {first}: {_most(worse)}. Nothing got better beyond chance.", "bad")
    if better and not worse:
        return Sentence(f"{label} is better than {first}: {_most(better)}. Nothing got worse beyond chance.", "good")
    return Sentence(
        f"{label} is better than {first} in some ways ({_most(better)}), worse in others ({_most(worse)}).", "watch"
    )


def words(name: str) -> str:
    """Write the name of a number as words: `accuracy.fog` is accuracy under fog."""
    kind, dot, rest = name.partition(".")
    joints = {
        "accuracy": "under",
        "acr": "under",
        "gain": "by",
        "certified_accuracy": "within",
        "certified_range": "against",
    }
    between = joints.get(kind, "of")
    return " ".join([title(kind), *([between, title(rest)] if dot else [])]).replace("mce", "mCE").replace("acr", "ACR")


def _most(differences: Sequence[Difference]) -> str:
    """Name the differences that matter most: headlines first, then the largest."""
    ranked = sorted(differences, key=lambda one: (one.name not in HEADLINES, one.name in AS_THEY_ARE, -abs(one.value)))
    told = [f"{words(one.name)} {_change(one)} ({_interval(one)})" for one in ranked[:SHOWN]]
    rest = len(ranked) - len(told)
    return listed([*told, f"{rest} more"]) if rest else listed(told)


def _change(one: Difference) -> str:
    return f"{one.value:+.3g}" if one.name in AS_THEY_ARE else f"{100 * one.value:+.1f} points"


def _interval(one: Difference) -> str:
    if one.low is None or one.high is None:
        return ""
    if one.name in AS_THEY_ARE:
        return f"{one.low:+.3g} to {one.high:+.3g}"
    return between(Interval(one.low, one.high), " points", "+")


def _tile(one: Difference, label: str) -> Tile:
    return Tile(f"{label}: {words(one.name)}", _change(one), _interval(one), LEVELS.get(one.verdict, "plain"), RULE)


def _chart(charted: Sequence[Difference], label: str, first: str) -> Figure:
    ranked = sorted(charted, key=lambda one: one.value, reverse=True)
    names = [words(one.name) for one in ranked]
    points = [round(100 * one.value, 3) for one in ranked]
    worst, best = ranked[-1], ranked[0]
    plot = {
        "data": [
            {
                "type": "scatter",
                "mode": "markers",
                "x": points,
                "y": names,
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [round(100 * ((one.high or 0.0) - one.value), 3) for one in ranked],
                    "arrayminus": [round(100 * (one.value - (one.low or 0.0)), 3) for one in ranked],
                },
            }
        ],
        "layout": {
            "xaxis": {"title": {"text": f"{label} less {first}, points"}, "zeroline": True},
            "yaxis": {"automargin": True},
        },
    }
    table = Table(
        "Differences in points",
        (Column("number"), Column("difference", "number"), Column("from", "number"), Column("to", "number")),
        tuple(
            (
                words(one.name),
                round(100 * one.value, 2),
                round(100 * (one.low or 0.0), 2),
                round(100 * (one.high or 0.0), 2),
            )
            for one in ranked
        ),
    )
    finding = (
        f"Nothing differs between {label} and {first}"
        if all(one.value == 0 for one in ranked)
        else f"From {words(best.name)} ({_change(best)}) to {words(worst.name)} ({_change(worst)})"
    )
    return Figure(finding, plot, table, caption="A bar that does not touch zero is a difference beyond chance.")


def _table(differences: Sequence[Difference], label: str, first: str) -> Table:
    return Table(
        "Every number",
        (
            Column("number"),
            Column("section"),
            Column(first, "number"),
            Column(label, "number"),
            Column("difference", "number"),
            Column("95% interval"),
            Column("what can be said"),
        ),
        tuple(
            (
                words(one.name),
                one.section.replace("_", " "),
                round(one.one, 4),
                round(one.other, 4),
                round(one.value, 4),
                _interval(one),
                one.verdict,
            )
            for one in differences
        ),
    )
