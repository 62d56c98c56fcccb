"""ImageNet's 1,000 classes: their WordNet ids and names, in the order of a network's outputs.

`imagenet.json` holds, for each id, the words of its WordNet entry. A folder of ImageNet images is named by one or the
other, and a network of 1,000 outputs rarely says either.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from shiftproof.models.class_names import folded

CLASSES = 1000
_UNIQUE = {"n02012849": "crane bird", "n03710721": "maillot tank suit"}
"""Names, those of torchvision's weights, of the two classes whose first word is another class's too."""


@cache
def _entries() -> dict[str, str]:
    entries: dict[str, str] = json.loads((files("shiftproof.models") / "imagenet.json").read_text("utf-8"))["classes"]
    return entries


def wordnet_ids() -> tuple[str, ...]:
    """Return the WordNet ids, `n01440764` first."""
    return tuple(_entries())


def names() -> tuple[str, ...]:
    """Return an English name of each class, no two the same: torchvision's."""
    return tuple(_UNIQUE.get(number, words.split(", ")[0]) for number, words in _entries().items())


def meanings(found: Sequence[str]) -> list[tuple[int, ...]]:
    """Return which classes each name may stand for, by id or by name; none for a name that ImageNet does not have.

    A name that is two classes' own is the one that no other name of these stands for.

    >>> meanings(["n01443537", "Great_white_shark", "crane", "unicorn"])
    [(1,), (2,), (134, 517), ()]
    >>> meanings(["crane bird", "crane"])
    [(134,), (517,)]
    """
    meant = [_meaning(name) for name in found]
    taken = {one[0] for one in meant if len(one) == 1}
    return [one if len(one) < 2 else tuple(place for place in one if place not in taken) or one for one in meant]


def in_order(known: Sequence[str]) -> bool:
    """Whether names are those of ImageNet's classes, most of them spelt as WordNet has them, in the usual order."""
    return len(known) == CLASSES and sum(place in _meaning(name) for place, name in enumerate(known)) > CLASSES / 2


@cache
def _meaning(name: str) -> tuple[int, ...]:
    """Return the classes that a name stands for, by the first way of reading it that knows it."""
    exact, loose = _levels()
    found = [level.get(name) for level in exact] + [level.get(folded(name)) for level in loose]
    return next(filter(None, found), ())


@cache
def _levels() -> tuple[list[dict[str, tuple[int, ...]]], ...]:
    """Return what names mean as an id, a whole entry, its first word, or any of its words: exactly, and loosely."""
    levels = [[defaultdict[str, set[int]](set) for _ in range(4)] for _ in range(2)]
    for place, (number, words) in enumerate(_entries().items()):
        first, *others = words.split(", ")
        read = ([number], [words, _UNIQUE.get(number, words)], [first], others)
        for exact, loose, some in zip(*levels, read, strict=True):
            for name in some:
                exact[name].add(place)
                loose[folded(name)].add(place)
    return tuple([{name: tuple(sorted(some)) for name, some in level.items()} for level in one] for one in levels)
