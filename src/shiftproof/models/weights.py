"""Weights from files that hold tensors and nothing else: safetensors, and state dicts read with `weights_only`."""

from __future__ import annotations

import json
import pickle
import warnings
from argparse import Namespace
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
from torch import Tensor, nn

from shiftproof.errors import ModelError
from shiftproof.models.normalize import Normalize
from shiftproof.runs.files import is_file

CONVERT = (
    "save only its tensors: safetensors.torch.save_file(model.state_dict(), 'weights.safetensors'), and name the"
    " architecture: --model resnet20 or file.py:build, with --weights weights.safetensors"
)


CHECKPOINT_KEYS = ("state_dict", "model_state_dict", "model", "network", "net")
"""Where a training checkpoint keeps its state dict."""
WRAPPERS = ("module", "model", "net", "network", "_orig_mod", "1")
"""Names of attributes that wrap a whole network: parallel copies, Lightning modules, compiled ones, and a `Normalize`
in front."""


class Weights(NamedTuple):
    """What a weights file holds: tensors by name, and the notes of a safetensors header."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]

    def constants(self, name: str) -> list[float] | None:
        """Return the `mean` or `std` the file says its network was trained with, if it does."""
        for front in ("normalize", "0"):  # of a reference network, and of a `Normalize` in front of another
            stored = self.tensors.get(f"{front}.{name}")
            if stored is not None and (front == "normalize" or stored.ndim == 4):
                return [float(value) for value in stored.flatten()]
        if (written := self.metadata.get(name)) is None:
            return None
        try:
            return [float(value) for value in json.loads(written)]
        except (ValueError, TypeError, RecursionError) as error:
            expected = "a list of numbers, one per channel, such as [0.5, 0.5, 0.5]"
            raise ModelError(f"Cannot read the {name} of the weights.", expected=expected, got=written) from error


def is_safetensors(path: Path) -> bool:
    """Whether a file begins as safetensors does: the length of a header, and the header's brace."""
    with path.open("rb") as file:
        head = file.read(9)
    return len(head) == 9 and head[8:] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size


def read_weights(path: str | Path) -> Weights:
    """Read the tensors of a safetensors file or a state dict, on the CPU; code in the file is never run.

    Args:
        path: A safetensors file, or a state dict that holds only tensors.
    """
    path = Path(path)
    if not is_file(path):
        raise ModelError(f"There is no weights file {str(path)!r}.", expected="a .safetensors, .pt or .pth file")
    try:
        tensors_alone = is_safetensors(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    if tensors_alone:
        from safetensors import safe_open

        try:
            with safe_open(path, framework="pt") as file:
                return Weights({name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {})  # noqa: SIM118
        except Exception as error:  # damaged files fail in any way there is
            raise _unreadable(path, error) from error
    return Weights(_state_dict(path, read_tensors(path)), {})


def read_tensors(path: Path, content: IO[bytes] | None = None, *, device: torch.device | str = "cpu") -> Any:
    """Return what `torch.save` stored in a file, or in `content` of it: tensors and plain containers, or an error.

    This is the one place where such a file is opened.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about protocols; what it cannot read, it refuses
            with torch.serialization.safe_globals([Namespace]):  # a command's options, as timm saves: plain values
                return torch.load(content or path, map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        raise needs_code(path) from error
    except Exception as error:  # damaged files fail in any way there is
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ModelError:
    lines = str(error).strip().splitlines() or ["no message"]
    return ModelError(
        f"Cannot read the weights {str(path)!r}.",
        expected="a safetensors file or a state dict",
        got=f"{type(error).__name__}: {lines[0]}",
    )


def needs_code(path: Path) -> ModelError:
    """Return the error for a file that would have to run code of its own to load."""
    return ModelError(
        f"{str(path)!r} needs arbitrary code to load.",
        expected="tensors only: safetensors, or a state dict that torch.load(weights_only=True) reads",
        got="a pickle with other objects in it, such as a whole model or a training checkpoint; it was not run",
        fix=CONVERT,
    )


def load_weights(network: nn.Module, weights: str | Path | Weights) -> None:
    """Copy weights into a network, in the network's own precision; every name and shape must match.

    Names may have the prefixes of wrappers (`module.`, `model.`, `net.`), in the file or in the network, or in a file
    any other (`backbone.`); other tensors in such a file are ignored. The constants of a `Normalize` layer and the
    counters of batch normalisation may be missing.

    Args:
        network: The module to load into.
        weights: A file, or a mapping from names to tensors.
    """
    if not isinstance(weights, Weights):
        weights = read_weights(weights)
    tensors = _renamed(network, weights.tensors)
    wanted = network.state_dict()
    misfits = [
        f"{name} {tuple(tensor.shape)} instead of {tuple(wanted[name].shape)}"
        for name, tensor in tensors.items()
        if name in wanted and tensor.shape != wanted[name].shape
    ]
    problems = {
        "missing": _needed(network) - tensors.keys(),
        "not in the network": tensors.keys() - wanted.keys(),
        "wrong shape": misfits,
    }
    facts = {problem: _some(names) for problem, names in problems.items() if names}
    if facts:
        fix = "choose the architecture these weights were made for; its own code goes into file.py:build"
        raise ModelError(f"The weights do not fit the network {type(network).__name__}.", **facts, fix=fix)
    network.load_state_dict(tensors, strict=False)


def head_size(network: nn.Module, weights: Weights) -> int | None:
    """Return how many classes weights are for, where only the last layer of a network has another number of them."""
    wanted, tensors = network.state_dict(), _renamed(network, weights.tensors)
    others = [(tensor, wanted[name]) for name, tensor in tensors.items() if name in wanted]
    others = [(one, other) for one, other in others if one.shape != other.shape]
    sizes = {one.shape[0] for one, other in others if one.ndim == other.ndim > 0 and one.shape[1:] == other.shape[1:]}
    before = {other.shape[0] for _, other in others if other.ndim}
    return sizes.pop() if len(sizes) == len(before) == 1 else None


def _needed(network: nn.Module) -> set[str]:
    """Return the names of what a file must hold."""
    constants = {
        f"{name}.{buffer}" if name else buffer
        for name, layer in network.named_modules()
        if isinstance(layer, Normalize)
        for buffer in ("mean", "std")
    }
    return {name for name in network.state_dict().keys() - constants if not name.endswith("num_batches_tracked")}


def _renamed(network: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors under the names of a network, where only what wrappers put in front of them differs."""
    wanted = network.state_dict().keys()
    held = _held(network, tensors, _fronts(tensors))
    fitting = {front: made for front, made in held.items() if made.keys() <= wanted}
    fitting = fitting or held | _held(network, tensors, _any_fronts(network, tensors))
    first = next(iter(fitting.values()), dict(tensors))
    if len({id(part) for made in fitting.values() for part in made.values()}) > len(first):
        raise ModelError(
            f"The weights hold the network {type(network).__name__} more than once.",
            expected="one network, or one behind a prefix such as " + ", ".join(f"{word}." for word in WRAPPERS[:4]),
            got=", ".join(front or "no prefix" for front in fitting),
            fix="save only the one you want",
        )
    return first


def _held(network: nn.Module, tensors: Mapping[str, Tensor], fronts: Iterable[str]) -> dict[str, dict[str, Tensor]]:
    """Return the tensors behind each beginning of their names where all that a network needs is among them."""
    needed = _needed(network)
    held: dict[str, dict[str, Tensor]] = {}
    for inner, outer in product(_fronts(needed), fronts):
        made = {inner + name[len(outer) :]: part for name, part in tensors.items() if name.startswith(outer)}
        if needed <= made.keys():
            held[outer] = made
    return held


def _any_fronts(network: nn.Module, tensors: Iterable[str]) -> list[str]:
    """Return the beginnings of names that a network may be behind, whatever a Lightning module calls it."""
    longest = max(_needed(network), key=len, default="")
    tails = {longest.removeprefix(front) for front in _fronts([longest])}
    return sorted({name.removesuffix(tail) for name in tensors for tail in tails if name.endswith(f".{tail}")})


def _fronts(names: Iterable[str]) -> list[str]:
    """Return the beginnings of names that wrappers may have put there, the empty one first."""
    found = {""}
    for name in names:
        words = name.split(".")
        for count in range(1, len(words)):
            if words[count - 1] not in WRAPPERS:
                break
            found.add(".".join(words[:count]) + ".")
    return sorted(found, key=lambda front: (len(front), front))


def _state_dict(path: Path, stored: object) -> dict[str, Tensor]:
    """Find the tensors in a state dict, or in a checkpoint that holds one."""
    if isinstance(stored, Mapping):
        for name in CHECKPOINT_KEYS:
            if isinstance(stored.get(name), Mapping):
                stored = stored[name]
                break
    if not isinstance(stored, Mapping) or not stored or not all(isinstance(part, Tensor) for part in stored.values()):
        raise ModelError(
            f"{str(path)!r} holds no state dict.",
            expected="tensors by name, as model.state_dict() gives them",
            got=f"a {type(stored).__name__}",
            fix=CONVERT,
        )
    parallel = all(str(name).startswith("module.") for name in stored)
    return {str(name).removeprefix("module.") if parallel else str(name): part for name, part in stored.items()}


def _some(names: object) -> str:
    """Name the first few, and count the others."""
    listed = sorted(names)  # type: ignore[call-overload]
    more = f" and {len(listed) - 4} more" if len(listed) > 4 else ""
    return ", ".join(listed[:4]) + more
