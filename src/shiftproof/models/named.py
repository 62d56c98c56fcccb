"""Trained networks that come with the package: weights in half precision, each with a card that says what they are.

They lie in the folder `named`, as `NAME.safetensors` and `NAME.json`. A card holds `network`, the reference network the
weights are for; `summary`, a line for tables; and `training`, `measured`, `use`, `limits`, `licence` and `made`.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from shiftproof.registry import unknown

FOLDER: Traversable = files("shiftproof.models") / "named"
CARD = ".json"


@cache
def cards() -> dict[str, dict[str, Any]]:
    """Return the card of every network, by name."""
    found = sorted(FOLDER.iterdir(), key=lambda entry: entry.name) if FOLDER.is_dir() else ()
    return {
        entry.name.removesuffix(CARD): json.loads(entry.read_text("utf-8"))
        for entry in found
        if entry.name.endswith(CARD)
    }


def card(name: str) -> dict[str, Any]:
    """Return what is known of a network that comes with the package: its training, figures, use and limits.

    Args:
        name: A network of the package, such as `cifar10-gaussian-jsd`.
    """
    if name not in cards():
        raise unknown("network with a card", name, cards())
    return cards()[name]


def weights_of(name: str) -> Traversable:
    """Return the file of a network's weights."""
    return FOLDER / f"{name}.safetensors"
