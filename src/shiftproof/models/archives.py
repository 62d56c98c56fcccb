"""Model files told apart by what is in them, and programs loaded from them: TorchScript and `torch.export`.

Everything PyTorch saves is a zip archive: a state dict, a pickled module, a TorchScript program, an exported program.
A TorchScript file holds a program that will be run, and that may read and write files: use those you trust. Of an
exported file, `programs` lets pass tensor operations alone.
"""

from __future__ import annotations

import logging
import warnings
import zipfile
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from shiftproof.errors import ModelError
from shiftproof.models.programs import checked_program
from shiftproof.models.weights import is_safetensors

Kind = Literal["torchscript", "exported", "weights", "onnx"]


def kind_of(path: Path) -> Kind:
    """Return what a model file is, by its content."""
    if zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                # All members are under one folder, named after the file when it was saved.
                members = {name.partition("/")[2] for name in archive.namelist()}
                old = "serialized_exported_program.json" in archive.namelist()
        except Exception as error:  # damaged archives fail in any way there is
            raise _unreadable(path, "zip", error) from error
        if old:
            raise ModelError(
                f"{str(path)!r} was exported by an older PyTorch.",
                expected="an archive of torch.export whose weights are plain tensors",
                got="the former layout, with weights in pickles",
                fix="export it again with a newer PyTorch, or save the weights and use file.py:build",
            )
        if "archive_format" in members:
            return "exported"
        if "constants.pkl" in members:
            return "torchscript"
        if "data.pkl" in members:
            return "weights"
    else:
        with path.open("rb") as file:
            first = file.read(1)
        if is_safetensors(path) or first == b"\x80":  # a pickle, as PyTorch saved before 1.6
            return "weights"
        if first == b"\x08":  # ONNX's first field, the version of its format
            return "onnx"
    raise ModelError(
        f"{str(path)!r} is not a model file.",
        expected="ONNX, TorchScript, a torch.export program, safetensors, a state dict, or file.py:build",
        got=f"{path.stat().st_size} bytes of something else",
    )


def load_torchscript(path: Path, *, device: torch.device | str = "cpu") -> nn.Module:
    """Return a TorchScript program as a module in evaluation mode."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.jit")  # deprecated in favour of torch.export, yet in use
            module: nn.Module = torch.jit.load(path, map_location=device)  # type: ignore[no-untyped-call]
    except Exception as error:  # damaged archives fail in any way there is
        raise _unreadable(path, "TorchScript", error) from error
    return module.eval()


def load_exported(path: Path, *, device: torch.device | str = "cpu") -> nn.Module:
    """Return a `torch.export` program as a module."""
    try:
        checked = checked_program(path)
    except ModelError:
        raise
    except Exception as error:  # damaged archives fail in any way there is
        raise _unreadable(path, "torch.export", error) from error
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # what it has to say arrives as the exception
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given buffer is not writable")  # of PyTorch 2.9's own bytes
            program = torch.export.load(checked)
        if torch.device(device).type != "cpu":
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, str(device))
        module = program.module()
    except Exception as error:  # malformed archives fail in many ways
        raise _unreadable(path, "torch.export", error) from error
    finally:
        logger.setLevel(level)
    _check_batch(path, program)
    return module


def _check_batch(path: Path, program: torch.export.ExportedProgram) -> None:
    """Refuse a program exported for one size of batch: it would fail on the last batch of every data set."""
    names = program.graph_signature.user_inputs
    shapes = [node.meta["val"].shape for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    if len(shapes) == 1 and len(shapes[0]) == 4 and isinstance(shapes[0][0], int):
        raise ModelError(
            f"{str(path)!r} was exported for batches of exactly {shapes[0][0]}.",
            expected="a program for batches of any size",
            fix="torch.export.export(model, (images,), dynamic_shapes=({0: torch.export.Dim('batch')},))",
        )


def _unreadable(path: Path, kind: str, error: Exception) -> ModelError:
    lines = str(error).strip().splitlines() or ["no message"]
    return ModelError(
        f"Cannot load the {kind} file {str(path)!r}.",
        expected="a whole model file, as PyTorch saved it",
        got=f"{type(error).__name__}: {lines[0]}",
    )
