"""The text form of a shift, written and read: a name, @severity or =level, and its fields, `[density=0.3,wet=True]`.

Fields at their default are left out; the others are read by their annotations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, NamedTuple

from shiftproof.errors import ConfigurationError
from shiftproof.options import hints, read
from shiftproof.registry import unknown

_GRAMMAR = re.compile(r"\s*([^@=\[\]]*?)\s*(?:([@=])([^\[\]]*))?(?:\[(.*)\])?\s*")


class Form(NamedTuple):
    """A text that names a shift, in its parts: `rotate=15[fill=reflect]` has the sign = of a level, and the number 15.

    The sign @ is that of a severity; without a sign there is no number.
    """

    text: str
    name: str
    sign: str
    number: float | None
    fields: dict[str, str]

    def unreadable(self, expected: str, got: str | None = None) -> ConfigurationError:
        """Return the error for a text that is no shift."""
        return ConfigurationError(f"Cannot read the shift {self.text!r}.", expected=expected, got=got or self.text)


def split(text: str) -> Form:
    """Return the parts of the text form of one shift.

    >>> split("rotate=15[fill=reflect]")[1:]
    ('rotate', '=', 15.0, {'fill': 'reflect'})
    """
    match = _GRAMMAR.fullmatch(text)
    whole = Form(text, "", "", None, {})
    if match is None:
        raise whole.unreadable("a name, @severity or =level or neither, and [name=value,...] where there are options")
    name, sign, number, inside = match.groups()
    pairs = (pair.partition("=") for pair in (inside or "").split(",") if pair.strip())
    values = {key.strip(): value.strip() for key, _, value in pairs}
    try:
        return Form(text, name, sign or "", float(number) if sign else None, values)
    except ValueError:
        expected = (
            "a severity from 0 to 5, such as fog@3 or fog@3.5" if sign == "@" else "a level, such as contrast=0.8"
        )
        raise whole.unreadable(f"a name, {sign} and {expected}", repr(number)) from None


def plain(number: float) -> str:
    """Write a number with all the digits it needs and no more: 0.8, 30, 0.6421052631578947."""
    return repr(float(number)).removesuffix(".0")


def written(value: object) -> str:
    """Return the text of a value: words as they are, numbers with all their digits."""
    return plain(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def bracketed(values: Mapping[str, object]) -> str:
    """Return `[name=value,...]`, and nothing where there are no values."""
    told = ",".join(f"{name}={written(value)}" for name, value in values.items())
    return f"[{told}]" if told else ""


def stated(thing: Any, without: tuple[str, ...] = ()) -> dict[str, object]:
    """Return the fields of a dataclass's object that are given when it is made and are not at their default."""
    return {
        each.name: getattr(thing, each.name)
        for each in fields(thing)
        if each.init and each.name not in without and not _is_default(each, getattr(thing, each.name))
    }


def typed(kind: Any, given: Mapping[str, Any], what: str, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return options for a dataclass: texts become what its fields are annotated as, other values stay as they are.

    Refuses those it does not have, and texts that cannot be read; `what` names the thing in errors.
    """
    known = {name: hint for name, hint in hints(kind).items() if name not in without}
    for name in given:
        if name not in known:
            raise unknown(f"option of {what!r}", name, known)
    return {name: read(kind, name, value, what) if isinstance(value, str) else value for name, value in given.items()}


def missing(kind: Any, given: Mapping[str, Any], without: tuple[str, ...] = ()) -> list[str]:
    """Return the fields of a dataclass that need a value and have none."""
    return [
        each.name
        for each in fields(kind)
        if each.init and each.name not in {*given, *without} and each.default is each.default_factory is MISSING
    ]


def _is_default(each: Field[Any], value: object) -> bool:
    default = each.default_factory() if each.default_factory is not MISSING else each.default
    try:
        return type(default) is type(value) and bool(default == value)
    except (RuntimeError, ValueError):  # tensors and arrays, which are compared value by value
        return False
