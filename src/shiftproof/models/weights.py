"""Weights from files that hold tensors and nothing else: safetensors, and state dicts read with `weights_only`."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Mapping
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


class Weights(NamedTuple):
    """What a weights file holds: tensors by name, and the notes of a safetensors header."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]

    def constants(self, name: str) -> list[float] | None:
        """Return the `mean` or `std` the file says its network was trained with, if it does."""
        if (stored := self.tensors.get(f"normalize.{name}")) is not None:
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
    """Return the tensors of a safetensors file or a state dict, on the CPU; code in the file is never run."""
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
    """Copy weights into a network, in the network's own precision; every name and shape must fit.

    The constants of a `Normalize` layer and the counters of batch normalisation may be absent.
    """
    if not isinstance(weights, Weights):
        weights = read_weights(weights)
    wanted = network.state_dict()
    optional = {
        f"{name}.{buffer}" if name else buffer
        for name, layer in network.named_modules()
        if isinstance(layer, Normalize)
        for buffer in ("mean", "std")
    }
    missing = [
        name for name in wanted.keys() - weights.tensors.keys() - optional if not name.endswith("num_batches_tracked")
    ]
    unknown = weights.tensors.keys() - wanted.keys()
    misfits = [
        f"{name} {tuple(tensor.shape)} instead of {tuple(wanted[name].shape)}"
        for name, tensor in weights.tensors.items()
        if name in wanted and tensor.shape != wanted[name].shape
    ]
    problems = {"missing": missing, "not in the network": unknown, "wrong shape": misfits}
    facts = {problem: _some(names) for problem, names in problems.items() if names}
    if facts:
        fix = "choose the architecture these weights were made for; its own code goes into file.py:build"
        raise ModelError(f"The weights do not fit the network {type(network).__name__}.", **facts, fix=fix)
    network.load_state_dict(weights.tensors, strict=False)


def _state_dict(path: Path, stored: object) -> dict[str, Tensor]:
    """Find the tensors in a state dict, a checkpoint that holds one, or one saved from `DataParallel`."""
    if isinstance(stored, Mapping):
        for name in ("state_dict", "model"):
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
