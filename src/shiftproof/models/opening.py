"""Scores in what a model returns: a tensor itself, or one in a tuple, a dictionary or a `ModelOutput`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.errors import ModelError

KEYS = ("logits", "out")
"""Where a model that returns several things by name keeps its scores."""

QUERIES = ("class_queries_logits", "masks_queries_logits")
"""What a segmenter that answers by queries returns (MaskFormer, Mask2Former)."""


def scores_in(returned: Any, output: str | int | None = None) -> Any:
    """Return the scores in what a model returned; `output` is the name or the number of theirs, where it is not usual.

    They are the `logits` or `out` of a dictionary or an object, the only entry of a dictionary, or the first of a
    tuple; of a segmenter that answers by queries, the logarithms of what its queries say of each pixel together. What
    is none of these is returned as it is.

    >>> scores_in({"features": 1, "head": 2}, "head")
    2
    """
    if output is not None:
        return _at(returned, output)
    if isinstance(returned, Mapping):
        if all(name in returned for name in QUERIES):
            return _of_queries(*(returned[name] for name in QUERIES))
        key = next((key for key in KEYS if key in returned), next(iter(returned)) if len(returned) == 1 else None)
        if key is None:
            raise ModelError(
                "The model returns several values, and it is unclear which are its scores.",
                expected=f"one of {', '.join(KEYS)} among them",
                got=", ".join(map(str, returned)),
                fix="say which: load_model(model, output=KEY), --output KEY",
            )
        return returned[key]
    if isinstance(returned, Tensor | np.ndarray):
        return returned
    if isinstance(returned, tuple | list):
        first = returned[0] if len(returned) else None
        opens = isinstance(first, Mapping) or (isinstance(first, Tensor | np.ndarray) and first.ndim > 1)
        return scores_in(first) if opens else returned
    return next((getattr(returned, key) for key in KEYS if hasattr(returned, key)), returned)


def _of_queries(classes: Tensor, masks: Tensor) -> Tensor:
    """Return the logarithms of the shares of classes, [N, C, h, w], by queries: the last of their classes is none."""
    scores = torch.einsum("nqc,nqhw->nchw", classes.softmax(-1)[..., :-1], masks.sigmoid())
    tiny = torch.finfo(torch.float32).tiny
    return (scores / scores.sum(1, keepdim=True).clamp(min=tiny)).clamp(min=tiny).log()


def _at(returned: Any, output: str | int) -> Any:
    try:
        if isinstance(returned, Mapping):
            return returned[output]
        if isinstance(returned, tuple | list):
            return returned[int(output)]
        return getattr(returned, str(output))
    except (KeyError, IndexError, AttributeError, ValueError) as error:
        known = (
            returned if isinstance(returned, Mapping) else range(len(returned)) if hasattr(returned, "__len__") else ()
        )
        raise ModelError(
            f"The model returns nothing named {output!r}.",
            expected=", ".join(map(str, known)) or "the name of an attribute",
            got=f"output={output!r}, of a {type(returned).__name__}",
        ) from error
