"""Names for things: lazy targets of our own, and what others add by entry points or by `register`.

Entry points are looked up when a name is first asked for, and imported when it is used, so that a package that is
broken disturbs only those who use it.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from typing import Any, Literal, TypeAlias, TypeVar, cast

from shiftproof.errors import ConfigurationError, ShiftproofError

T = TypeVar("T")
Kind: TypeAlias = Literal["shifts", "adapters", "sections", "estimators", "searchers", "recipes", "models", "data"]

KINDS: Mapping[str, str] = {
    "shifts": "shiftproof.shifts.catalogue:OTHERS",
    "adapters": "shiftproof.adapters.catalogue:METHODS",
    "sections": "shiftproof.audits.sections:SECTIONS",
    "estimators": "shiftproof.estimators.catalogue:METHODS",
    "searchers": "shiftproof.searchers.catalogue:SEARCHERS",
    "recipes": "shiftproof.training.recipes:RECIPES",
    "models": "shiftproof.models.loading:LOADERS",
    "data": "shiftproof.data.loading:LOADERS",
}
"""What others can add -> the registry it goes to. The entry points of a kind are the group `shiftproof.<kind>`."""


def unknown(kind: str, name: object, known: Iterable[str], **facts: str) -> ConfigurationError:
    """Return the error for a name that does not exist, with the nearest names that do.

    >>> print(unknown("shift", "fogg", ["fog", "frost"]))
    There is no shift named 'fogg'.
      did you mean  fog
      known         fog, frost
    """
    known = sorted(set(known))
    if not isinstance(name, str):  # an object where a name is needed
        facts = {"expected": "a name", "got": f"a {type(name).__name__}", **facts}
    near = get_close_matches(str(name).lower(), known, n=3, cutoff=0.6)
    answer = {"did you mean": ", ".join(near)} if near else {}
    listed = ", ".join(known) or "none"
    return ConfigurationError(
        f"There is no {kind} named {getattr(name, 'name', name)!r}.", **answer, known=listed, **facts
    )


def imported(target: str) -> Any:
    """Import and return a target, `"module:attribute"`."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def resolve(targets: Mapping[str, str], name: str, kind: str) -> Any:
    """Import and return the target that `name` stands for."""
    if name not in targets:
        raise unknown(kind, name, targets)
    return imported(targets[name])


class Registry(Mapping[str, T]):
    """Objects of one kind by name: built in, from entry points of other packages, and registered in this process.

    Of two objects with one name the first is kept, with a warning; built-in names take precedence.

    Args:
        kind: Name of the kind in messages.
        group: Entry-point group of other packages.
        own: Built-in objects, or their import targets, by name.
        is_one: Predicate: whether an object is of this kind.
        expected: The same in words, for error messages.
        taken: Further reserved names.

    >>> colours = Registry("colour", "example.colours", {"red": "enum:Enum"}, lambda found: isinstance(found, type))
    >>> colours.register("blue", int)
    >>> colours["red"], list(colours)
    (<enum 'Enum'>, ['red', 'blue'])
    """

    def __init__(
        self,
        kind: str,
        group: str,
        own: Mapping[str, str | T],
        is_one: Callable[[object], bool],
        expected: str = "",
        taken: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self.kind, self.group, self.own, self.taken = kind, group, own, taken
        self.is_one, self.expected = is_one, expected or f"a {kind}"
        self.here: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        return self.load(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.own or name in self.here or name in self.others)

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self.added

    def __len__(self) -> int:
        return len(self.own) + len(self.added)

    @property
    def added(self) -> tuple[str, ...]:
        """Names that are not built in."""
        return tuple({**self.others, **self.here})

    @cached_property
    def others(self) -> dict[str, tuple[str, str]]:
        """Names added by other packages -> target and package."""
        from importlib.metadata import entry_points

        found: dict[str, tuple[str, str]] = {}
        for entry in entry_points(group=self.group):
            package = entry.dist.name if entry.dist is not None else entry.module
            reason = self._objection(entry.name)
            if entry.name in found and found[entry.name] != (entry.value, package):
                reason = f"{found[entry.name][1]!r} has one of that name"
            if reason:
                told = f"The {self.kind} {entry.name!r} of the package {package!r} is left out: {reason}."
                warnings.warn(told, stacklevel=2)
            else:
                found[entry.name] = entry.value, package
        return found

    def load(self, name: str) -> T:
        """Import and return the object of a name; an error in another package names that package."""
        if name in self.own:
            held = self.own[name]
            return cast(T, imported(held) if isinstance(held, str) else held)
        if name in self.here:
            return self.here[name]
        if name not in self:
            raise unknown(self.kind, name, self)
        target, package = self.others[name]
        try:
            found = imported(target)
        except Exception as error:
            raise self._broken(name, package, target, f"{type(error).__name__}: {error}") from error
        if not self.is_one(found):
            raise self._broken(name, package, target, f"it is {found!r}", expected=self.expected)
        return cast(T, found)

    def load_all(self) -> Iterator[tuple[str, T]]:
        """Yield every name with its object; objects that cannot be loaded are left out, with a warning."""
        for name in self:
            try:
                yield name, self.load(name)
            except ConfigurationError as error:
                warnings.warn(str(error), stacklevel=2)

    def register(self, name: str, thing: T, *, replace: bool = False) -> None:
        """Add a name in this process; only names added this way can be replaced."""
        if self.here.get(name) is thing:
            return
        package = f"the package {self.others[name][1]!r} has one of that name" if name in self.others else ""
        before = "one of that name is registered" if name in self.here and not replace else ""
        if reason := self._objection(name) or package or before:
            raise ConfigurationError(
                f"The {self.kind} {name!r} cannot be registered.",
                reason=reason,
                fix="replace=True puts a new one in its place" if before == reason else "choose another name",
            )
        if not self.is_one(thing):
            raise ConfigurationError(
                f"The {self.kind} {name!r} cannot be registered.", expected=self.expected, got=repr(thing)
            )
        self.here[name] = thing

    def _objection(self, name: str) -> str:
        """Return caveats of a name of somebody else's; empty if nothing does."""
        if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name):
            return "a name has small letters, digits and underscores"
        return "'shiftproof' has one of that name" if name in self.own or name in self.taken() else ""

    def _broken(self, name: str, package: str, target: str, reason: str, **facts: str) -> ConfigurationError:
        return ConfigurationError(
            f"The {self.kind} {name!r} of the package {package!r} cannot be used.",
            target=target,
            reason=reason,
            **facts,
            fix=f"update the package, or remove it: pip uninstall {package}",
        )


def is_prefixed(loaders: Registry[Callable[[str], Any]], spec: object) -> bool:
    """Whether something is a text `NAME:rest` with the name of a loader that others added."""
    return isinstance(spec, str) and ":" in spec and spec.partition(":")[0] in loaders.added


def load_prefixed(loaders: Registry[Callable[[str], Any]], spec: str) -> Any:
    """Return what the loader `NAME` makes of `rest`; what it raises is told with its name."""
    name, _, rest = spec.partition(":")
    loader = loaders.load(name)
    try:
        return loader(rest)
    except ShiftproofError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"The {loaders.kind} {name!r} failed on {rest!r}.", reason=f"{type(error).__name__}: {error}"
        ) from error


def registry(kind: str) -> Registry[Any]:
    """Return the registry of a kind that others can add to."""
    found: Registry[Any] = resolve(KINDS, kind, "kind of thing to register")
    return found


def register(kind: Kind, name: str, thing: object, *, replace: bool = False) -> None:
    """Register a shift, a method or another object by name in this process: a plugin without a package.

    `kind` is the same word as in `shiftproof list` and in the entry points of a package::

        shifts      a class derived from `shifts.ImageShift`
        adapters    an `adapters.Method`
        sections    a class derived from `audits.sections.base.Section`
        estimators  an `estimators.EstimationMethod`
        searchers   a function (space, evaluate, *, length, budget, seed, ...) -> `searchers.SearchTrace`
        recipes     a `training.Recipe`
        models      a function from the text behind `NAME:` to anything that `load_model` takes
        data        a function from the text behind `NAME:` to anything that `load_data` takes

    Registering an existing name is an error unless it is the same object; use `replace` when a notebook cell runs
    again.

    Args:
        kind: Kind of object, as listed above.
        name: Name in lower-case letters, digits and underscores.
        thing: The object to register.
        replace: Whether to replace an object registered earlier under this name.

    >>> register("recipes", "mine", 3)
    Traceback (most recent call last):
    ...
    shiftproof.errors.ConfigurationError: The recipe 'mine' cannot be registered.
      expected  a training.Recipe
      got       3
    """
    registry(kind).register(name, thing, replace=replace)


def registered() -> list[tuple[str, str, object]]:
    """Return what `register` added in this process: kind, name and thing. Nothing is imported for it."""
    loaded = (kind for kind, target in KINDS.items() if target.partition(":")[0] in sys.modules)
    return [(kind, name, thing) for kind in loaded for name, thing in registry(kind).here.items()]
