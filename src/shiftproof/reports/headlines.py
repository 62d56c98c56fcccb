"""What a reader in a hurry gets: the few sentences, tiles and actions that matter most among all that sections say."""

from __future__ import annotations

from collections.abc import Sequence

from shiftproof.reports.view import Action, Sentence, Tile, View

SENTENCES = 6
ACTIONS = 5
URGENCY = ("bad", "watch", "good", "plain")


def verdict(views: Sequence[View]) -> list[tuple[View, Sentence]]:
    """Return at most six sentences with their sections, in the report's order.

    Where there are more, caveats and the first of a section go before others, and what is worse before what is better.
    """
    said = [(view, sentence) for view in views for sentence in view.verdict]
    later = [place > 0 and view.section != "caveats" for view in views for place, _ in enumerate(view.verdict)]
    ranked = sorted(range(len(said)), key=lambda number: (later[number], URGENCY.index(said[number][1].level)))
    return [said[number] for number in sorted(ranked[:SENTENCES])]


def tiles(views: Sequence[View]) -> list[tuple[View, Tile]]:
    """Return every tile with its section."""
    return [(view, tile) for view in views for tile in view.tiles]


def actions(views: Sequence[View]) -> list[tuple[View, Action]]:
    """Return at most five actions with their sections: first what was measured to help, then what may, most first."""
    found = [(view, action) for view in views for action in view.actions]
    return sorted(found, key=lambda entry: _rank(entry[1]))[:ACTIONS]


def _rank(action: Action) -> tuple[int, float]:
    if action.gain is None:
        return 2, 0.0
    return int(action.bound), -action.gain
