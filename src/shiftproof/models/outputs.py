"""Calling a model: images or texts in, checked logits out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from shiftproof.errors import INTERRUPTIONS, ModelError, ShiftproofError
from shiftproof.models.input_size import input_size
from shiftproof.models.opening import scores_in

Inputs: TypeAlias = Tensor | list[Any]
"""Images [N, C, H, W], or a list of texts, or of pairs of them."""
_EXPECTED = "one row of at least 2 finite scores per image: a float tensor [N, K]"
MADE_FOR = (
    "check the image size (--size) and channels (--color gray for one, --color rgb for three) the model was made for"
)
"""What to do about a model that fails on images."""
_WRAP = (
    "say which of several outputs they are, load_model(model, output=KEY), or wrap it in a function that returns only "
    "the logits, in a file: --model file.py:build"
)


def device_of(model: Callable[..., object]) -> torch.device:
    """Return the device of a model: that of its first parameter or buffer, or the CPU if it has none.

    Args:
        model: Any model.
    """
    if isinstance(model, nn.Module):
        for tensor in chain(model.parameters(), model.buffers()):
            return tensor.device
    device = getattr(model, "device", "cpu")
    return torch.device(device)


def logits(model: Callable[..., object], inputs: Inputs) -> Tensor:
    """Return the model's logits, [N, K] float32 on the CPU, for images [N, C, H, W] in [0, 1]; K is at least 2.

    No gradients are kept. Images are moved to the model's device, and to its precision where that is not float32; a
    list of texts, or of pairs of them, goes to the model as it is. Anything but finite scores, one row per input, is a
    `ModelError`.

    Args:
        model: Any model.
        inputs: Images [N, C, H, W] in [0, 1], or a list of texts.
    """
    return device_logits(model, inputs).cpu()


def device_logits(model: Callable[..., object], inputs: Inputs, *, wait: bool = True) -> Tensor:
    """Return the same logits where the model left them: what is made of them there need not travel.

    Args:
        model: Any model.
        inputs: Images [N, C, H, W] in [0, 1], or a list of texts.
        wait: Whether to see that they are finite, which waits for a GPU; who does not has to ask `check_finite` later.
    """
    try:
        with torch.no_grad():
            if isinstance(inputs, Tensor):
                inputs = inputs.to(device_of(model), precision_of(model))
            out = scores_in(model(inputs))
    except (ShiftproofError, *INTERRUPTIONS):
        raise
    except torch.OutOfMemoryError as error:
        raise ModelError(
            "The model ran out of memory.", got=f"a batch of {len(inputs)} inputs", fix="use smaller batches"
        ) from error
    except BaseException as error:  # whatever a user's model raises is told in one paragraph
        raise _failed(model, inputs, error) from error
    scores = _shaped(out, len(inputs))
    if wait:
        check_finite(scores)
    return scores


def check_logits(out: object, images: int) -> Tensor:
    """Return what a model put out as float32 on the CPU, or refuse what is not logits for that many images."""
    scores = _shaped(out, images).cpu()
    check_finite(scores)
    return scores


def _shaped(out: object, images: int) -> Tensor:
    """Return a float32 copy of what a model put out, or refuse what is not logits for that many images.

    Engines write every answer into the same memory: what is kept of one must not be theirs when the next comes.
    """
    if not isinstance(out, Tensor):
        kind = f"a {type(out).__name__}"
        raise ModelError("The model does not return a tensor.", expected=_EXPECTED, got=kind, fix=_WRAP)
    shape = tuple(out.shape)
    if out.ndim != 2 or shape[0] != images or shape[1] < 2:
        fix = _WRAP
        if shape in ((images,), (images, 1)):
            fix = _one_output(out)
        raise ModelError(
            "The model returns the wrong shape.",
            expected=_EXPECTED,
            got=f"shape {shape} for {images} images",
            fix=fix,
        )
    if not out.is_floating_point():
        kind = f"a tensor of {str(out.dtype).removeprefix('torch.')}"
        raise ModelError("The model does not return scores.", expected=_EXPECTED, got=kind, fix=_WRAP)
    return out.detach().to(torch.float32, copy=True)


def check_finite(*batches: Tensor) -> None:
    """Refuse logits, batches of them [N, K] each, that are not all finite; a GPU is waited for once."""
    flags = [scores.isfinite().all() for scores in batches]
    if not flags or bool(torch.stack(flags).all()):
        return
    scores = torch.cat([each.cpu() for each in batches])
    finite = scores.isfinite().all(dim=1)
    found = "NaN" if bool(scores.isnan().any()) else "infinity"
    raise ModelError(
        f"The model returns {found}.",
        expected=_EXPECTED,
        got=f"{found} for {int((~finite).sum())} of {len(scores)} images",
        fix="check its weights, and that its normalisation fits images in [0, 1]",
    )


def _one_output(out: Tensor) -> str:
    """Return what to do about one number per image: a class, a logit, or where it may be one, a probability."""
    if not out.is_floating_point():
        return "these are class numbers: return the scores they were chosen from"
    logit = "a binary model with one logit s: s = s.reshape(-1, 1), return torch.cat([-s, s], dim=1) / 2"
    if bool(((out >= 0) & (out <= 1)).all()):
        return f"{logit}; with one probability s, after a sigmoid: return torch.cat([1 - s, s], dim=1)"
    return f"{logit}, the same probabilities"


def are_probabilities(scores: Tensor) -> bool:
    """Whether rows of scores [N, K] look like probabilities: none is negative, and every row sums to 1."""
    return bool((scores >= 0).all()) and bool(((scores.sum(1) - 1).abs() <= 1e-3).all())


def _failed(model: object, inputs: Inputs, error: BaseException) -> ModelError:
    if isinstance(inputs, list):
        kind = "texts" if isinstance(inputs[0], str) else "pairs of texts"
        return ModelError(
            f"The model failed on a batch of {kind}.",
            expected="a model that takes a list of texts, or of pairs of them, and returns logits",
            got=f"{type(error).__name__} on {len(inputs)} {kind}: {_first_line(error)}",
            fix="a text model is a folder of transformers, a saved text network, or file.py:build",
        )
    wanted = input_size(model)
    return ModelError(
        "The model failed on a batch of images.",
        expected="a model that takes float tensors N x C x H x W in [0, 1]",
        got=f"{type(error).__name__} on shape {tuple(inputs.shape)}: {_first_line(error)}",
        fix=MADE_FOR + ("" if wanted is None else f": size={wanted.size}"),
    )


def precision_of(model: Callable[..., object]) -> torch.dtype:
    """Return the precision a model takes images in: that of its first parameter, and float32 without any."""
    if isinstance(model, nn.Module):
        for parameter in model.parameters():
            if parameter.is_floating_point():
                return parameter.dtype
    return torch.float32


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "no message")
