"""What a value is, by content: a digest that is the same in every process, and another for every other content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Protocol, runtime_checkable


@runtime_checkable
class HasContent(Protocol):
    """What says itself what it is made of: a shift, a method of adaptation, a model."""

    def content_digest(self) -> str:
        """Return a digest of all that decides what this does, code of other packages included."""


_PLAIN = {type(None), bool, int, float, str, bytes}
"""Most values are of these: they are not asked whether they have a content, which takes longer than a digest."""


def digest(value: object) -> str:
    """Return 32 hexadecimal digits of BLAKE2 of a value: plain data, a dataclass of it, or what has a content.

    Plain data are None, booleans, numbers, text, bytes, paths, enumerations, and sequences, sets and mappings of these.

    >>> digest([1, "a"]) == digest((1, "a")), digest(1) == digest(1.0)
    (True, False)
    """
    blake = hashlib.blake2b(digest_size=16)
    for part in _parts(value):
        data = part.encode("utf-8", "backslashreplace")
        blake.update(len(data).to_bytes(8, "little") + data)  # no two values give the same stream of bytes
    return blake.hexdigest()


def _parts(value: object) -> Iterator[str]:  # noqa: PLR0912  (a case per kind of value)
    match value:
        case _ if type(value) in _PLAIN:
            yield from (type(value).__name__, repr(value))
        case HasContent() if not isinstance(value, type):
            yield from ("content", _name(type(value)), value.content_digest())
        case Enum():
            yield from ("enum", _name(type(value)), value.name)
        case None | bool() | int() | float() | str() | bytes():
            yield from (type(value).__name__, repr(value))
        case PurePath():
            yield from ("path", str(value))
        case range():
            yield from ("range", repr(value))
        case Mapping():
            yield from ("mapping", str(len(value)))
            for key, held in sorted((digest(key), digest(held)) for key, held in value.items()):
                yield from (key, held)
        case set() | frozenset():
            yield from ("set", str(len(value)), *sorted(map(digest, value)))
        case list() | tuple():
            yield from ("sequence", str(len(value)))
            for held in value:
                yield from _parts(held)
        case _ if is_dataclass(value) and not isinstance(value, type):
            yield from ("dataclass", _name(type(value)))
            for field in fields(value):
                yield field.name
                yield from _parts(getattr(value, field.name))
        case _:
            raise TypeError(
                f"{_name(type(value))} has no digest: a task holds plain data, dataclasses of it, and what has a "
                "content_digest()"
            )


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
