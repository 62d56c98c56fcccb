"""What an adapter refuses: models it cannot adapt, batches that are none, outputs that are no logits."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from shiftproof.adapters.features import last_linear
from shiftproof.adapters.norms import BatchStatistics
from shiftproof.adapters.parts import NORMS
from shiftproof.errors import DataError, ModelError
from shiftproof.models.layers import has_batch_norm, is_of

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter
    from shiftproof.adapters.method import Method


def check_model(model: Any, chosen: Method, others: Sequence[Method]) -> nn.Module:
    """Return the model; refuse one that lacks what the method needs, and name those of `others` that need less."""
    outputs_alone = ", ".join(each.name for each in others if not each.needs)
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"Method {chosen.name!r} needs a PyTorch module.",
            expected="an nn.Module with its layers",
            got=type(model).__name__,
            fix=f"load the PyTorch module: file.py:build; methods that need only outputs: {outputs_alone}",
        )
    if chosen.needs and is_program(model):
        raise ModelError(
            f"Method {chosen.name!r} cannot adapt a compiled program.",
            expected=f"an nn.Module with its layers: the method needs {', '.join(chosen.needs)}",
            got="a scripted or exported program",
            fix=f"the model as Python built it, or a method that needs only outputs: {outputs_alone}",
        )
    if chosen.needs_norm_layers and not any(isinstance(module, (*NORMS, _BatchNorm)) for module in model.modules()):
        without = ", ".join(each.name for each in others if not each.needs_norm_layers)
        raise ModelError(
            f"Method {chosen.name!r} finds no normalisation layers that can adapt.",
            expected="BatchNorm, GroupNorm, LayerNorm, RMSNorm or InstanceNorm modules",
            got=f"{type(model).__name__} without any",
            fix=f"methods that need none: {without}",
        )
    if chosen.needs_batch_norm and not has_batch_norm(model):
        learning = ", ".join(each.name for each in others if each.needs_norm_layers and not each.needs_batch_norm)
        raise ModelError(
            f"Method {chosen.name!r} does not apply: the model has no batch normalisation, so nothing would adapt.",
            expected="BatchNorm layers, whose statistics the method replaces",
            got=f"{type(model).__name__} with other normalisation layers",
            fix=f"methods that learn the scale and shift of other normalisation layers: {learning}",
        )
    if chosen.needs_features:
        last_linear(model)
    return model


def is_program(model: nn.Module) -> bool:
    """Return whether a model is, or holds, a scripted or exported program, whose layers cannot be changed."""
    return any(is_of(module, "torch.jit", "torch.export") for module in model.modules())


def check_images(images: Tensor, adapter: Adapter) -> None:
    """Refuse what is no batch of images like those before; warn of a single one where statistics need several."""
    if not isinstance(images, Tensor) or images.ndim < 2 or not images.is_floating_point() or not len(images):
        got = f"{images.dtype} of shape {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise DataError("This is not a batch of images.", expected="a float tensor, N x C x H x W, N > 0", got=got)
    if adapter.shape not in (None, tuple(images.shape[1:])):
        raise DataError(
            "The shape of the images changed along the stream.",
            expected=f"images of shape {adapter.shape}, as before",
            got=f"shape {tuple(images.shape[1:])}",
            fix="use one adapter per stream",
        )
    if len(images) == 1 and adapter.steps == 0 and normalises_alone(adapter):
        warnings.warn(
            f"{adapter.method.name} normalises a batch of one image with its own statistics alone; use a window "
            "(window=16), larger batches, or method bn with a prior (prior=16)",
            stacklevel=5,
        )


def normalises_alone(adapter: Adapter) -> bool:
    """Whether an adapter normalises every batch by this batch's statistics alone."""
    return bool(adapter.norms) and adapter.options.window < 2 and adapter.parts.norm == BatchStatistics()


def check_logits(logits: Any, images: Tensor) -> Tensor:
    """Return logits [N, C], or [N, C, H, W] of a segmenter, in at least float32; refuse other outputs."""
    if not isinstance(logits, Tensor) or logits.ndim not in (2, 4) or len(logits) != len(images) or logits.shape[1] < 2:
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise ModelError(
            "The model does not return logits.",
            expected=f"a tensor of {len(images)} rows, one per image, with 2 classes or more",
            got=got,
            fix="wrap the model in a module that returns only the logits",
        )
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
