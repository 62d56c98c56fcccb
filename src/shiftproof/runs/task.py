"""One small unit of work: a frozen dataclass that says what is measured, and measures it."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar

from shiftproof.runs.content import digest

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""What JSON can hold."""
Row: TypeAlias = Mapping[str, Json]
"""The numbers of a task, by name."""
Subject = TypeVar("Subject")

IDENTITY_VERSION = 2
"""Raised when the meaning of tasks changes, so that old results are not taken for new ones."""


class Task(ABC, Generic[Subject]):
    """What is measured, as the fields of a frozen dataclass, and how: `measure(subject)`.

    A subclass such as `CorruptedSlice(Task[Subject])` has a `kind`, "corruptions", and fields `shift`, `start`, `stop`.
    Its fields are plain data, dataclasses of it, or things with a `content_digest()`, such as shifts: tasks of the same
    type and content are equal, in every process. It can be pickled.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Power(Task[float]):
    ...     exponent: int
    ...     kind = "power"
    ...     def measure(self, subject):
    ...         return {"value": subject**self.exponent}
    >>> Power(2).measure(3.0)
    {'value': 9.0}
    """

    kind: str
    """A name for people, unlike that of every other type of task; what is before a dot says whose task it is."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__eq__ = Task.__eq__  # type: ignore[method-assign]  # or `dataclass` would make its own
        cls.__hash__ = Task.__hash__  # type: ignore[method-assign]

    @abstractmethod
    def measure(self, subject: Subject) -> Row:
        """Return the numbers of this task on its subject, as JSON values."""

    def code(self) -> str:
        """Return a digest of the code that measures, where a version of this package does not say which it is."""
        return ""

    @cached_property
    def content(self) -> str:
        """A digest of the type and of all fields."""
        kind = type(self)
        held = {each.name: getattr(self, each.name) for each in _fields(self)}
        return digest([IDENTITY_VERSION, f"{kind.__module__}.{kind.__qualname__}", self.code(), held])

    def identity(self, fingerprints: Mapping[str, str]) -> str:
        """Return a hash of what this task is and of what it is measured on, the key of its result in a store."""
        return self.identity_on(canonical(dict(fingerprints)))

    def identity_on(self, fingerprints: str) -> str:
        """Return the identity, given the canonical text of fingerprints."""
        return hashlib.blake2b(f"[{self.content},{fingerprints}]".encode(), digest_size=16).hexdigest()

    def parameters(self) -> dict[str, Json]:
        """Return the fields for people: those not at their default, each as JSON or as the text it prints as."""
        held = {each.name: getattr(self, each.name) for each in _fields(self) if not _usual(self, each)}
        return {name: _shown(value) for name, value in held.items()}

    def describe(self) -> dict[str, Json]:
        """Return what is measured as a row of a table; it is never read back."""
        return {"task": self.kind, **self.parameters()}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Task) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)

    def __str__(self) -> str:
        return f"{self.kind} {canonical(self.parameters())}"


AnyTask: TypeAlias = Task[Any]
"""A task on any subject."""


def canonical(value: Json) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, no NaN."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    # Bytes of a file's name that are not UTF-8 are written out, in JSON's own notation.
    return text.encode("utf-8", "backslashreplace").decode()


def _fields(task: Any) -> tuple[Field[Any], ...]:
    return fields(task)


def _usual(task: object, field: Field[Any]) -> bool:
    usual = field.default if field.default_factory is MISSING else field.default_factory()
    return usual is not MISSING and bool(getattr(task, field.name) == usual)


def _shown(value: object) -> Json:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _shown(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(held) for held in value]
    return str(value)
