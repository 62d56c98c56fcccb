"""What hardening has to say: in a report, and at a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from shiftproof.audits.sections.wording import between, percent, title
from shiftproof.hardening.hardened import Change, Hardened
from shiftproof.hardening.proof_audits import UNSEEN
from shiftproof.measures.intervals import CONFIDENCE, Interval
from shiftproof.reports.view import Action, Column, Figure, Level, Masthead, Sentence, Table, Tile, View
from shiftproof.shifts import names
from shiftproof.version import __version__

WAVE = "single_frequency_greyscale"
"""The corruption of C-bar that is like what every fine-tuning is trained on."""


def masthead(found: Hardened, audited: Masthead, command: str) -> Masthead:
    """Return what was hardened, and on what."""
    training, choosing, proof = found.images
    fitted = found.choice.fitted
    return Masthead(
        audited.model,
        audited.data,
        {
            "trained on": f"{training:,} images",
            "chosen by": f"{choosing:,} images",
            "proven on": f"{proof:,} images",
            "training": f"{fitted.epochs} epochs, {found.seconds:.0f} s",
            "written": time.strftime("%Y-%m-%d %H:%M"),
        },
        command,
        {
            "version": f"shiftproof {__version__}",
            "recipe": found.choice.recipe,
            "augmentation": found.choice.augment,
            "settings": ", ".join(f"{name} {value}" for name, value in fitted.to_row().items()),
            "intervals": f"of paired differences over images, {100 * CONFIDENCE:.0f}%",
        },
        kind="Robust fine-tuning",
    )


def verdict(found: Hardened) -> Sentence:
    """Say in a sentence what came of it."""
    if found.outcome == "nothing to mend":
        return Sentence(
            "Nothing is worth changing: neither the audit's corruptions nor the augmentations that could be trained on "
            "cost this network enough.",
            "good",
        )
    if found.kept is None:
        return Sentence(
            "Nothing was gained: no weights on the way are better under hold-out corruptions and lose at most "
            f"{_points(found)} of clean accuracy. The network stays as it was.",
            "watch",
        )
    if found.outcome == "too costly":
        clean = found.clean
        lost = 0.0 if clean is None else -100 * clean.value
        return Sentence(
            f"No model is handed over: the most careful one still loses {lost:.1f} points of clean accuracy on images "
            f"that it never saw, and {_points(found)} may be lost. The network stays as it was.",
            "bad",
        )
    said = [_said(change, name) for change, name in _headlines(found)]
    if found.outcome == "nothing gained":
        return Sentence(f"Nothing was gained for sure: {'; '.join(said)}. The network stays as it was.", "watch")
    return Sentence(f"Hardened: {'; '.join(said)}.", "good")


def _points(found: Hardened) -> str:
    return f"{found.max_clean_loss:g} point{'' if found.max_clean_loss == 1 else 's'}"


def views(found: Hardened) -> tuple[View, ...]:
    """Return what changed, what was weak, and which weights were kept."""
    made = [_changes(found)] if found.changes else [View("outcome", "What came of it", verdict=(verdict(found),))]
    made.append(_weaknesses(found))
    if found.candidates:
        made.append(_candidates(found))
    return tuple(made)


def _headlines(found: Hardened) -> list[tuple[Change, str]]:
    named = [(found.clean, "clean accuracy"), (found.corruptions, "accuracy under corruption")]
    named.append((found.unseen_corruptions, "under corruptions that played no part in choosing"))
    return [(change, name) for change, name in named if change is not None]


def _said(change: Change, name: str) -> str:
    reach = f" ({_reach(change)})" if change.low is not None else ""
    return f"{name} {percent(change.before)} to {percent(change.after)}, {100 * change.value:+.1f} points{reach}"


def _reach(change: Change) -> str:
    if change.low is None or change.high is None:
        return ""
    return between(Interval(change.low, change.high), " points", "+")


def _tile(change: Change, name: str) -> Tile:
    better = change.low is not None and change.low > 0
    worse = change.high is not None and change.high < 0
    level: Level = "good" if better else "bad" if worse else "plain"
    rule = "good or bad where the interval of the difference excludes zero"
    return Tile(name, f"{100 * change.value:+.1f} points", _reach(change), level, rule)


def _changes(found: Hardened) -> View:
    shown = _headlines(found)
    return View(
        "changes",
        "What got better, and what it cost",
        "On images that neither training nor choosing saw, is the network better?",
        verdict=(verdict(found),),
        tiles=tuple(_tile(change, name.capitalize()) for change, name in shown),
        blocks=tuple(
            _figure(changes, name)
            for changes, name in ((found.changes, "The audit's corruptions"), (found.unseen, "Others"))
            if changes
        ),
        actions=_actions(found),
        notes=(
            "Each image is its own control: the same images under the same shifts, before and after. Intervals of the "
            "accuracies under each corruption hold together.",
            "The audit's corruptions counted in choosing what to train on, though none of them was trained on; the "
            f"others (C-bar, Mintun et al. 2021) did not count in anything.{_without_waves(found)}",
        ),
        numbers={f"gain.{each.name}": each.value for each in found.changes},
    )


def _without_waves(found: Hardened) -> str:
    """Say how much the others rise where one of them is like what was trained on."""
    values = {each.name.removeprefix("accuracy."): each.value for each in found.unseen}
    if WAVE not in values or "random_wave" not in found.choice.augment:
        return ""
    others = [value for name, value in values.items() if name in names(UNSEEN) and name != WAVE]
    rise = 100 * sum(others) / len(others)
    return f" One of them is a wave, and waves were trained on; without it, they rise by {rise:+.1f} points."


def _figure(changes: Sequence[Change], name: str) -> Figure:
    rows = [each for each in changes if each.name.startswith("accuracy.")]
    rows.sort(key=lambda each: each.value)
    labels = [title(each.name.partition(".")[2]) for each in rows]
    values = [100 * each.value for each in rows]
    ends = [(100 * (each.low or each.value), 100 * (each.high or each.value)) for each in rows]
    error = {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, (_, high) in zip(values, ends, strict=True)],
        "arrayminus": [value - low for value, (low, _) in zip(values, ends, strict=True)],
    }
    plot = {
        "data": [{"type": "bar", "orientation": "h", "y": labels, "x": values, "error_x": error}],
        "layout": {"xaxis": {"title": {"text": "points of accuracy"}}, "height": 60 + 24 * len(rows)},
    }
    columns = (
        Column("corruption"),
        Column("before", "percent"),
        Column("after", "percent"),
        Column("points", "number"),
    )
    table = Table(
        name,
        columns,
        tuple(
            (label, each.before, each.after, round(100 * each.value, 1))
            for label, each in zip(labels, rows, strict=True)
        ),
    )
    return Figure(name, plot, table)


def _weaknesses(found: Hardened) -> View:
    rows = tuple(
        (
            each.remedy,
            round(100 * each.probed, 1),
            None if each.audited is None else round(100 * each.audited, 1),
            each.reason,
            each.chosen or "",
        )
        for each in found.weaknesses
    )
    columns = (
        Column("kind"),
        Column("points lost under it", "number"),
        Column("under corruptions like it", "number"),
        Column("why"),
        Column("augmentation"),
    )
    return View(
        "weaknesses",
        "What was weak, and what was chosen",
        "Which changes cost accuracy, and which augmentation is against them?",
        blocks=(Table("Weaknesses", columns, rows),),
        notes=(
            "Lost under it: under the augmentation itself at its strongest, on the images for choosing. --augment and "
            "--recipe choose otherwise.",
        ),
    )


def _candidates(found: Hardened) -> View:
    weak = any(each.weak is not None for each in found.candidates)
    rows = tuple(
        (f"{each.share:.0%}", each.clean, each.holdout, *([each.weak] if weak else [])) for each in found.candidates
    )
    columns = (
        Column("way from the old weights"),
        Column("clean", "percent"),
        Column("hold-out", "percent"),
        *([Column("what was weak", "percent")] if weak else []),
    )
    kept = "none" if found.kept is None else f"{found.kept.share:.0%}"
    return View(
        "candidates",
        "Which weights were kept",
        "How far from the old weights to the new is best?",
        blocks=(Table(f"Weights on the way; kept: {kept}", columns, rows),),
        notes=(
            "On the images for choosing. Hold-out is the mean over speckle noise, Gaussian blur, spatter and "
            f"saturation at severities 2 and 4. Up to {_points(found)} of clean accuracy may be lost."
            + (" What was weak in particular counts as much as hold-out." if weak else ""),
        ),
    )


def _actions(found: Hardened) -> tuple[Action, ...]:
    gained = found.corruptions
    if found.model is None or gained is None:
        return ()
    return (
        Action(
            "Use the hardened network",
            "It is what was measured here.",
            f'model = shiftproof.load_model("{found.model}")',
            gain=100 * gained.value,
            on="on average under corruption",
        ),
    )
