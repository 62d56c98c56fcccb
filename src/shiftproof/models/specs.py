"""A model that is yet to be loaded, with how it is loaded: for verbs, other processes and the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from torch import nn

from shiftproof.deferred import Deferred


class ModelSpec(Deferred):
    """A model to load later: the arguments of `load_model`.

    Every verb accepts one in place of a model. It can be pickled; each process then loads its own model.

    Args:
        given: First argument of `load_model`.
        options: Options of `load_model`, by name.

    >>> ModelSpec("resnet20", weights="w.safetensors")
    ModelSpec('resnet20', weights='w.safetensors')
    """

    loader = "shiftproof.models.loading:load_model"


ModelLike: TypeAlias = str | Path | nn.Module | Callable[..., Any] | ModelSpec
"""A model in any form that `load_model` takes."""
