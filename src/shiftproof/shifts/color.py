"""Colour: luma."""

from __future__ import annotations

from torch import Tensor


def luma(images: Tensor) -> Tensor:
    """Return the brightness of RGB images by the weights of Rec. 601, N x C x H x W -> N x 1 x H x W.

    Images of one channel are their own luma.
    """
    if images.shape[1] == 1:
        return images
    return (images[:, :1] * 0.299).add_(images[:, 1:2], alpha=0.587).add_(images[:, 2:], alpha=0.114)
