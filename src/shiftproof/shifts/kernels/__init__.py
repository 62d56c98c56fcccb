"""Fused CUDA kernels, in Triton: one module here for each module of shifts that has some.

Tensor code makes one pass over memory per operation; a kernel makes one in all. Each does the maths of the tensor code
it stands in for, which stays the reference and runs wherever Triton does not. A pixel is computed in a fixed order
that depends on nothing but the image, so an image gets the same bits in any batch. The modules import Triton, so they
are imported only where `usable` says so.
"""

from __future__ import annotations

from torch import Tensor

from shiftproof.keyed import has_triton


def usable(tensor: Tensor) -> bool:
    """Whether kernels can take a tensor: it lies on a CUDA device, and Triton is installed."""
    return tensor.is_cuda and has_triton()
