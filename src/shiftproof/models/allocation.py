"""Memory that a CPU's networks take again and again."""

from __future__ import annotations

from functools import cache

import torch


@cache
def raise_malloc_threshold() -> None:
    """Let the C library keep freed memory: it returns blocks larger than any freed before, and asks for them again.

    Every layer makes tensors of a few megabytes; having them mapped and cleared anew takes a quarter of the time of a
    small network's forward pass. At most twice the 31 MiB stay with the process.
    """
    torch.ones(31 * 2**18)  # just under the largest block that the library will learn to keep
