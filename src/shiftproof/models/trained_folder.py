"""The network that `shiftproof train` left in a folder: how to build it, and its weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from shiftproof.errors import ModelError
from shiftproof.models.blackbox import Model
from shiftproof.models.carried_source import is_own
from shiftproof.models.class_names import with_class_names
from shiftproof.models.heads import with_new_head
from shiftproof.models.named import cards
from shiftproof.models.networks import NETWORKS
from shiftproof.models.networks.text_cnn import NAME as TEXT_CNN
from shiftproof.models.networks.text_cnn import TextCNN
from shiftproof.models.python_file import is_python_file, split_python_file
from shiftproof.models.weights import load_weights
from shiftproof.runs.files import read_json

TRAINED, TRAINED_WEIGHTS = "model.json", "model.safetensors"
"""What training leaves in its folder: how to build the network, and its weights."""

HUBS = ("torchvision:", "timm:")
"""What the names of other packages' models begin with."""


def is_named(spec: str) -> bool:
    """Whether a text names a trained model of this package or of a hub, and no file."""
    return spec == "demo" or spec in cards() or spec.startswith(HUBS)


def load_trained(folder: Path, load: Callable[..., Model], device: torch.device | str) -> Model:
    """Return the network that training left in a folder; `load` is `load_model`, for what is named there."""
    weights = folder / TRAINED_WEIGHTS
    try:
        facts = read_json(folder / TRAINED)
        spec, names = facts["model"], [str(name) for name in facts.get("classes") or ()]
        head = None if facts.get("head") is None else int(facts["head"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"Cannot read how the network in {str(folder)!r} was built.",
            expected=f"{TRAINED}, as `shiftproof train` wrote it",
            got=f"{type(error).__name__}: {error}",
        ) from error
    if not isinstance(spec, str):
        raise ModelError(
            f"The network in {str(folder)!r} was given to training as an object, or as a file that is no Python.",
            fix=f"build it again and call shiftproof.models.load_weights(network, {str(weights)!r})",
        )
    if spec == TEXT_CNN:
        return TextCNN.load(folder)
    if is_python_file(spec):
        spec = _checked_own(folder, spec)
    elif spec not in NETWORKS and not is_named(spec):
        raise ModelError(
            f"The network in {str(folder)!r} is said to be built from a file or folder, which was not opened.",
            expected=f"in {TRAINED}, a named network, or the whole path of a Python file of your own",
            got=repr(spec),
            fix=f"if you trust it: load_weights(load_model({spec!r}), {str(weights)!r}) of shiftproof.models",
        )
    if spec in NETWORKS or spec.startswith(HUBS) or (is_python_file(spec) and head is None):
        return with_class_names(load(spec, device=device, weights=weights), names)
    model = load(spec, device=device)
    if not isinstance(model, nn.Module):
        raise ModelError(f"{spec!r} takes no weights.", expected="a PyTorch module")
    if head is not None:
        with_new_head(model, head)
    load_weights(model, weights)
    return with_class_names(model, names)


def _checked_own(folder: Path, spec: str) -> str:
    """Return a user's own file, by its whole path; refuse one that came with a folder of weights from elsewhere.

    Training copies the user's file into its folder, and notes that it is theirs; older versions noted its whole path.
    """
    path, function = split_python_file(spec)
    there = folder / path
    if there.resolve().is_relative_to(folder.resolve()):
        if is_own(there):
            return f"{there.resolve()}:{function}"
    elif path.is_absolute():
        return spec
    weights = folder / TRAINED_WEIGHTS
    raise ModelError(
        f"The network in {str(folder)!r} is built by a Python file that comes with it; it was not run.",
        expected="files that you have trained with on this machine",
        got=repr(spec),
        fix=f"if you trust the file: --model {there}:{function} --weights {weights}",
    )
