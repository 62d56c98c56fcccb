"""Models of torchvision and timm, pretrained or with a file of weights; the rest is in their own metadata."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models import imagenet
from shiftproof.models.class_names import with_class_names
from shiftproof.models.input_size import InputSize, with_input_size
from shiftproof.models.normalize import Normalize
from shiftproof.models.weights import Weights, head_size, load_weights, read_weights
from shiftproof.registry import unknown

Constants = Sequence[float] | None


def load_torchvision(
    name: str,
    *,
    weights: str | Path | None = None,
    num_classes: int | None = None,
    mean: Constants = None,
    std: Constants = None,
) -> nn.Module:
    """Return a torchvision classifier or segmenter with pretrained weights, `DEFAULT` or those named, or with a file's.

    With a file nothing is fetched. `num_classes` is what the file's last layer has, where it is not given; `mean` and
    `std` are those of the pretrained weights.
    """
    hub = _import("torchvision")
    segmentation = getattr(hub.models, "segmentation", None)
    segmenters = [] if segmentation is None else hub.models.list_models(module=segmentation)
    known = [*hub.models.list_models(module=hub.models), *segmenters]
    if name not in known:
        raise unknown("torchvision classifier or segmenter", name, known)
    entries = hub.models.get_model_weights(name)
    if weights is None or str(weights) in entries.__members__:
        _check_pretrained(f"torchvision:{name}", num_classes, mean)
        entry = entries.DEFAULT if weights is None else entries[str(weights)]
        network = _fetch(f"torchvision:{name}", lambda: hub.models.get_model(name, weights=entry))
        return _complete(network, entry.transforms(), getattr(entry, "meta", {}).get("categories"))
    if not _is_file(weights):
        raise unknown(f"file or set of weights for torchvision:{name}", str(weights), entries.__members__)

    def make(classes: int | None) -> nn.Module:
        backbone = {"weights_backbone": None, "aux_loss": auxiliary} if name in segmenters else {}
        return _untrained(lambda: hub.models.get_model(name, weights=None, **backbone, **_given(num_classes=classes)))

    stored = read_weights(weights)
    auxiliary = any(key.startswith("aux_classifier.") for key in stored.tensors)
    network = _filled(make, stored, num_classes)
    preset = entries.DEFAULT.transforms()
    mean, std = _constants(stored, mean, std, preset.mean, preset.std)
    fixed = getattr(network, "image_size", None) is not None  # a vision transformer's positions
    return with_input_size(nn.Sequential(Normalize(mean, std), network), _preset_size(preset, firm=fixed))


def load_timm(
    name: str,
    *,
    weights: str | Path | None = None,
    num_classes: int | None = None,
    mean: Constants = None,
    std: Constants = None,
) -> nn.Module:
    """Return a timm classifier with pretrained weights, which a tag chooses (`resnet50.a1_in1k`), or with a file's.

    With a file nothing is fetched. `num_classes` is what the file's last layer has, where it is not given; `mean` and
    `std` are those of the model's own data configuration.
    """
    hub = _import("timm")
    architecture = name.partition(".")[0]
    if not hub.is_model(architecture):
        near = get_close_matches(architecture, hub.list_models(pretrained=False))
        raise ConfigurationError(
            f"There is no timm model named {name!r}.",
            expected="a name that timm.list_models(pretrained=True) lists",  # more than an error can
            **({"did you mean": ", ".join(near)} if near else {}),
        )
    if weights is None:
        _check_pretrained(f"timm:{name}", num_classes, mean)
        network = _fetch(f"timm:{name}", lambda: hub.create_model(name, pretrained=True))
        facts: Any = network.pretrained_cfg
        names = facts.get("label_names")
        if not names and facts.get("num_classes") == imagenet.CLASSES:
            names = imagenet.names()
        model = nn.Sequential(Normalize(facts["mean"], facts["std"]), network)
        return with_input_size(with_class_names(model, names), _configured_size(facts, firm=True))

    def make(classes: int | None) -> nn.Module:
        return _untrained(lambda: hub.create_model(name, pretrained=False, **_given(num_classes=classes)))

    stored = read_weights(weights)
    network = _filled(make, stored, num_classes)
    facts = network.pretrained_cfg
    mean, std = _constants(stored, mean, std, facts["mean"], facts["std"])
    size = _configured_size(facts, firm=bool(facts.get("fixed_input_size")))
    return with_input_size(nn.Sequential(Normalize(mean, std), network), size)


def _complete(network: nn.Module, preset: Any, names: Sequence[str] | None) -> nn.Module:
    """Return a network with the normalisation, size and class names of its own weights."""
    model = nn.Sequential(Normalize(preset.mean, preset.std), network)
    return with_input_size(with_class_names(model, names), _preset_size(preset, firm=True))


def _preset_size(preset: Any, *, firm: bool) -> InputSize | None:
    """Return the size in torchvision's transforms of a set of weights."""
    crop, resize = getattr(preset, "crop_size", None), getattr(preset, "resize_size", None)
    return InputSize(int((resize or crop)[0]), int(crop[0]), firm) if crop else None


def _configured_size(facts: Any, *, firm: bool) -> InputSize | None:
    """Return the size in timm's data configuration."""
    if not facts.get("input_size"):
        return None
    crop = int(facts["input_size"][-1])
    return InputSize(int(crop / (facts.get("crop_pct") or 1.0)), crop, firm)


def _filled(make: Callable[[int | None], nn.Module], stored: Weights, num_classes: int | None) -> nn.Module:
    """Return a network with the weights of a file, and with as many outputs as these have where no number is given."""
    network = make(num_classes)
    classes = None if num_classes is not None else head_size(network, stored)
    if classes is not None:
        network = make(classes)
    load_weights(network, stored)
    return network


def _constants(
    stored: Weights, mean: Constants, std: Constants, own_mean: Sequence[float], own_std: Sequence[float]
) -> tuple[Sequence[float], Sequence[float]]:
    """Return the normalisation that was given, or else that of the file, or else that of the architecture's weights."""
    if mean is not None and std is not None:
        return mean, std
    noted_mean, noted_std = stored.constants("mean"), stored.constants("std")
    return (own_mean, own_std) if noted_mean is None or noted_std is None else (noted_mean, noted_std)


def _check_pretrained(spec: str, num_classes: int | None, mean: Constants) -> None:
    if num_classes is not None:
        raise ConfigurationError(
            f"num_classes= cannot be used with the pretrained weights of {spec}.",
            expected="a file of weights for that many classes: a new last layer would be untrained",
            fix="--weights FILE (weights= in Python), or leave num_classes out",
        )
    if mean is not None:
        raise ConfigurationError(f"Model {spec!r} has its own normalisation.", fix="leave out mean and std")


def _is_file(weights: str | Path) -> bool:
    """Whether weights are said by a path, there or not, rather than by the name of a published set."""
    return isinstance(weights, Path) or bool(Path(weights).suffix) or "/" in weights or Path(weights).is_file()


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _untrained(make: Callable[[], nn.Module]) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about initial weights, which a file's replace
        return make()


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
            fix="check the network connection, or give a file of weights: --weights FILE (weights= in Python)",
        ) from error
    return network
