"""What is to be done: a plan is a list of cells, and a cell is a task's name with its parameters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Row: TypeAlias = Mapping[str, Json]

IDENTITY_VERSION = 2
"""Raised when the meaning of a cell's parameters changes, so that old results are not taken for new ones."""


class Cell:
    """One small unit of work: `Cell("corruptions", shift="fog@3", images=1000)`.

    Its parameters are JSON values. Two cells with the same task and parameters are equal.
    """

    __slots__ = ("parameters", "task", "text")

    def __init__(self, task: str, /, **parameters: Json) -> None:
        self.task = task
        self.parameters: Mapping[str, Json] = MappingProxyType(dict(parameters))
        self.text = canonical(parameters)

    def __getitem__(self, name: str) -> Json:
        return self.parameters[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and (self.task, self.text) == (other.task, other.text)

    def __hash__(self) -> int:
        return hash((self.task, self.text))

    def __repr__(self) -> str:
        return f"Cell({self.task!r}, {self.text})"

    def __reduce__(self) -> tuple[object, ...]:
        return _cell, (self.task, dict(self.parameters))

    def identity(self, fingerprints: Mapping[str, str]) -> str:
        """Return a hash of what this cell is and of what it is measured on, the key of its result in a store."""
        return self._identity(canonical(dict(fingerprints)))

    def _identity(self, fingerprints: str) -> str:
        content = f"[{IDENTITY_VERSION},{canonical(self.task)},{self.text},{fingerprints}]"  # one canonical JSON list
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Result:
    """A finished cell: its row of numbers, or the error that stopped it, and the seconds it took."""

    cell: Cell
    row: Row | None
    error: str | None
    seconds: float


@dataclass(frozen=True)
class Plan:
    """Cells in the order they should run, and the fingerprints of what they are measured on."""

    cells: tuple[Cell, ...]
    fingerprints: Mapping[str, str]

    def identities(self) -> dict[str, Cell]:
        """Return the cells by identity, in order and without repeats."""
        fingerprints = canonical(dict(self.fingerprints))
        return {cell._identity(fingerprints): cell for cell in self.cells}


def canonical(value: Json) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, no NaN."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    # Bytes of a file's name that are not UTF-8 are written out, in JSON's own notation.
    return text.encode("utf-8", "backslashreplace").decode()


def _cell(task: str, parameters: dict[str, Json]) -> Cell:
    return Cell(task, **parameters)
