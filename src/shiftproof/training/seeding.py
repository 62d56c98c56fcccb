"""Seed the code of others for a while: layers that draw for themselves, a `build()` that starts from random weights."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators of PyTorch, NumPy and Python; afterwards they go on as if nothing had been drawn."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  (the one that users' code draws from)
    begun = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if begun else ()
    with torch.random.fork_rng(devices=list(devices)):
        try:
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            torch.manual_seed(seed)
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
