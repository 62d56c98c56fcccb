"""What a segmenter returns, made into scores for every pixel: logits [N, C, H, W] at the size of the images.

Logits at a coarser stride are resized bilinearly (align_corners=False), as published evaluations do; label maps never.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.errors import INTERRUPTIONS, ModelError, ShiftproofError
from shiftproof.models.blackbox import BlackBox, Model
from shiftproof.models.folding import folded
from shiftproof.models.opening import scores_in
from shiftproof.models.outputs import MADE_FOR, device_of, precision_of

_EXPECTED = "scores for every pixel: a float tensor [N, C, h, w], alone or as `out` or `logits`, C of 2 or more"
_TINY = torch.finfo(torch.float32).tiny


class PixelLogits(nn.Module):
    """A segmenter that gives logits [N, C, H, W] at the size of its images, whatever it returned them in.

    >>> coarse = PixelLogits(lambda images: {"out": images[:, :2, ::4, ::4]})
    >>> coarse(torch.rand(1, 3, 8, 8)).shape
    torch.Size([1, 2, 8, 8])
    """

    def __init__(self, model: Any, probabilities: bool = False) -> None:
        super().__init__()
        self.model, self.probabilities = model, probabilities

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, C, H, W]."""
        scores = pixel_scores(self.model(images), len(images))
        if self.probabilities:
            scores = scores.float().clamp(min=_TINY).log()
        return resized(scores, images.shape[-2:])


def pixel_scores(returned: Any, images: int) -> Tensor:
    """Return the scores in what a segmenter returned, [N, C, h, w]; one score a pixel becomes two classes."""
    scores = scores_in(returned)
    scores = scores if isinstance(scores, Tensor) else torch.as_tensor(scores) if hasattr(scores, "shape") else scores
    if not isinstance(scores, Tensor) or scores.ndim != 4 or len(scores) != images or not scores.is_floating_point():
        got = f"{scores.dtype} of shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
        labels = isinstance(scores, Tensor) and scores.ndim == 3
        raise ModelError(
            "The model does not return scores for pixels.",
            expected=_EXPECTED,
            got=f"{got}, for {images} images",
            fix="return the scores before the arg max"
            if labels
            else "wrap it in a function that returns them, in a file: --model file.py:build; --output KEY names them",
        )
    return torch.cat([-scores, scores], 1) / 2 if scores.shape[1] == 1 else scores


def resized(scores: Tensor, size: tuple[int, ...] | torch.Size) -> Tensor:
    """Return scores [N, C, h, w] at a height and width, by bilinear interpolation where they have others."""
    if tuple(scores.shape[-2:]) == tuple(size):
        return scores
    return F.interpolate(scores, size=tuple(size), mode="bilinear", align_corners=False)


def pixel_logits(model: Callable[[Any], Any], images: Tensor) -> Tensor:
    """Return a segmenter's logits, [N, C, H, W] float32 on its device, without gradients; refuse what is not finite."""
    try:
        with torch.no_grad():
            given = images.to(device_of(model), precision_of(model))
            scores = resized(pixel_scores(model(given), len(images)).float(), images.shape[-2:])
    except (ShiftproofError, *INTERRUPTIONS):
        raise
    except torch.OutOfMemoryError as error:
        raise ModelError(
            "The model ran out of memory.", got=f"a batch of {len(images)} images", fix="use smaller batches"
        ) from error
    except BaseException as error:  # whatever a user's model raises is told in one paragraph
        raise ModelError(
            "The model failed on a batch of images.",
            expected="a model that takes float tensors N x C x H x W in [0, 1]",
            got=f"{type(error).__name__} on shape {tuple(images.shape)}: {str(error).strip().partition(chr(10))[0]}",
            fix=MADE_FOR,
        ) from error
    if not bool(scores.isfinite().all()):
        found = "NaN" if bool(scores.isnan().any()) else "infinity"
        raise ModelError(
            f"The model returns {found}.",
            expected=_EXPECTED,
            fix="check its weights, and that its normalisation fits images in [0, 1]",
        )
    return scores


def answering_pixels(model: Model, images: Tensor) -> Model:
    """Return a model that gives logits for pixels, by what it returns for some images; itself where it does."""
    try:
        with torch.no_grad():
            returned = model(images.to(device_of(model), precision_of(model)))
            scores = pixel_scores(returned, len(images))
    except INTERRUPTIONS:
        raise
    except BaseException:  # whoever measures will tell it better
        return model
    sums = scores.float().sum(1) - 1
    probabilities = bool((scores >= 0).all()) and bool((sums.abs() <= 1e-3).all())
    if scores is returned and scores.shape[-2:] == images.shape[-2:] and not probabilities:
        return model
    made = PixelLogits(model, probabilities).train(getattr(model, "training", False))
    return BlackBox(made, name=model.name, device=model.device) if isinstance(model, BlackBox) else made


def folded_pixels(model: Model, images: Tensor) -> Model:
    """Return a segmenter with the same answers that is faster to ask; itself where there is none."""
    if isinstance(model, PixelLogits) and isinstance(model.model, nn.Module):
        inner = folded(model.model, images, lambda network, some: pixel_logits(network, some).cpu())
        return model if inner is model.model else PixelLogits(inner, model.probabilities).eval()
    return folded(model, images, lambda network, some: pixel_logits(network, some).cpu())
