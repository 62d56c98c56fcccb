"""From finding to fix: a short fine-tuning against what a network is weak to, and proof of what it mended.

hardened = harden("demo", "train/", test="test/", minutes=10, out="hardened")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shiftproof.registry import resolve

if TYPE_CHECKING:
    from shiftproof.hardening.hardened import Hardened
    from shiftproof.hardening.hardening import harden

_TARGETS = {
    "Hardened": "shiftproof.hardening.hardened:Hardened",
    "harden": "shiftproof.hardening.hardening:harden",
}

__all__ = ["Hardened", "harden"]


def __getattr__(name: str) -> Any:
    if name in _TARGETS:
        return resolve(_TARGETS, name, "name")
    raise AttributeError(f"module 'shiftproof.hardening' has no attribute {name!r}")
