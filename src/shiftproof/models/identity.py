"""Which model is it? A short digest of everything that decides its outputs.

Results are kept under the fingerprint of the model they came from, so two models that can answer differently must not
share one, and the same model must have the same one wherever and however often it is loaded.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shiftproof.models.blackbox import BlackBox
from shiftproof.models.python_file import MODULE_PREFIX

_UNSTATED = frozenset({"training", "device", "class_names"})  # how a module runs and is called, not what it computes
_BIAS = re.compile(r", bias=(True|False)\b")


def fingerprint(model: Callable[..., Any]) -> str:
    """Return 16 hexadecimal digits of BLAKE2 that identify a model.

    A module: its printed form, every parameter and buffer with its name, type, shape and bytes, plain attributes of
    its layers, and the source of every layer class that is not PyTorch's. A black box: its own `fingerprint`. A plain
    function: its source, and the modules, functions, arrays and numbers that it uses. What comes from a `file.py`
    counts with the whole file.
    """
    return model.fingerprint if isinstance(model, BlackBox) else digest(model)


def digest(value: object) -> str:
    """Return 16 hexadecimal digits of BLAKE2 of a value: a function, a module, an array, or plain data of these."""
    hasher = _Hasher()
    hasher.feed(value)
    return hasher.blake.hexdigest()


class _Hasher:
    """Feeds values to BLAKE2, each behind a tag, so that no two different values give the same stream of bytes."""

    def __init__(self) -> None:
        self.blake = hashlib.blake2b(digest_size=8)
        self._open: set[int] = set()

    def feed(self, value: object) -> None:
        """Add a value of any kind."""
        if id(value) in self._open:  # an object that refers back to itself
            return self._add("cycle", type(value).__qualname__)
        self._open.add(id(value))
        try:
            self._feed(value)
        finally:
            self._open.discard(id(value))

    def _feed(self, value: object) -> None:
        match value:
            case nn.Module():
                self._module(value)
            case Tensor():
                self._tensor(value)
            case np.ndarray() if not value.dtype.hasobject:
                self._add("array", value.dtype.str, str(value.shape))
                self._bytes(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
            case BlackBox():
                self._add("black box", value.fingerprint)
            case None | bool() | int() | float() | complex() | str() | bytes() | PurePath() | torch.dtype():
                self._add(type(value).__name__, repr(value))
            case Mapping():
                self._sequence("mapping", [item for pair in value.items() for item in pair])
            case list() | tuple() | np.ndarray():
                self._sequence("sequence", value)
            case set() | frozenset():
                self._sequence("set", sorted(digest(item) for item in value))
            case partial():
                self._sequence("partial", [value.func, value.args, value.keywords])
            case MethodType():
                self._sequence("method", [value.__func__, value.__self__])
            case FunctionType():
                self._function(value)
            case _:
                self._object(value)

    def _module(self, module: nn.Module) -> None:
        # Versions of PyTorch differ in which layers say that they have a bias; their parameters tell it anyway.
        self._add("module", _BIAS.sub("", repr(module)))
        buffers = module.named_buffers(remove_duplicate=False)
        for name, tensor in chain(module.named_parameters(remove_duplicate=False), buffers):
            self._add("weights", name)
            self._tensor(tensor)
        for name, layer in module.named_modules():
            # A scripted or exported layer carries its program as `code`; a class of our user's own has a source.
            program = getattr(layer, "code", None)
            if isinstance(program, str):
                self._add("program", name, program)
                continue
            if _is_torch(type(layer)):
                continue
            self._add("layer", name, *(source_of(kind) for kind in type(layer).__mro__ if not _is_torch(kind)))
            for attribute, held in sorted(vars(layer).items()):
                if _is_plain(held) and not attribute.startswith("_") and attribute not in _UNSTATED:
                    self._add("attribute", attribute)
                    self.feed(held)

    def _tensor(self, tensor: Tensor) -> None:
        self._add("tensor", str(tensor.dtype), str(tuple(tensor.shape)))
        held = tensor.detach().cpu().contiguous().reshape(-1)
        self._bytes(held.view(torch.uint8).numpy().data)

    def _object(self, value: object) -> None:
        if isinstance(value, type | ModuleType | BuiltinFunctionType):
            return self._add("named", source_of(value))
        self._add("object", source_of(type(value)))
        state = {name: held for name, held in getattr(value, "__dict__", {}).items() if name not in _UNSTATED}
        return self._sequence("state", [item for pair in state.items() for item in pair])

    def _function(self, function: FunctionType) -> None:
        self._add("function", source_of(function))
        used = inspect.getclosurevars(function)
        self._sequence("defaults", [function.__defaults__, function.__kwdefaults__])
        self._sequence("nonlocals", [item for pair in sorted(used.nonlocals.items()) for item in pair])
        for name, value in sorted(used.globals.items()):
            beside = isinstance(value, FunctionType) and value.__module__ == function.__module__
            if beside or _is_plain(value) or isinstance(value, nn.Module | BlackBox):
                self._sequence("global", [name, value])

    def _sequence(self, tag: str, items: Iterable[object]) -> None:
        items = list(items)
        self._add(tag, str(len(items)))
        for item in items:
            self.feed(item)

    def _add(self, *texts: str) -> None:
        for text in texts:
            self._bytes(text.encode("utf-8", "backslashreplace"))

    def _bytes(self, data: bytes | memoryview) -> None:
        self.blake.update(len(data).to_bytes(8, "little"))
        self.blake.update(data)


def source_of(thing: object) -> str:
    """Return the source text of a class or function, or its qualified name where there is none.

    Of a user's `file.py` it is the whole file: a class may use any function in it.
    """
    home = getattr(thing, "__module__", None) or ""
    if home.startswith(MODULE_PREFIX) and home in sys.modules:
        thing = sys.modules[home]
    try:
        return inspect.getsource(thing)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return f"{home}.{getattr(thing, '__qualname__', None) or getattr(thing, '__name__', repr(type(thing)))}"


def _is_torch(kind: type) -> bool:
    """Whether a class comes with PyTorch or Python."""
    return kind.__module__.partition(".")[0] in ("torch", "builtins")


def _is_plain(value: object) -> bool:
    """Whether a value is data whose content can be hashed."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | complex | str | bytes | Tensor | np.ndarray)
