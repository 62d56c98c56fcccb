"""Names for things: small dictionaries of name -> lazy target, and a helpful answer to a name that is not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from shiftproof.errors import ConfigurationError


def unknown(kind: str, name: str, known: Iterable[str], **facts: str) -> ConfigurationError:
    """Return the error for a name that does not exist, with the nearest names that do.

    >>> print(unknown("shift", "fogg", ["fog", "frost"]))
    There is no shift named 'fogg'.
      did you mean  fog
      known         fog, frost
    """
    known = sorted(known)
    near = get_close_matches(name.lower(), known, n=3, cutoff=0.6)
    answer = {"did you mean": ", ".join(near)} if near else {}
    return ConfigurationError(f"There is no {kind} named {name!r}.", **answer, known=", ".join(known), **facts)


def resolve(targets: Mapping[str, str], name: str, kind: str) -> Any:
    """Import and return the target `"module:attribute"` that `name` stands for."""
    if name not in targets:
        raise unknown(kind, name, targets)
    module, _, attribute = targets[name].partition(":")
    return getattr(import_module(module), attribute)
