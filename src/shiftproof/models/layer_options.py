"""What decides a layer's outputs besides its tensors, its inner layers and its hooks."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Mapping
from functools import lru_cache
from types import FunctionType

from torch import nn

from shiftproof.models.sources import is_builtin

_MODULE = frozenset(vars(nn.Module()))
"""What every module holds: its tensors and layers, which are read by name, and its hooks."""
_COMPARED = (bool, int, float, str, tuple, list)
_MISSING = object()


@lru_cache(maxsize=4096)
def _made_by_torch(kind: type) -> tuple[Mapping[str, object], frozenset[str]]:
    """Return the options of the PyTorch class that a class is or derives from, with defaults, and what it sets."""
    options: dict[str, object] = {}
    written: set[str] = set()
    for base in kind.__mro__:
        if is_builtin(base.__module__) and issubclass(base, nn.Module):
            written |= _written_by(base)  # type: ignore[arg-type]
            if "__init__" in vars(base) and not options:  # the nearest one, which calls those of its bases
                given = inspect.signature(vars(base)["__init__"]).parameters.values()
                options = {each.name: each.default for each in given}
    return options, frozenset(written)


@lru_cache(maxsize=4096)
def _written_by(base: type) -> frozenset[str]:
    """Return the names of the attributes that the functions of a class set."""
    functions = [each for each in vars(base).values() if isinstance(each, FunctionType)]
    steps = (step for function in functions for step in dis.get_instructions(function))
    return frozenset(step.argval for step in steps if step.opname == "STORE_ATTR")


def stated_options(layer: nn.Module) -> dict[str, object]:
    """Return what decides a layer's outputs besides its tensors, layers and hooks.

    Of what PyTorch's own classes set, that is the options not at their default: the rest follows from these, and
    differs between versions.
    """
    own = getattr(layer, "decides_outputs", None)
    if callable(own):
        return {"": own()}
    options, written = _made_by_torch(type(layer))  # type: ignore[arg-type]
    told = {}
    for name, held in vars(layer).items():
        default = options.get(name, _MISSING)
        usual = held is default or (
            type(held) is type(default)
            and isinstance(held, bool | int | float | str | tuple | list | None)
            and held == default
        )
        if name not in _MODULE and not usual and (name in options or name not in written):
            told[name] = held
    return told
