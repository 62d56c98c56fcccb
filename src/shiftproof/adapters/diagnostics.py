"""Whether a method that is meant to learn does: updates and resets against the batches it was given."""

from __future__ import annotations

from typing import NamedTuple

from shiftproof.adapters.method import Method
from shiftproof.adapters.resets import EachShift, Every, Reset

MIN_UPDATE_SHARE = 1 / 2
"""A method that learns from every batch and updates in fewer of them hardly learns."""
MAX_RESET_SHARE = 1 / 10
"""A method that goes back in more of its batches by its own judgement keeps nothing of what it learns."""


class Counts(NamedTuple):
    """Batches answered, updates made, and resets.

    Args:
        batches: Batches answered.
        updates: Updates made.
        resets: Resets.
    """

    batches: int
    updates: int
    resets: int


def diagnose(method: Method, policy: Reset, counts: Counts) -> tuple[str, ...]:
    """Return warnings about a learning method that hardly updates, or that resets too often to keep anything.

    Methods that learn from a memory now and then give one only where they never did; fixed reset policies give none.

    Args:
        method: The method that was used.
        policy: Its reset policy.
        counts: Batches, updates and resets.

    >>> from shiftproof.adapters import method, never
    >>> diagnose(method("tent"), never, Counts(batches=200, updates=200, resets=0))
    ()
    """
    batches, updates, resets = counts
    said = []
    if method.needs_gradients and not method.own_memory and updates < MIN_UPDATE_SHARE * batches:
        said.append(
            f"{method.name} updated in {updates:,} of {batches:,} batches: its filters drop nearly every image, and it "
            "answers almost as if it did not learn"
        )
    if method.needs_gradients and method.own_memory and batches and not updates:
        said.append(
            f"{method.name} made no update in {batches:,} batches: it learns from its memory once there are enough new "
            "images, 64 unless update_every says otherwise"
        )
    if resets > MAX_RESET_SHARE * batches and not isinstance(policy, Every | EachShift):
        said.append(
            f"{method.name} went back to its start {resets:,} times in {batches:,} batches: it keeps next to nothing "
            "of what it learns"
        )
    return tuple(said)
