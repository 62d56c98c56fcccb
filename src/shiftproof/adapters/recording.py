"""A network's passes recorded once and replayed: on CUDA, launching small kernels takes longer than running them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Self

import torch
from torch import Tensor, nn

from shiftproof.adapters.norms import BatchStatistics, NormPolicy, SourceStatistics


class Recorded:
    """Runs a network forward and backward as CUDA graphs, for images of the shape that came first.

    What a pass does on the host is not repeated, so networks whose work depends on values cannot be recorded, and norm
    policies that gather statistics cannot either. Weights are read anew at every replay; a network that moves to other
    memory is to be `forget`ten. A replay writes over what the one before it left for its way back, so there is one per
    step: `begin` allows the next. The way back writes over it, too, and can be gone once.
    """

    def __init__(self, model: nn.Module, amp: str | None) -> None:
        self._pass = _Pass(model, amp)
        self.forget()

    def forget(self) -> None:
        """Record anew at the next images."""
        self._key: tuple[Any, ...] | None = None
        self._replay: Callable[[Tensor], Tensor] | None = None
        self.begin()

    def begin(self) -> None:
        """Start with a step."""
        self.used = False

    def fits(self, images: Tensor) -> bool:
        """Return whether images can be run by what is recorded, or by what they would begin."""
        return images.is_cuda and torch.is_grad_enabled() and not self.used and self._key in (None, _key(images))

    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits of images that fit."""
        if self._replay is None:
            # The recording holds on to its nodes, which were made in its own stream. Nothing waits longer for it here.
            warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream does not match")
            sample = images.detach().clone(memory_format=torch.preserve_format)
            self._replay = torch.cuda.make_graphed_callables(self._pass, (sample,))  # type: ignore[assignment]
            self._key = _key(images)
        self.used = True
        return self._replay(images).clone()  # type: ignore[misc]  # the next replay writes over its own output

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)(copy.deepcopy(self._pass.model, memo), self._pass.amp)


def recordable(policy: NormPolicy) -> bool:
    """Return whether a norm policy does the same work on every batch and keeps nothing."""
    return isinstance(policy, BatchStatistics | SourceStatistics)


def _key(images: Tensor) -> tuple[Any, ...]:
    return images.shape, images.stride(), images.dtype, images.device


class _Pass(nn.Module):
    """The network in its precision, without the cache of casts, which a recording must not reach outside for."""

    def __init__(self, model: nn.Module, amp: str | None) -> None:
        super().__init__()
        self.model, self.amp = model, amp

    def forward(self, images: Tensor) -> Tensor:
        low = torch.autocast("cuda", getattr(torch, self.amp), cache_enabled=False) if self.amp else nullcontext()
        with low:
            logits: Tensor = self.model(images)
        return logits
