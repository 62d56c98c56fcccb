"""A model that is yet to be loaded, with how it is loaded: for verbs, other processes and the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from torch import nn

from shiftproof.deferred import Deferred


class ModelSpec(Deferred):
    """What `load_model` would be told, kept until the model is needed.

    Every verb takes one in the place of a model. It can be sent to another process, which loads its own.

    Args:
        given: What `load_model` takes first.
        options: Any options of `load_model`, by name.

    >>> ModelSpec("resnet20", weights="w.safetensors")
    ModelSpec('resnet20', weights='w.safetensors')
    """

    loader = "shiftproof.models.loading:load_model"


ModelLike: TypeAlias = str | Path | nn.Module | Callable[..., Any] | ModelSpec
"""A model in any form that `load_model` takes."""
