"""Which model is it? A short digest of everything that decides its outputs.

Results are kept under the fingerprint of the model they came from, so two models that can answer differently must not
share one, and the same model must have the same one wherever and however often it is loaded. What no digest can see,
such as a file that a user's code reads, is left to `answers`.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from itertools import chain
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shiftproof.models.blackbox import BlackBox
from shiftproof.models.code_content import bytecode_content, is_function
from shiftproof.models.layer_options import stated_options
from shiftproof.models.sources import SCRIPT, SOURCE, contents_of, is_builtin, is_users
from shiftproof.registry import Registry

_UNSTATED = frozenset(
    {
        "training",
        "device",
        "class_names",
        "input_size",
        "_compiled_call_impl",
        "name_or_path",
        "_name_or_path",
        "_commit_hash",
    }
    | {"transformers_version", "_stop_words_id"}
)
"""Attributes that tell where and how a model runs, or where it came from, not what it computes: `_stop_words_id` of
scikit-learn's vectorizers is an address in memory."""
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_OPAQUE = frozenset({"_io", "_thread", "asyncio", "concurrent", "io", "logging", "multiprocessing", "random"})
_OPAQUE |= {"threading", "weakref"}
"""Modules of Python whose objects are a process's own: their state says nothing of what a model computes."""
_BIAS = re.compile(r", bias=(True|False)\b")
_PASSING = re.compile(r"___torch_mangle_\d+\.|^ *training = .*\n| at 0x[0-9a-f]+|\bC(PU|UDA)(?=\w+Type)", re.MULTILINE)
"""What is printed of a module that differs between processes and devices."""
_MISSING = object()


def fingerprint(model: Callable[..., Any]) -> str:
    """Return 16 hexadecimal digits of BLAKE2 that identify a model.

    A module: its printed form, every parameter and buffer with its name, type, shape and bytes, and of every layer its
    hooks, the options of PyTorch's class, everything else it holds, and the code of classes that are not PyTorch's. A
    black box: its own `fingerprint`. A plain function: its code, and the modules, functions, arrays and numbers that
    it uses. What comes from a `file.py` counts with the whole file and the files beside it that it imports. Docstrings,
    comments and formatting do not count.

    Args:
        model: Any model.
    """
    return model.fingerprint if isinstance(model, BlackBox) else digest(model)


def digest(value: object) -> str:
    """Return 16 hexadecimal digits of BLAKE2 of a value: a function, a module, an array, an object, or data of these.

    An object counts with the content of its fields and, where its class is not Python's, PyTorch's or ours, with the
    code of the module that defines the class (`code_content`).
    """
    hasher = _Hasher()
    hasher.feed(value)
    return hasher.blake.hexdigest()


def plugin_codes(registry: Registry[Any], text: str) -> dict[str, str]:
    """Return a digest of what every name that others added stands for, of those that occur in a text.

    It goes into the identity of what is measured with it: what was edited is another thing of the same name.
    """
    named = (name for name in registry.added if re.search(rf"\b{re.escape(name)}\b", text))
    return {name: digest(registry.load(name)) for name in named}


class _Hasher:
    """Feeds values to BLAKE2, each behind a tag, so that no two different values give the same stream of bytes.

    What can be held in several places enters by its own digest, which is made once.
    """

    def __init__(self, parent: _Hasher | None = None) -> None:
        self.blake = hashlib.blake2b(digest_size=8)
        self._open: set[int] = set() if parent is None else parent._open
        self._known: dict[int, tuple[object, bytes]] = {} if parent is None else parent._known

    def feed(self, value: object) -> None:
        """Add a value of any kind."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return self._add(type(value).__name__, repr(value))
        if id(value) in self._open:  # an object that refers back to itself
            return self._add("cycle", type(value).__qualname__)
        if id(value) not in self._known:
            inner = _Hasher(self)
            self._open.add(id(value))
            try:
                inner._feed(value)
            finally:
                self._open.discard(id(value))
            self._known[id(value)] = value, inner.blake.digest()  # held, so that nothing else gets its id
        return self._bytes(self._known[id(value)][1])

    def _feed(self, value: object) -> None:  # noqa: PLR0912  (a case per kind of value)
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
            case Enum():
                self._add("enum", type(value).__qualname__, value.name)
            case PurePath() | np.generic() | torch.dtype() | torch.layout() | torch.memory_format():
                self._add(type(value).__name__, repr(value))
            case Mapping():
                self._sequence("mapping", [item for pair in value.items() for item in pair])
            case list() | tuple() | deque() | np.ndarray():
                self._sequence("sequence", value)
            case set() | frozenset():
                self._sequence("set", sorted(digest(item) for item in value))
            case partial():
                self._sequence("partial", [value.func, value.args, value.keywords])
            case MethodType():
                self._sequence("method", [value.__func__, value.__self__])
            case FunctionType():
                self._function(value)
            case CodeType():
                self._sequence("code", bytecode_content(value))
            case ModuleType():
                self._sequence("module", contents_of(value))
            case type():
                self._class(value)
            case _:
                self._object(value)

    def _module(self, module: nn.Module) -> None:
        # Versions of PyTorch differ in which layers say that they have a bias; their parameters tell it anyway.
        self._add("module", _PASSING.sub("", _BIAS.sub("", repr(module))))
        buffers = module.named_buffers(remove_duplicate=False)
        for name, tensor in chain(module.named_parameters(remove_duplicate=False), buffers):
            self._add("weights", name)
            self.feed(tensor)
        compiled: Any = getattr(module, "_c", None)
        if compiled is not None and hasattr(
            compiled, "dump_to_str"
        ):  # a scripted module keeps its numbers out of its code
            self._add("attributes", _PASSING.sub("", compiled.dump_to_str(False, True, False)))
        for name, layer in module.named_modules():
            self._add("layer", name)
            self._hooks(layer)
            # A scripted or exported layer carries its program as `code`; a class of our user's own has a source.
            program = getattr(layer, "code", None)
            if isinstance(program, str):
                self._add("program", _PASSING.sub("", program), str(vars(layer).get(SOURCE)))
                continue
            for kind in type(layer).__mro__:
                if not is_builtin(kind.__module__):
                    self.feed(kind)
            self._state(stated_options(layer))

    def _hooks(self, layer: nn.Module) -> None:
        """Add what is called before and after a layer, in order."""
        for name in _HOOKS:
            hooks = getattr(layer, name, None) or {}
            flagged = getattr(layer, f"{name}_with_kwargs", None) or {}
            self._sequence(name, [(hook, key in flagged) for key, hook in hooks.items()])

    def _tensor(self, tensor: Tensor) -> None:
        self._add("tensor", str(tensor.dtype), str(tuple(tensor.shape)))
        if tensor.is_quantized:
            return self._sequence("quantized", [str(tensor.qscheme()), tensor.int_repr(), tensor.dequantize()])
        if tensor.is_meta:
            return None
        held = (tensor if tensor.layout == torch.strided else tensor.to_dense()).detach().cpu().contiguous().reshape(-1)
        return self._bytes(held.view(torch.uint8).numpy().data)

    def _object(self, value: object) -> None:
        kind = type(value)
        self._class(kind)
        if kind is torch.device or kind.__module__.partition(".")[0] in _OPAQUE or kind.__module__ == "numpy.random":
            return None
        if isinstance(value, BuiltinFunctionType):
            held = value.__self__ if isinstance(value.__self__, Tensor | np.ndarray) else None
            return self._sequence("builtin", [value.__module__, value.__qualname__, held])
        told = getattr(value, "decides_outputs", None)
        if callable(told):
            self.feed(told())
        elif hasattr(value, "__dict__"):
            self._state(vars(value))
        else:
            with suppress(Exception):  # what cannot be taken apart is known by its class alone
                reduced = value.__reduce_ex__(2)
                self._sequence("state", reduced[1:3] if isinstance(reduced, tuple) else [reduced])
        return None

    def _state(self, state: Mapping[str, object]) -> None:
        told = {name: held for name, held in state.items() if name not in _UNSTATED}
        self._sequence("state", [item for pair in sorted(told.items()) for item in pair])

    def _class(self, kind: type) -> None:
        contents = contents_of(kind)
        self._sequence("class", [kind.__qualname__, *contents])
        if kind.__module__ in SCRIPT or contents == ("",):  # of a script, what the class uses; or there is no source
            for name, held in sorted(vars(kind).items()):
                function = getattr(held, "__func__", getattr(held, "fget", held))
                if isinstance(function, FunctionType):
                    self._sequence("method", [name, function])

    def _function(self, function: FunctionType) -> None:
        contents = contents_of(function)
        self._sequence("function", contents)
        # Functions of one file or line share a text, what has no source has none, and a wrapper's is of what it wraps.
        alone = len(contents) == 1 and is_function(contents[0]) and not hasattr(function, "__wrapped__")
        if not alone and not is_builtin(str(function.__module__)):
            self.feed(function.__code__)
        held = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self._sequence("defaults", [function.__defaults__, function.__kwdefaults__])
        self._sequence("nonlocals", [item for name, cell in held for item in (name, _content(cell))])
        if is_builtin(str(function.__globals__.get("__name__"))):
            return
        for name in sorted(_names(function.__code__)):
            value = function.__globals__.get(name, _MISSING)
            if value is not _MISSING and _counts(value, function):
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


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty yet
        return None


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function uses, in the functions inside it too."""
    yield from code.co_names
    for held in code.co_consts:
        if isinstance(held, CodeType):
            yield from _names(held)


def _counts(value: object, function: FunctionType) -> bool:
    """Whether a global that a function names is part of what it computes: data, models, and code of the user's."""
    if isinstance(value, FunctionType):
        return value.__module__ == function.__module__ or is_users(str(value.__module__))
    if isinstance(value, ModuleType):
        return is_users(value.__name__)
    if isinstance(value, type):
        return is_users(value.__module__)
    return _is_plain(value) or isinstance(value, nn.Module | BlackBox) or is_users(type(value).__module__)


def _is_plain(value: object) -> bool:
    """Whether a value is data whose content can be hashed."""
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | complex | str | bytes | Tensor | np.ndarray)
