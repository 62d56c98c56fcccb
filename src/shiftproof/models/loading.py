"""`load_model`: a model from a name, a file, a hub, or one already made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models.allocation import ease_allocation
from shiftproof.models.blackbox import BlackBox, Model
from shiftproof.models.class_names import CIFAR10, class_names, with_class_names
from shiftproof.models.devices import choose_device
from shiftproof.models.huggingface import is_huggingface_folder, load_huggingface
from shiftproof.models.named import cards, weights_of
from shiftproof.models.networks import NETWORKS, build_network
from shiftproof.models.networks.text_cnn import NAME as TEXT_CNN
from shiftproof.models.networks.text_cnn import TextCNN
from shiftproof.models.normalize import Normalize
from shiftproof.models.outputs import device_of
from shiftproof.models.python_file import is_python_file, load_python_file
from shiftproof.models.specs import ModelLike, ModelSpec
from shiftproof.models.weights import CONVERT, load_weights, read_weights
from shiftproof.registry import Registry, is_prefixed, load_prefixed, unknown
from shiftproof.runs.files import read_json

FORMS: Mapping[str, str] = {
    "demo": "the embedded CIFAR-10 ResNet-20",
    **{name: card["summary"] for name, card in cards().items()},
    **dict.fromkeys(NETWORKS, "a reference network, with weights= a safetensors file or a state dict"),
    "file.py:build": "what build() in a Python file returns",
    "torchvision:NAME": "a pretrained torchvision classifier, such as torchvision:resnet50",
    "timm:NAME": "a pretrained timm classifier, such as timm:resnet50.a1_in1k",
    "model.onnx": "an ONNX file, as a black box",
    "model.pt2": "a torch.export program",
    "model.ts": "a TorchScript program, which may read and write files",
    "folder/": "what `shiftproof train` or a text network wrote, or a Hugging Face text classifier",
}
"""What `load_model` takes, for tables and messages."""

TRAINED, TRAINED_WEIGHTS = "model.json", "model.safetensors"
"""What training leaves in its folder: how to build the network, and its weights."""

Device = torch.device | str | None

LOADERS: Registry[Callable[[str], Any]] = Registry(
    "model loader",
    "shiftproof.models",
    {"torchvision": "shiftproof.models.hubs:load_torchvision", "timm": "shiftproof.models.hubs:load_timm"},
    lambda found: callable(found) and not isinstance(found, type | nn.Module),
    "a function from the text behind NAME: to what load_model takes",
)
"""NAME of `NAME:rest` -> what loads it; others add theirs."""


def load_model(
    spec: ModelLike,
    *,
    device: Device = None,
    weights: str | Path | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Model:
    """Return a model from images [N, C, H, W] in [0, 1] to logits: a module in evaluation mode, or a black box.

    Args:
        spec: demo, file.py:build, torchvision:NAME, timm:NAME, model.onnx, a saved module or text model; in Python also
            a module (put into evaluation mode), a function (wrapped in a `BlackBox`), or a `ModelSpec`.
        device: Where it shall compute, `auto` on CUDA where there is one. By default, and not so in the verbs, on the
            CPU for what is loaded, and where it is for what is made: images of one's own are on the CPU too.
        weights: Weights for a reference network or a file.py:build (safetensors or state dict), or a torchvision entry.
        mean: Mean of each channel, on the [0, 1] scale: with std, a normalisation in front of a model that lacks one.
        std: Standard deviation of each channel.

    >>> load_model("demo")(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """
    if (mean is None) != (std is None):
        raise ConfigurationError(
            "A normalisation needs both mean and std.",
            expected="one number per channel for each, such as mean=[0.5, 0.5, 0.5]",
            got=f"mean={mean}, std={std}",
        )
    device = None if device is None else choose_device(device, spec)
    normalize = None if mean is None or std is None else Normalize(mean, std)
    if not isinstance(spec, str | Path):
        return _given(spec, device, weights, normalize)
    text, device = str(spec), device or "cpu"
    if text in NETWORKS:
        return _finished(_reference(text, weights, normalize), device)
    if is_named(text):
        if normalize is not None:
            raise ConfigurationError(
                f"Model {text!r} has its own normalisation.", fix="leave out mean and std: they are inside it"
            )
        return _finished(_pretrained(text, weights), device)
    if is_prefixed(LOADERS, text):
        return load_model(load_prefixed(LOADERS, text), device=device, weights=weights, mean=mean, std=std)
    if is_python_file(text):
        return _finished(_built(text, weights), device, normalize)
    if weights is not None:
        raise _no_weights(repr(text))
    return _finished(_from_file(text, device), device, normalize)


def _given(spec: object, device: str | None, weights: str | Path | None, normalize: Normalize | None) -> Model:
    """Return a model of a spec, or one already made."""
    if isinstance(spec, ModelSpec):
        if weights is not None or normalize is not None:
            raise ConfigurationError("A ModelSpec has its own options.", fix="give weights, mean and std to ModelSpec")
        return load_model(spec.given, **{**spec.options, "device": device or spec.options.get("device")})
    if weights is not None:
        raise _no_weights("a model already made")
    return _finished(_checked(spec), device, normalize)


def is_named(spec: str) -> bool:
    """Whether a text names a trained model of this package or of a hub, and no file."""
    return spec == "demo" or spec in cards() or spec.startswith(("torchvision:", "timm:"))


def _pretrained(spec: str, weights: str | Path | None) -> nn.Module:
    """Return a model that knows its own weights and normalisation."""
    from shiftproof.models.hubs import load_timm, load_torchvision

    hub, _, name = spec.partition(":")
    if hub == "torchvision":
        return load_torchvision(name, weights=None if weights is None else str(weights))
    if weights is not None:
        raise _no_weights(repr(spec))
    if hub == "timm":
        return load_timm(name)
    if spec == "demo":
        return with_class_names(_demo(), CIFAR10)
    with as_file(weights_of(spec)) as path:
        return with_class_names(_reference(cards()[spec]["network"], path, None), CIFAR10)


def _built(spec: str, weights: str | Path | None) -> Model:
    """Return what a user's own file builds, with the weights of another file in it."""
    model = _checked(load_python_file(spec))
    if weights is not None:
        if not isinstance(model, nn.Module):
            raise _no_weights(f"{spec!r}, which returns a function")
        load_weights(model, weights)
    return model


def _from_file(spec: str, device: torch.device | str) -> Model:
    from shiftproof.models.archives import kind_of, load_exported, load_torchscript

    path = Path(spec)
    try:
        there = path.exists()
    except OSError as error:  # a name that no file can have
        raise ModelError(
            f"Cannot look for the model file {spec[:80]!r}.", expected="; ".join(FORMS), got=str(error.strerror)
        ) from error
    if not there:
        if path.suffix or "/" in str(spec) or "\\" in str(spec):
            raise ModelError(f"There is no model file {spec!r}.", expected="; ".join(FORMS))
        raise unknown("model", spec, [*FORMS, *(f"{name}:..." for name in LOADERS.added)])
    if (path / TRAINED).is_file():
        return _trained(path, device)
    if path.is_dir() and is_huggingface_folder(path):
        return load_huggingface(path)
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise ModelError(f"{spec!r} is {what}, and no model.", expected="; ".join(FORMS))
    try:
        kind = kind_of(path)
    except OSError as error:
        raise ModelError(
            f"Cannot read the model file {spec!r}.", expected="a file that may be read", got=str(error)
        ) from error
    match kind:
        case "onnx":
            from shiftproof.models.onnx_session import load_onnx

            return load_onnx(path, device=device)
        case "torchscript":
            return load_torchscript(path, device=device)
        case "exported":
            return load_exported(path, device=device)
        case "weights":
            read_weights(path)  # refuses what would need code to load, with its own message
            raise ModelError(
                f"{spec!r} holds weights, not a model.",
                expected="a model, or weights together with their architecture",
                fix=f"--model resnet20 --weights {spec}, or your own architecture: --model file.py:build --weights"
                f" {spec}",
            )


def _trained(folder: Path, device: torch.device | str) -> Model:
    """Return the network that training left in a folder."""
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
    if spec in NETWORKS or is_python_file(spec):
        return with_class_names(load_model(spec, device=device, weights=weights), names)
    model = load_model(spec, device=device)
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


def _reference(name: str, weights: str | Path | None, normalize: Normalize | None) -> nn.Module:
    """Return a reference network with the weights of a file, which also decide its classes and channels."""
    if weights is None:
        raise ModelError(
            f"The reference network {name!r} needs weights.",
            expected="weights= a safetensors file or a state dict",
            fix="'demo' is a trained resnet20; shiftproof.models.build_network returns an untrained one",
        )
    stored = read_weights(weights)
    mean, std = stored.constants("mean"), stored.constants("std")
    if normalize is not None:
        if mean is not None or std is not None:
            raise ConfigurationError(
                f"The weights {str(weights)!r} have their own normalisation.",
                got=f"mean {mean}, std {std} in the file",
                fix="leave out mean and std",
            )
        mean, std = normalize.mean.flatten().tolist(), normalize.std.flatten().tolist()
    if mean is None or std is None:
        raise ModelError(
            f"The weights {str(weights)!r} do not say how their images were normalised.",
            expected="normalize.mean and normalize.std among the tensors, or mean and std in a safetensors header",
            fix="pass mean and std, on the [0, 1] scale, as the network was trained",
        )
    head = stored.tensors.get("linear.bias", torch.empty(10))  # where it is absent, the weights do not fit anyhow
    network = build_network(name, classes=len(head), channels=len(mean), mean=mean, std=std)
    load_weights(network, stored)
    return network


def _demo() -> nn.Module:
    stored = files("shiftproof.models") / "demo.safetensors"
    if not stored.is_file():
        raise ModelError("The embedded demo model is missing from this installation.", fix="install shiftproof again")
    network = build_network("resnet20")
    with as_file(stored) as path:
        load_weights(network, path)
    return network


def _checked(made: object) -> Model:
    """Return a model already made as it is, a function as a black box, and refuse anything else."""
    if isinstance(made, nn.Module | BlackBox):
        return made
    if callable(made) and not isinstance(made, type):
        return BlackBox(made)
    got = f"the class {made.__name__}, not an instance of it" if isinstance(made, type) else f"a {type(made).__name__}"
    raise ModelError(
        "This is not a model.", expected="an nn.Module, or a function from images, or texts, to logits", got=got
    )


def _finished(model: Model, device: Device, normalize: Normalize | None = None) -> Model:
    """Return a model with its normalisation in front, modules in evaluation mode and on their device."""
    if isinstance(model, BlackBox):
        if normalize is None:
            return model
        chain = BlackBox(_Chain(normalize, model), name=model.name, device=model.device)
        return with_class_names(chain, class_names(model))
    where = device_of(model) if device is None else device
    ease_allocation()
    if normalize is not None:
        model = nn.Sequential(normalize, model)
    with suppress(NotImplementedError):  # a torch.export program has no modes: it computes what was exported
        model.eval()
    return model.to(where)


class _Chain:
    """A normalisation, then a black box."""

    def __init__(self, normalize: Normalize, box: BlackBox) -> None:
        self.normalize = normalize.to(box.device)
        self.box = box

    def __call__(self, images: Tensor) -> Tensor:
        return self.box(self.normalize(images))


def _no_weights(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"weights= does not go with {what}.",
        expected=f"weights with a reference network ({', '.join(NETWORKS)}) or with file.py:build",
        fix=CONVERT,
    )
