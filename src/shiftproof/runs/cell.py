"""A task without a type of its own: a name and JSON parameters, which whoever made it knows how to measure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

from shiftproof.runs.task import Json, Row, Task, canonical

IDENTITY_VERSION = 2


class CellWorker(Protocol):
    """What measures cells."""

    def measure(self, task: Cell, /) -> Row:
        """Return the numbers of a cell."""


class Cell(Task[CellWorker]):
    """A task for scripts: `Cell("corruptions", shift="fog@3", images=1000)`.

    Its parameters are JSON values. Two cells with the same kind and parameters are equal. A store that is read without
    its plan gives back its tasks as cells, by their descriptions.

    Args:
        kind: What is to be done.
        parameters: JSON values.

    >>> Cell("corruptions", shift="fog@3") == Cell("corruptions", shift="fog@3")
    True
    """

    def __init__(self, kind: str, /, **parameters: Json) -> None:
        self.kind = kind
        self._parameters: Mapping[str, Json] = MappingProxyType(dict(parameters))
        self.text = canonical(parameters)

    def __getitem__(self, name: str) -> Json:
        return self._parameters[name]

    def measure(self, subject: CellWorker) -> Row:
        """Let the subject measure it."""
        return subject.measure(self)

    def parameters(self) -> dict[str, Json]:
        """Return the parameters."""
        return dict(self._parameters)

    @cached_property
    def content(self) -> str:
        """The kind and the parameters, as text."""
        return f"{IDENTITY_VERSION},{canonical(self.kind)},{self.text}"

    def identity_on(self, fingerprints: str) -> str:
        """Return the identity, given the canonical text of fingerprints."""
        content = f"[{self.content},{fingerprints}]"  # one canonical JSON list
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return f"Cell({self.kind!r}, {self.text})"

    def __reduce__(self) -> tuple[object, ...]:
        return _cell, (self.kind, dict(self._parameters))


def _cell(kind: str, parameters: dict[str, Json]) -> Cell:
    return Cell(kind, **parameters)
