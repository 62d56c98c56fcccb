"""Models that are only a function: a remote service, an ONNX session, another framework."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.models.opening import scores_in


class BlackBox:
    """A model given as a function from images to scores, without gradients or layers.

    `function` takes a float32 tensor [N, C, H, W] in [0, 1] on `device`, or a list of texts, and returns logits (or
    other scores whose maximum is the prediction) [N, K], as a tensor or an array.

    Args:
        function: Function from images, or a list of texts, to one row of scores per input.
        name: Name in reports. Default: the function's name.
        fingerprint: Version of the function, needed if its code does not determine its outputs, as for a remote
            service.
        device: Device of the images passed to the function.

    >>> box = BlackBox(lambda images: images.mean((2, 3)), name="mean colour")
    >>> box(torch.ones(2, 3, 8, 8)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        *,
        name: str | None = None,
        fingerprint: str | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.function = function
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self.device = torch.device(device)
        self.output: str | int | None = None  # which of several things that it returns are the scores
        self._given = fingerprint

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the function, including the files of a `file.py` it came from."""
        from shiftproof.models.identity import digest
        from shiftproof.models.sources import SOURCE

        own = digest(self._given if self._given is not None else self.function)
        more = [part for part in (vars(self).get(SOURCE), self.output) if part is not None]
        return digest([own, *more]) if more else own

    def __call__(self, images: Tensor | list[Any]) -> Tensor:
        """Return the scores as a tensor."""
        if isinstance(images, Tensor):
            images = images.detach().to(self.device, torch.float32)
        return torch.as_tensor(scores_in(self.function(images), self.output))

    def reading(self, output: str | int | None) -> BlackBox:
        """Return the same black box, reading its scores from a key, attribute or index of the returned value."""
        made = copy.copy(self)
        made.__dict__.pop("fingerprint", None)
        made.output = output
        return made

    def __repr__(self) -> str:
        return f"BlackBox({self.name!r})"


Model = nn.Module | BlackBox
"""A model: from images [N, C, H, W] in [0, 1] to logits [N, K]."""
