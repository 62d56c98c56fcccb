"""`load_model`: a model from a name, a file, a hub, or one already made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models.allocation import keep_freed_memory
from shiftproof.models.array_models import as_model, is_estimator
from shiftproof.models.blackbox import BlackBox, Model
from shiftproof.models.class_names import CIFAR10, class_names, read_class_names, with_class_names
from shiftproof.models.devices import choose_device
from shiftproof.models.huggingface import is_huggingface_folder, load_huggingface
from shiftproof.models.input_size import input_size, with_input_size
from shiftproof.models.module_path import is_module_path, load_module_path
from shiftproof.models.named import cards, weights_of
from shiftproof.models.networks import NETWORKS, build_network
from shiftproof.models.normalize import Normalize
from shiftproof.models.outputs import device_of
from shiftproof.models.python_file import is_python_file, load_python_file
from shiftproof.models.restricting import restricted
from shiftproof.models.returned import as_logits
from shiftproof.models.specs import ModelLike, ModelSpec
from shiftproof.models.trained_folder import HUBS, TRAINED, is_named, load_trained
from shiftproof.models.weights import CONVERT, load_weights, read_weights
from shiftproof.registry import Registry, is_prefixed, load_prefixed, unknown
from shiftproof.runs.files import is_file

FORMS: Mapping[str, str] = {
    "demo": "the embedded CIFAR-10 ResNet-20",
    **{name: card["summary"] for name, card in cards().items()},
    **dict.fromkeys(NETWORKS, "a reference network, with weights= a safetensors file or a state dict"),
    "file.py:build": "what build() in a Python file returns",
    "package.module:build": "what build() in a Python module returns",
    "torchvision:NAME": "a torchvision classifier or segmenter, such as resnet50, pretrained or with weights= a file",
    "timm:NAME": "a timm classifier, such as timm:resnet50.a1_in1k, pretrained or with weights= a file",
    "model.onnx": "an ONNX file, as a black box",
    "model.pt2": "a torch.export program",
    "model.ts": "a TorchScript program, which may read and write files",
    "folder/": "what `shiftproof train` or a text network wrote, or a Hugging Face classifier or segmenter",
}
"""What `load_model` takes, for tables and messages."""

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_SAVE_FIRST = (
    "if it is a name of the Hugging Face hub, from which nothing is downloaded: save the model and its processor or "
    "tokenizer into one folder with save_pretrained, and give the folder"
)

Device = torch.device | str | None

LOADERS: Registry[Callable[..., Any]] = Registry(
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
    num_classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    classes: str | Path | Sequence[str] | None = None,
    output: str | int | None = None,
    probabilities: bool = False,
    only_classes: str | Path | Sequence[str | int] | None = None,
) -> Model:
    """Load a model from images [N, C, H, W] in [0, 1] to logits: a module in evaluation mode, or a black box.

    Args:
        spec: demo, file.py:build, package.module:build, torchvision:NAME, timm:NAME, model.onnx, a saved module, a
            trained folder or a Hugging Face classifier; in Python also a module (put into evaluation mode), a function
            (wrapped in a `BlackBox`), a classifier of scikit-learn's kind, or a `ModelSpec`.
        device: Device, or `auto` for CUDA if available. Default: the CPU for models that are loaded; modules passed in
            stay where they are. (Verbs default to `auto`.)
        weights: File of weights (safetensors, state dict, checkpoint) for a reference network, a torchvision or timm
            name or a file.py:build; or the name of a torchvision entry.
        num_classes: Number of outputs of a torchvision or timm architecture, with a file of weights. Default: as in the
            file.
        mean: Mean per channel on the [0, 1] scale; with std, adds a normalisation layer in front of the model, or
            replaces that of a torchvision or timm architecture. Default: the model's own.
        std: Standard deviation per channel, on the [0, 1] scale.
        classes: File of the model's class names, one per line, in the order of its outputs; in Python also a list.
            Default: the model's own.
        output: Key, attribute or index of the scores, if the model returns several values. Default: logits, out or the
            first value.
        probabilities: Whether the model returns probabilities instead of logits.
        only_classes: Restrict the model to these classes, as in the evaluation of ImageNet-R: names, WordNet ids or
            indices, a file of them, or a folder of class folders. Default: all outputs.

    >>> load_model("demo")(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """
    if isinstance(spec, ModelSpec):
        if any(each is not None for each in (weights, num_classes, mean, std, classes, output, only_classes)):
            raise ConfigurationError("Options cannot be combined with a ModelSpec.", fix="pass them to ModelSpec(...)")
        return load_model(spec.given, **{**spec.options, "device": device or spec.options.get("device")})
    if (mean is None) != (std is None):
        raise ConfigurationError(
            "A normalisation needs both mean and std.",
            expected="one number per channel for each, such as mean=[0.5, 0.5, 0.5]",
            got=f"mean={mean}, std={std}",
        )
    if num_classes is not None and not str(spec).startswith(HUBS):
        raise ConfigurationError(
            "num_classes= needs a torchvision or timm architecture and a file of weights.",
            got=f"num_classes={num_classes}",
            fix="leave it out for other models",
        )
    names = None if classes is None else read_class_names(classes)
    device = None if device is None else choose_device(device, spec)
    model = _load(spec, device, weights, num_classes, mean, std, output)
    if output is not None or probabilities or _returns_more(model):
        model = as_logits(model, output, probabilities)
    model = with_class_names(model, names)
    return model if only_classes is None else restricted(model, only_classes)


def _load(
    spec: str | Path | Callable[..., Any],
    device: Device,
    weights: str | Path | None,
    num_classes: int | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    output: str | int | None,
) -> Model:
    normalize = None if mean is None or std is None else Normalize(mean, std)
    if not isinstance(spec, str | Path):
        return _given(spec, device, weights, normalize)
    text, device = str(spec), device or "cpu"
    model: Model
    if text in NETWORKS:
        model, normalize = _reference(text, weights, normalize), None
    elif text.startswith(HUBS):
        options: dict[str, Any] = {"weights": weights, "num_classes": num_classes, "mean": mean, "std": std}
        hub, _, name = text.partition(":")
        model, normalize = LOADERS[hub](name, **options), None
    elif is_named(text):
        model = _pretrained(text, weights, normalize)
    elif is_prefixed(LOADERS, text):
        model = load_model(load_prefixed(LOADERS, text), weights=weights)
    elif is_python_file(text):
        model = _built(text, load_python_file(text), weights)
    elif is_module_path(text):
        model = _built(text, load_module_path(text), weights)
    elif weights is not None:
        raise _no_weights(repr(text))
    elif is_huggingface_folder(Path(text)) and not is_file(Path(text) / TRAINED):
        model, normalize = load_huggingface(Path(text), normalize), None
    else:
        model = _from_file(text, device, output, normalized=normalize is not None)
    return _finished(model, device, normalize)


def _given(spec: object, device: Device, weights: str | Path | None, normalize: Normalize | None) -> Model:
    """Return a model already made."""
    if weights is not None:
        raise _no_weights("a model already made")
    return _finished(_checked(spec), device, normalize)


def _pretrained(spec: str, weights: str | Path | None, normalize: Normalize | None) -> nn.Module:
    """Return a network that comes with the package."""
    if normalize is not None:
        raise ConfigurationError(f"Model {spec!r} has its own normalisation.", fix="leave out mean and std")
    if weights is not None:
        raise _no_weights(repr(spec))
    if spec == "demo":
        return with_class_names(_demo(), CIFAR10)
    with as_file(weights_of(spec)) as path:
        return with_class_names(_reference(cards()[spec]["network"], path, None), CIFAR10)


def _built(spec: str, made: Any, weights: str | Path | None) -> Model:
    """Return what a user's own code built, with the weights of a file in it."""
    model = _checked(made)
    if weights is not None:
        if not isinstance(model, nn.Module):
            raise _no_weights(f"{spec!r}, which returns a function")
        load_weights(model, weights)
    return model


def _returns_more(model: Model) -> bool:
    """Whether a model is known to return its logits among other things: those of `transformers` do."""
    return isinstance(model, nn.Module) and type(_last(model)).__module__.startswith("transformers.")


def _last(model: nn.Module) -> nn.Module:
    return _last(model[-1]) if isinstance(model, nn.Sequential) and len(model) else model


def _from_file(spec: str, device: torch.device | str, output: str | int | None, *, normalized: bool) -> Model:
    from shiftproof.models.archives import kind_of, load_exported, load_torchscript

    path = Path(spec)
    try:
        there = path.exists()
    except OSError as error:  # a name that no file can have
        raise ModelError(
            f"Cannot open the model file {spec[:80]!r}.", expected="; ".join(FORMS), got=str(error.strerror)
        ) from error
    if not there:
        if path.suffix or "/" in str(spec) or "\\" in str(spec):
            on_hub = {"fix": _SAVE_FIRST} if _HUB_NAME.fullmatch(spec) and not path.parent.exists() else {}
            raise ModelError(f"There is no model file {spec!r}.", expected="; ".join(FORMS), **on_hub)
        raise unknown("model", spec, [*FORMS, *(f"{name}:..." for name in LOADERS.added)])
    if (path / TRAINED).is_file():
        return load_trained(path, load_model, device)
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise ModelError(f"{spec!r} is {what}, not a model.", expected="; ".join(FORMS))
    try:
        kind = kind_of(path)
    except OSError as error:
        raise ModelError(f"Cannot read the model file {spec!r}.", expected="a readable file", got=str(error)) from error
    match kind:
        case "onnx":
            from shiftproof.models.onnx_session import load_onnx

            return load_onnx(path, device=device, output=output, normalized=normalized)
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
    if is_estimator(made) or (callable(made) and not isinstance(made, type)):
        return as_model(made)
    got = f"the class {made.__name__}, not an instance of it" if isinstance(made, type) else f"a {type(made).__name__}"
    raise ModelError(
        "Unsupported model.",
        expected="an nn.Module, a function from images, or texts, to logits, or a classifier with predict_proba",
        got=got,
    )


def _finished(model: Model, device: Device, normalize: Normalize | None = None) -> Model:
    """Return a model with its normalisation in front, modules in evaluation mode and on their device."""
    keep_freed_memory()
    if isinstance(model, BlackBox):
        if normalize is None:
            return model
        chain = BlackBox(_Chain(normalize, model), name=model.name, device=model.device).reading(model.output)
        return with_input_size(with_class_names(chain, class_names(model)), input_size(model))
    where = device_of(model) if device is None else device
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

    def __call__(self, images: Tensor) -> object:
        return self.box.function(self.normalize(images))


def _no_weights(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"weights= cannot be used with {what}.",
        expected=f"weights with a network ({', '.join(NETWORKS)}), torchvision:NAME, timm:NAME or file.py:build",
        fix=CONVERT,
    )
