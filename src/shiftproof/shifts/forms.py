"""The text form of a shift's fields, `[density=0.3,wet=True]`: those not at their default, written and read by type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from shiftproof.errors import ConfigurationError
from shiftproof.registry import unknown


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


def pairs(inside: str | None) -> dict[str, str]:
    """Return the names and values of `name=value,name=value`."""
    split = (pair.partition("=") for pair in (inside or "").split(",") if pair.strip())
    return {name.strip(): value.strip() for name, _, value in split}


def typed(kind: Any, given: Mapping[str, Any], what: str, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return options for a dataclass: texts become what its fields are annotated as, other values stay as they are.

    Refuses those it does not have, and texts that cannot be read; `what` names the thing in errors.
    """
    hints = get_type_hints(kind)
    known = {each.name: each for each in fields(kind) if each.init and each.name not in without}
    values = {}
    for name, value in given.items():
        if name not in known:
            raise unknown(f"option of {what!r}", name, known)
        values[name] = read_option(hints[name], value, name, what)
    return values


def read_option(kind: Any, value: Any, name: str, what: str) -> Any:
    """Return an option's value: a text becomes what its annotation `kind` says, other values stay as they are."""
    try:
        return _read(kind, value) if isinstance(value, str) else value
    except ValueError:
        if get_origin(kind) is Literal:
            raise unknown(name, value, map(written, get_args(kind))) from None
        raise ConfigurationError(
            f"Cannot read the option {name!r} of {what!r}.",
            expected=f"{_WORDS.get(kind, kind)} for {name}",
            came=repr(value),
        ) from None


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


def _read(kind: Any, text: str) -> Any:
    """Return the value of an annotated type that a text stands for, or raise ValueError."""
    if get_origin(kind) in (Union, UnionType):
        if text == "None" and NoneType in get_args(kind):
            return None
        for each in sorted((one for one in get_args(kind) if one is not NoneType), key=lambda one: one is str):
            try:
                return _read(each, text)
            except ValueError:
                continue
        raise ValueError(text)
    if get_origin(kind) is Literal:
        for each in get_args(kind):
            if written(each) == text:
                return each
        raise ValueError(text)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    return kind(text) if kind in (int, float) else text


_WORDS: Mapping[Any, str] = {int: "a whole number", float: "a number", bool: "True or False"}
