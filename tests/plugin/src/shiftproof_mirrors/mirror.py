"""A method of adaptation: the answer to an image is the mean of those to the image and to its mirror image."""

from __future__ import annotations

from torch import Tensor

from shiftproof.adapters import Adapter, Method, MethodOptions, Parts
from shiftproof.adapters.norms import SourceStatistics


def _answer(adapter: Adapter, images: Tensor) -> Tensor:
    return (adapter.run(images) + adapter.run(images.flip(-1))) / 2


def _parts(o: MethodOptions) -> Parts:
    return Parts(norm=SourceStatistics(), learn=_answer, predict=_answer)


MIRROR = Method("mirror", "a common practice", _parts, needs_gradients=False, needs_norm_layers=False)
