"""Names found among names: exactly, or else loosely, or else as ids and synonyms of ImageNet's classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from shiftproof.models import imagenet
from shiftproof.models.class_names import folded


def places(names: Sequence[str], known: Sequence[str]) -> list[list[int]]:
    """Return where each name is among others: none where it is unknown, several where it is ambiguous.

    >>> places(["Dog", "n02123045", "fox"], ["dog", "tabby, tabby cat"])
    [[0], [1], []]
    """
    exact, loose = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for place, other in enumerate(known):
        exact[other].append(place)
        loose[folded(other)].append(place)
    found = [exact.get(name) or loose.get(folded(name), []) for name in names]
    return found if all(found) else [some or more for some, more in zip(found, _as_imagenet(names, known), strict=True)]


def _as_imagenet(names: Sequence[str], known: Sequence[str]) -> list[list[int]]:
    """Return where each name is among others that mean the same class of ImageNet."""
    numbers = range(len(known))
    own = [(number,) for number in numbers] if imagenet.in_order(known) else imagenet.meanings(known)
    found = defaultdict[int, list[int]](list)
    for place, some in enumerate(own):
        if len(some) == 1:  # a name of two classes stands for neither
            found[some[0]].append(place)
    return [[place for one in some for place in found[one]] for some in imagenet.meanings(names)]
