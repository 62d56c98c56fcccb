"""When memory runs out: the same work in smaller batches, with the same numbers."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")

_WORDS = ("can't allocate memory", "not enough memory", "out of memory", "alloc_failed")
"""What errors without a type of their own say: of torch's CPU allocator, of cuDNN and cuBLAS, of other runtimes."""


class BatchFitter:
    """A batch size that is halved when memory runs out.

    Args:
        size: Initial batch size.

    >>> fit = BatchFitter(64)
    >>> fit(lambda size: size), fit.size
    (64, 64)
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, work: Callable[[int], T]) -> T:
        """Return `work(size)` for the largest size that fits in memory; raises if even size 1 does not."""
        size = self.size
        while True:
            try:
                found = work(size)
            except Exception as error:
                if size == 1 or not out_of_memory(error):
                    raise
            else:
                self.size = size
                return found
            # Out here the error is gone, and with it the frames that held the tensors of the batch that did not fit.
            size //= 2
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def out_of_memory(error: BaseException | None) -> bool:
    """Say whether an error, or one that it came of, is that memory ran out."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            return True
        if isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _WORDS):
            return True
        error = error.__cause__
    return False
