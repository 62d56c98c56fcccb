"""The typed tensors of torchvision (`tv_tensors`), never imported here: a user who has some has imported it."""

from __future__ import annotations

import sys

from torch import Tensor


def is_one(thing: object, *kinds: str) -> bool:
    """Whether a thing is a typed tensor of one of some kinds, such as `Image`; of any kind where none is named."""
    module = sys.modules.get("torchvision.tv_tensors")
    classes = [getattr(module, kind, None) for kind in kinds or ("TVTensor",)]
    return any(isinstance(thing, found) for found in classes if isinstance(found, type))


def wrapped(made: Tensor, like: Tensor) -> Tensor:
    """Return a tensor as what another one is: a typed tensor where that is one."""
    if not is_one(like):
        return made
    typed: Tensor = sys.modules["torchvision.tv_tensors"].wrap(made, like=like)
    return typed
