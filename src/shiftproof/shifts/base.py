"""What every shift is: a frozen dataclass, called as `shift(inputs, keys, seed=0) -> inputs`.

A shift acts on images or on texts: `ImageShift` and `TextShift` are its two kinds, from which shifts derive.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from shiftproof.data.base import NOUNS, Inputs
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.models.identity import digest
from shiftproof.shifts.forms import bracketed, plain, stated

LARGEST_SEVERITY = 5.0

_Cached = TypeVar("_Cached", bound=Any)
_readers: list[Any] = []
_seen: dict[str, object] = {}


def reads_files(cached: _Cached) -> _Cached:
    """Mark a cached function that reads files of shifts: it forgets them when they are found to have changed."""
    _readers.append(cached)
    return cached


@dataclass(frozen=True)
class Shift(ABC, Generic[Inputs]):
    """A change of the input: a `name`, a `severity` in [0, 5], and a call that keeps the number and kind of its inputs.

    Severity 0 returns the inputs unchanged.

    Args:
        name: The name of the shift.
        severity: From 0, no change, to 5.
    """

    acts_on: ClassVar[str]
    """The kind of its inputs: `images` or `texts`."""
    category: ClassVar[str] = "other"
    monotone: ClassVar[bool] = True
    """Facts for tables: the kind of change, and whether higher severities always change inputs more. For built-in
    corruptions they are in the severity tables."""

    name: str
    severity: float

    def __post_init__(self) -> None:
        check_severity(self.name, self.severity)

    @property
    def label(self) -> str:
        """The text form: name, severity and non-default fields, which `shifts.parse` reads back."""
        return f"{self.name}@{plain(self.severity)}{bracketed(stated(self, without=('name', 'severity')))}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats on this shift, for reports."""
        return ()

    def decides_outputs(self) -> object:
        """Return what distinguishes shifts of one class: their fields, and the content of their `files`."""
        kind = type(self)
        kept = (name for name in vars(self) if not isinstance(getattr(kind, name, None), cached_property))
        held = {name: _number(getattr(self, name)) for name in sorted(kept) if name != "device"}
        return [held, [_content(path) for path in self.files()]]

    def content_digest(self) -> str:
        """Return a digest of everything that determines the shift: its class, fields and files, but not its label."""
        return digest(self) if self.files() else self._content  # files may be edited while a shift is held

    @cached_property
    def _content(self) -> str:
        return digest(self)

    def files(self) -> tuple[str, ...]:
        """Return the files and folders whose content determines the shift."""
        return ()

    def __str__(self) -> str:
        return self.label

    def __call__(self, inputs: Inputs, keys: Tensor | Sequence[int], *, seed: int = 0) -> Inputs:
        """Return shifted copies of inputs; the random draws for an input depend only on its key and the seed."""
        self.check(inputs)
        named = check_keys(keys, len(inputs), self.acts_on)
        return self._shifted(inputs, named, seed) if self.severity and len(inputs) else self._copied(inputs)

    @abstractmethod
    def check(self, inputs: Inputs) -> None:
        """Raise an error unless the inputs are of its kind."""

    @abstractmethod
    def _copied(self, inputs: Inputs) -> Inputs:
        """Return inputs that stay as they are."""

    @abstractmethod
    def _shifted(self, inputs: Inputs, keys: Tensor, seed: int) -> Inputs:
        """Return shifted copies of inputs, one or more, at a severity above 0."""


def _number(value: object) -> object:
    """Return a whole number as the float it equals: severity 3 is severity 3.0."""
    return float(value) if type(value) is int and abs(value) < 2**53 else value


def _content(path: str) -> object:
    """Return the bytes of a file, or of all files of a folder, as digests by path."""
    place = Path(path).expanduser()
    found = sorted(file for file in place.rglob("*") if file.is_file()) if place.is_dir() else [place]
    told = []
    for file in found:
        if file.is_file():
            with file.open("rb") as opened:
                told.append((str(file.relative_to(place)), hashlib.file_digest(opened, "blake2b").digest()))
    if _seen.setdefault(path, told) != told:
        _seen[path] = told
        for cached in _readers:
            cached.cache_clear()
    return told


def check_severity(name: str, severity: float) -> None:
    """Refuse a severity outside [0, 5]."""
    if not 0.0 <= severity <= LARGEST_SEVERITY:
        raise ConfigurationError(
            f"Shift {name!r} has no severity {severity:g}.",
            expected="a number from 0 (the input unchanged) to 5 (strongest); fractions are allowed",
            got=f"{severity:g}",
        )


def check_keys(keys: Tensor | Sequence[int], count: int, kind: str) -> Tensor:
    """Return the keys of so many inputs of a kind as a tensor; refuse another number of them."""
    keys = torch.as_tensor(keys, dtype=torch.int64)
    if keys.shape != (count,):
        one = NOUNS[kind].one
        raise DataError(
            f"Every {one} needs a key.",
            expected=f"{count} keys, one per {one}",
            got=f"keys of shape {tuple(keys.shape)}",
        )
    return keys
