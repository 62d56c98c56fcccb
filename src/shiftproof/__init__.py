"""Shiftproof: where a classifier breaks under distribution shift, how badly, what helps, and what is guaranteed.

The public verbs are loaded when they are first used, so that `import shiftproof` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shiftproof.registry import resolve
from shiftproof.version import __version__

if TYPE_CHECKING:
    from shiftproof.adapters import adapt
    from shiftproof.audits import audit
    from shiftproof.certificates import certify
    from shiftproof.data import load_data
    from shiftproof.errors import ShiftproofError
    from shiftproof.estimators import estimate
    from shiftproof.models import load_model
    from shiftproof.searchers import search
    from shiftproof.shifts import corrupt
    from shiftproof.streams import evaluate
    from shiftproof.training import train

__all__ = [
    "ShiftproofError",
    "__version__",
    "adapt",
    "audit",
    "certify",
    "corrupt",
    "estimate",
    "evaluate",
    "load_data",
    "load_model",
    "search",
    "train",
]

_VERBS = {
    "adapt": "shiftproof.adapters:adapt",
    "audit": "shiftproof.audits:audit",
    "certify": "shiftproof.certificates:certify",
    "corrupt": "shiftproof.shifts:corrupt",
    "estimate": "shiftproof.estimators:estimate",
    "evaluate": "shiftproof.streams:evaluate",
    "load_data": "shiftproof.data:load_data",
    "load_model": "shiftproof.models:load_model",
    "search": "shiftproof.searchers:search",
    "train": "shiftproof.training:train",
    "ShiftproofError": "shiftproof.errors:ShiftproofError",
}


def __getattr__(name: str) -> Any:
    if name in _VERBS:
        return resolve(_VERBS, name, "function")
    raise AttributeError(f"module 'shiftproof' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
