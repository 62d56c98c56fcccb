"""The network that `shiftproof train` left in a folder: how to build it, and its weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from shiftproof.errors import ModelError
from shiftproof.models.blackbox import Model
from shiftproof.models.class_names import with_class_names
from shiftproof.models.named import cards
from shiftproof.models.networks import NETWORKS
from shiftproof.models.networks.text_cnn import NAME as TEXT_CNN
from shiftproof.models.networks.text_cnn import TextCNN
from shiftproof.models.python_file import is_python_file
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
        _check_own(folder, spec)
    elif spec not in NETWORKS and not is_named(spec):
        raise ModelError(
            f"The network in {str(folder)!r} is said to be built from a file or folder, which was not opened.",
            expected=f"in {TRAINED}, a named network, or the whole path of a Python file of your own",
            got=repr(spec),
            fix=f"if you trust it: load_weights(load_model({spec!r}), {str(weights)!r}) of shiftproof.models",
        )
    if spec in NETWORKS or is_python_file(spec) or spec.startswith(HUBS):
        return with_class_names(load(spec, device=device, weights=weights), names)
    model = load(spec, device=device)
    if not isinstance(model, nn.Module):
        raise ModelError(f"{spec!r} takes no weights.", expected="a PyTorch module")
    load_weights(model, weights)
    return with_class_names(model, names)


def _check_own(folder: Path, spec: str) -> None:
    """Refuse a Python file that came with a folder of weights: who gives a folder has not asked to run what is in it.

    Training notes the whole path of the user's own file.
    """
    if not Path(spec).is_absolute() or folder.resolve() in Path(spec).resolve().parents:
        weights = folder / TRAINED_WEIGHTS
        raise ModelError(
            f"The network in {str(folder)!r} is built by a Python file that comes with it; it was not run.",
            expected="the whole path of a file of your own, as training notes it",
            got=repr(spec),
            fix=f"if you trust the file: --model {spec} --weights {weights}",
        )
