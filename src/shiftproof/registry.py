"""Names for things: small dictionaries of name -> lazy target, and a helpful answer to a name that is not there.

Other packages add names by entry points (see `Registry`); they are looked up when a name is first asked for, and
imported when it is used, so that a package that is broken disturbs only those who use it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from typing import Any

from shiftproof.errors import ConfigurationError


def unknown(kind: str, name: object, known: Iterable[str], **facts: str) -> ConfigurationError:
    """Return the error for a name that does not exist, with the nearest names that do.

    >>> print(unknown("shift", "fogg", ["fog", "frost"]))
    There is no shift named 'fogg'.
      did you mean  fog
      known         fog, frost
    """
    known = sorted(known)
    if not isinstance(name, str):  # an object where a name is needed
        facts = {"expected": "a name", "came": f"a {type(name).__name__}", **facts}
    near = get_close_matches(str(name).lower(), known, n=3, cutoff=0.6)
    answer = {"did you mean": ", ".join(near)} if near else {}
    listed = ", ".join(known) or "none"
    return ConfigurationError(
        f"There is no {kind} named {getattr(name, 'name', name)!r}.", **answer, known=listed, **facts
    )


def resolve(targets: Mapping[str, str], name: str, kind: str) -> Any:
    """Import and return the target `"module:attribute"` that `name` stands for."""
    if name not in targets:
        raise unknown(kind, name, targets)
    module, _, attribute = targets[name].partition(":")
    return getattr(import_module(module), attribute)


class Registry(Mapping[str, str]):
    """Names of one kind with their lazy targets: our own, and those of other packages' entry points in a group.

    `is_one` says whether what a target holds is of this kind. Of two things with one name the first is kept, ours
    before others', with a warning.

    >>> Registry("colour", "example.colours", {"red": "enum:Enum"}, lambda found: True).load("red")
    <enum 'Enum'>
    """

    def __init__(self, kind: str, group: str, own: Mapping[str, str], is_one: Any) -> None:
        self.kind, self.group, self.own, self.is_one = kind, group, own, is_one

    def __getitem__(self, name: str) -> str:
        return self.own[name] if name in self.own else self.others[name][0]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.own or name in self.others)

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self.others

    def __len__(self) -> int:
        return len(self.own) + len(self.others)

    @cached_property
    def others(self) -> dict[str, tuple[str, str]]:
        """The names other packages add -> target and package."""
        from importlib.metadata import entry_points

        found: dict[str, tuple[str, str]] = {}
        for entry in entry_points(group=self.group):
            package = entry.dist.name if entry.dist is not None else entry.module
            if entry.name in self.own or (entry.name in found and found[entry.name] != (entry.value, package)):
                owner = "shiftproof" if entry.name in self.own else found[entry.name][1]
                warnings.warn(
                    f"The {self.kind} {entry.name!r} of the package {package!r} is left out: {owner!r} has one of "
                    "that name.",
                    stacklevel=2,
                )
            else:
                found[entry.name] = entry.value, package
        return found

    def load(self, name: str) -> Any:
        """Import and return what a name stands for; what another package does wrong is told with its name."""
        if name not in self.others:
            return resolve(self, name, self.kind)
        target, package = self.others[name]
        try:
            found = resolve(self, name, self.kind)
        except Exception as error:
            raise self._broken(name, package, target, f"{type(error).__name__}: {error}") from error
        if not self.is_one(found):
            raise self._broken(name, package, target, f"it is {found!r}")
        return found

    def load_all(self) -> Iterator[tuple[str, Any]]:
        """Yield every name with what it stands for; what cannot be loaded is left out, with a warning."""
        for name in self:
            try:
                yield name, self.load(name)
            except ConfigurationError as error:
                warnings.warn(str(error), stacklevel=2)

    def _broken(self, name: str, package: str, target: str, reason: str) -> ConfigurationError:
        return ConfigurationError(
            f"The {self.kind} {name!r} of the package {package!r} cannot be used.",
            target=target,
            reason=reason,
            instead=f"update the package, or remove it: pip uninstall {package}",
        )
