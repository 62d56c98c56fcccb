"""Pretrained models of torchvision and timm, with the mean and std from their weights' own metadata."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any

from torch import nn

from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models.class_names import with_class_names
from shiftproof.models.normalize import Normalize
from shiftproof.registry import unknown


def load_torchvision(name: str, *, weights: str | None = None) -> nn.Module:
    """Return a torchvision classifier with pretrained weights: their `DEFAULT`, or those named, `IMAGENET1K_V1`."""
    hub = _import("torchvision")
    known = hub.models.list_models(module=hub.models)
    if name not in known:
        raise unknown("torchvision classifier", name, known)
    entries = hub.models.get_model_weights(name)
    if weights is not None and weights not in entries.__members__:
        raise unknown(f"set of weights for torchvision:{name}", weights, entries.__members__)
    entry = entries[weights] if weights is not None else entries.DEFAULT
    network = _fetch(f"torchvision:{name}", lambda: hub.models.get_model(name, weights=entry))
    preset = entry.transforms()
    names = getattr(entry, "meta", {}).get("categories")
    return with_class_names(nn.Sequential(Normalize(preset.mean, preset.std), network), names)


def load_timm(name: str) -> nn.Module:
    """Return a timm classifier with pretrained weights; a tag chooses among them, `resnet50.a1_in1k`."""
    hub = _import("timm")
    architecture = name.partition(".")[0]
    if not hub.is_model(architecture):
        near = get_close_matches(architecture, hub.list_models(pretrained=False))
        raise ConfigurationError(
            f"There is no timm model named {name!r}.",
            expected="a name that timm.list_models(pretrained=True) lists",  # more than an error can
            **({"did you mean": ", ".join(near)} if near else {}),
        )
    network = _fetch(f"timm:{name}", lambda: hub.create_model(name, pretrained=True))
    facts: Any = network.pretrained_cfg
    return with_class_names(nn.Sequential(Normalize(facts["mean"], facts["std"]), network), facts.get("label_names"))


def _import(package: str) -> ModuleType:
    try:
        return import_module(package)
    except ImportError as error:
        raise ModelError(
            f"{package} is not installed.", got=str(error), fix="pip install 'shiftproof[vision]'"
        ) from error
    except RuntimeError as error:
        # torchvision registers operators with torch when imported; a build for another torch fails there.
        import torch

        raise ModelError(
            f"{package} cannot be imported: torchvision was not built for this torch.",
            got=f"torch {torch.__version__}; {type(error).__name__}: {error}",
            fix="install both from one index, as builds of one release for the same CPU or CUDA: torchvision 0.N+15"
            " goes with torch 2.N (0.28 with 2.13)",
        ) from error


def _fetch(spec: str, make: Any) -> nn.Module:
    try:
        network: nn.Module = make()
    except (OSError, RuntimeError, ValueError) as error:  # no network, no such tag, a broken download
        lines = str(error).strip().splitlines() or ["no message"]
        raise ModelError(
            f"Cannot get the pretrained weights of {spec}.",
            got=f"{type(error).__name__}: {lines[0]}",
            fix="check the network connection, or load a file: --model file.py:build",
        ) from error
    return network
