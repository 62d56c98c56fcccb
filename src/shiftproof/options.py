"""Options, defined once: a frozen dataclass per owner whose fields carry type, range and one sentence of help.

class EtaOptions(GradientOptions):
    entropy_margin: Annotated[NotNegative, "Learn from inputs whose entropy is below this share of ln C."] = 0.4

Python checks the values when they are set, text (of the command line, of a file) is read by the annotation, and
`describe` lists the fields for tables and commands. There is no second list of names or ranges anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Gt, Le, Lt

from shiftproof.errors import ConfigurationError
from shiftproof.registry import unknown

if TYPE_CHECKING:
    from pydantic import TypeAdapter

NotNegative = Annotated[float, Ge(0)]
Positive = Annotated[float, Gt(0)]
Share = Annotated[float, Ge(0), Le(1)]
BelowOne = Annotated[float, Ge(0), Lt(1)]
Count = Annotated[int, Ge(1)]


@dataclass(frozen=True)
class Words:
    """What an error says of a field, where its type and range do not say it best."""

    expected: str = ""
    headline: str = ""


class Described(NamedTuple):
    """A field of options: its name, its type and its values in words, its default, and what it is for."""

    name: str
    type: str
    default: object
    values: str
    help: str


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Options:
    """Base of all options: every subclass is a frozen dataclass whose values are checked against its annotations.

    An annotation is a type with, in `Annotated`, its range (`annotated_types`), one sentence of help as text, and
    `Words` where errors need their own. What depends on several fields is checked in `check`.

    >>> class Blur(Options):
    ...     width: Annotated[Count, "Pixels on a side."] = 3
    >>> Blur().changed({"width": "5"})
    Blur(width=5)
    >>> Blur(width=0)
    Traceback (most recent call last):
    ...
    shiftproof.errors.ConfigurationError: The option 'width' cannot have this value.
      expected  a whole number, 1 or more
      got       0
    """

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        for name, value in self.to_dict().items():
            object.__setattr__(self, name, read(type(self), name, value))
        self.check()

    def check(self) -> None:
        """Refuse values that do not go together; by default, all do."""

    def require(self, holds: bool, expected: str) -> None:
        """Refuse these options unless a condition holds."""
        if not holds:
            raise ConfigurationError("These options cannot be combined.", expected=expected, got=str(self))

    def changed(self, values: Mapping[str, Any], owner: str = "") -> Self:
        """Return the options with other values, which may be text; errors name their owner."""
        known = self.to_dict()
        for name in values:
            if name not in known:
                raise unknown(f"option of {owner!r}" if owner else "option", name, known)
        return replace(self, **{name: read(type(self), name, value, owner) for name, value in values.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return name -> value, in the order of declaration: what a digest of the options is made of."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


O = TypeVar("O", bound=Options)  # noqa: E741


def read(kind: type[Any], name: str, value: Any, owner: str = "") -> Any:
    """Return the value of a dataclass's field, read by its annotation; refuse in words what cannot be one."""
    from pydantic import ValidationError

    hint = hints(kind)[name]
    try:
        return _reader(kind, name).validate_python(_prepared(value, _alternatives(hint)))
    except ValidationError:
        raise _refusal(name, value, hint, owner) from None


def read_as(hint: Any, name: str, value: Any, owner: str = "") -> Any:
    """Return a value read by an annotation, as `read` does; of functions, whose options are parameters."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(hint).validate_python(_prepared(value, _alternatives(hint)))
    except ValidationError:
        raise _refusal(name, value, hint, owner) from None


def describe(options: Any) -> list[Described]:
    """Return the fields of options, or of any dataclass, with the defaults of a class or the values of an object.

    >>> class Blur(Options):
    ...     width: Annotated[Count, "Pixels on a side."] = 3
    >>> describe(Blur)
    [Described(name='width', type='int', default=3, values='a whole number, 1 or more', help='Pixels on a side.')]
    """
    known = options() if isinstance(options, type) else options
    return [
        Described(name, _type_text(hint), getattr(known, name), in_words(hint), _help(hint))
        for name, hint in hints(type(known)).items()
    ]


def simple(base: type[O], defaults: Mapping[str, Any]) -> O:
    """Return options with further fields of these defaults, which say their types: for owners without a class.

    >>> simple(Options, {"noise": -1.0}).changed({"noise": "2"}).to_dict()
    {'noise': 2.0}
    """
    new = {name: _hint_of(value) for name, value in defaults.items() if name not in hints(base)}

    def reduced(self: O) -> tuple[object, ...]:
        return _again, (base, dict(defaults), self.to_dict())

    body = {"__annotations__": new, "__module__": base.__module__, "__reduce__": reduced, **dict.fromkeys(new)}
    made: O = type(base.__name__, (base,), body)(**defaults)
    return made


def in_words(hint: Any) -> str:
    """Return which values an annotation allows, in words.

    >>> [in_words(Share), in_words(int | None), in_words(Literal["sgd", "adam"])]
    ['a number from 0 to 1', 'None or a whole number', 'sgd or adam']
    """
    bare, extras = _split(hint)
    said = [each.expected for each in extras if isinstance(each, Words) and each.expected]
    if said:
        return said[-1]
    origin, inner = get_origin(bare) or bare, get_args(bare)
    if origin in (Union, UnionType):
        return _listed([in_words(each) for each in sorted(inner, key=lambda each: each is not NoneType)])
    if origin is Literal:
        return _listed([str(each) for each in inner])
    if origin in (int, float):
        return ("a whole number" if origin is int else "a number") + _bounds(extras)
    if _is_sequence(origin):
        return f"several of: {in_words(inner[0])}" if inner else "a list"
    named = {bool: "True or False", NoneType: "None", str: "text", Path: "a path", Callable: "a function", Any: "any"}
    return named.get(origin) or f"a {getattr(origin, '__name__', origin)}"


def hints(kind: type[Any]) -> dict[str, Any]:
    """Return name -> annotation of the fields that a dataclass is made with, with ranges and help."""
    if kind not in _HINTS:
        found = get_type_hints(kind, include_extras=True)
        _HINTS[kind] = {each.name: found[each.name] for each in fields(kind) if each.init}
    return _HINTS[kind]


def _reader(kind: type[Any], name: str) -> TypeAdapter[Any]:
    """Return what checks and converts a field; made once."""
    from pydantic import ConfigDict, TypeAdapter

    if (kind, name) not in _READERS:
        config = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
        _READERS[kind, name] = TypeAdapter(hints(kind)[name], config=config)
    return _READERS[kind, name]


_HINTS: dict[type[Any], dict[str, Any]] = {}
_READERS: dict[tuple[type[Any], str], TypeAdapter[Any]] = {}


def _prepared(value: Any, alternatives: Sequence[Any]) -> Any:
    """Return a value as pydantic is to see it: it would take True for 1, and 1, "on" and "y" for True."""
    kinds = [get_origin(each) or each for each in alternatives]
    if isinstance(value, bool):
        return value if bool in kinds or {int, float}.isdisjoint(kinds) else [value]
    if kinds == [bool]:
        return {"true": True, "false": False}.get(str(value).strip().lower(), [value])
    return _from_text(value, alternatives, kinds) if isinstance(value, str) else value


def _from_text(text: str, alternatives: Sequence[Any], kinds: Sequence[Any]) -> Any:
    """Return what pydantic does not read from text: nothing, lists, choices that are no words, numbers before words."""
    if NoneType in kinds and text.strip().lower() == "none":
        return None
    if str not in kinds and any(_is_sequence(each) for each in kinds):
        return [part.strip() for part in text.split(",")]
    choices = {str(word): word for each in alternatives if get_origin(each) is Literal for word in get_args(each)}
    if text in choices:
        return choices[text]
    for kind in (int, float) if str in kinds else ():
        with suppress(ValueError):
            if kind in kinds:
                return kind(text)
    return text


def _refusal(name: str, value: Any, hint: Any, owner: str) -> ConfigurationError:
    bare, extras = _split(hint)
    headlines = [each.headline for each in extras if isinstance(each, Words) and each.headline]
    choices = [each for each in _alternatives(bare) if get_origin(each) is Literal]
    if isinstance(value, str) and choices and len(choices) == len([*_alternatives(bare, none=False)]) and not headlines:
        said = unknown(name.replace("_", " "), value, [str(word) for each in choices for word in get_args(each)])
        near = {fact: text for fact, text in said.facts.items() if fact != "known"}
        return ConfigurationError(said.headline, **near, expected=in_words(hint))
    of = f" of {owner!r}" if owner else ""
    headline = headlines[-1] if headlines else f"The option {name!r}{of} cannot have this value."
    return ConfigurationError(headline, expected=in_words(hint), got=repr(value))


def _split(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type and what stands beside it."""
    extras = getattr(hint, "__metadata__", ())
    return (hint.__origin__ if extras else hint), extras


def _alternatives(hint: Any, *, none: bool = True) -> list[Any]:
    """Return the types that a value may have one of, without what stands beside them."""
    bare, _ = _split(hint)
    if get_origin(bare) not in (Union, UnionType):
        return [bare]
    return [each for some in get_args(bare) for each in _alternatives(some) if none or each is not NoneType]


def _help(hint: Any) -> str:
    return next((each for each in reversed(_split(hint)[1]) if isinstance(each, str)), "")


def _type_text(hint: Any) -> str:
    names = [
        " | ".join(map(repr, get_args(each)))
        if get_origin(each) is Literal
        else "None"
        if each is NoneType
        else getattr(each, "__name__", str(each))
        for each in _alternatives(hint)
    ]
    return " | ".join(names)


def _bounds(extras: Sequence[Any]) -> str:
    """Return a range in words: ", 0 or more", " from 0 to 1"."""
    low = next((each for each in extras if isinstance(each, Ge | Gt)), None)
    high = next((each for each in extras if isinstance(each, Le | Lt)), None)
    ends = getattr(low, "ge", getattr(low, "gt", None)), getattr(high, "le", getattr(high, "lt", None))
    return _RANGES[type(low), type(high)].format(*ends)


_RANGES = {
    (NoneType, NoneType): "",
    (Ge, NoneType): ", {0} or more",
    (Gt, NoneType): " above {0}",
    (NoneType, Le): ", {1} or less",
    (NoneType, Lt): " below {1}",
    (Ge, Le): " from {0} to {1}",
    (Ge, Lt): " from {0} to less than {1}",
    (Gt, Le): " above {0}, {1} or less",
    (Gt, Lt): " above {0} and below {1}",
}


def _listed(words: Sequence[str]) -> str:
    return " or ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} or {words[-1]}"


def _is_sequence(origin: Any) -> bool:
    return isinstance(origin, type) and origin is not str and issubclass(origin, Sequence | AbstractSet)


def _hint_of(value: Any) -> Any:
    return type(value) if isinstance(value, bool | int | float | str) else Any


def _again(base: type[O], defaults: Mapping[str, Any], values: Mapping[str, Any]) -> O:
    return simple(base, defaults).changed(values)
