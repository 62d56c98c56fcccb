"""What the section on test-time adaptation says of its numbers: the verdict, and how far gains are certain."""

from __future__ import annotations

from collections.abc import Mapping

from shiftproof.adapters import method
from shiftproof.audits.sections.advice import (
    UPDATES_THAT_TELL,
    Gains,
    count_updates,
    gain_interval,
    near_best,
    never_resets,
)
from shiftproof.audits.sections.wording import between
from shiftproof.reports.view import Sentence

HELPS = 0.02
"""The gain from which on adaptation is said to help, where it is beyond chance."""


def adaptation_verdict(
    best: str, told: str, gains: Mapping[str, float], per_image: Gains, together: Gains, updates: int
) -> Sentence:
    """Say what the method that is named gains, what it costs, and why it is not the one with the highest mean.

    `gains` are means over corruptions by method, `per_image` of each image, `together` where those of a class come
    together; `updates` is the most that a method made along a stream.
    """
    reach = gain_reach(per_image, told)
    won = f"{100 * max(gains[told], 0):.1f} points{f' ({reach})' if reach else ''} on average at the strongest severity"
    if helps(told, gains, per_image):
        said = f"Test-time adaptation ({told}) improves accuracy by {won}.{_where_it_costs(together, told)}"
        return Sentence(f"{said}{_why_not(best, told, gains, per_image)}", "good")
    few = (
        f"; methods that learn made at most {count_updates(updates)}, too few to tell what they add along a long stream"
    )
    said = (
        f"Test-time adaptation ({told}) is not shown to improve accuracy: it gains {won}"
        if gains[told] > HELPS
        else f"No method of test-time adaptation improves accuracy by more than {won}"
    )
    return Sentence(f"{said}{few if 0 < updates < UPDATES_THAT_TELL else ''}.")


def helps(name: str, gains: Mapping[str, float], per_image: Gains) -> bool:
    """Whether a method gains enough, and beyond chance where it is known of each image."""
    if gains[name] <= HELPS or name not in per_image:
        return gains[name] > HELPS
    reach = gain_interval(per_image[name], len(per_image))
    return reach is not None and reach.low > 0


def gain_reach(gains: Gains, name: str) -> str:
    """Return the interval of the mean gain over images, in points, of a method that is chosen among all."""
    return between(gain_interval(gains[name], len(gains)), "") if name in gains else ""


def _why_not(best: str, told: str, gains: Mapping[str, float], per_image: Gains) -> str:
    """Return why the method with the highest mean is not the one that is named."""
    more = f" {best} gains {100 * (gains[best] - gains[told]):.1f} points more"
    if best == told:
        return f" {best} never resets: a short stream does not show whether that lasts." if _unproven(best) else ""
    if _unproven(best):
        return f"{more}, but never resets: a short stream does not show whether that lasts."
    noise = ", which is within noise" if told in near_best(per_image) else ""
    if noise and method(best).cost > method(told).cost:
        return f"{more}{noise}, at a higher cost."
    return f"{more}{noise}, but less along the long stream."


def _where_it_costs(together: Gains, name: str) -> str:
    """Return what a method costs where images of a class come together, where that is beyond chance."""
    reach = gain_interval(together[name], len(together)) if name in together else None
    if reach is None or reach.high >= 0:
        return ""
    return f" Where images of one class arrive together it costs {-100 * float(together[name].mean()):.1f} points."


def _unproven(name: str) -> bool:
    return never_resets(method(name))
