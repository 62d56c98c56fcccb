"""Orders in which every stretch has the classes in their shares: then accuracy does not move with the mix of classes.

Under a corruption a model may know one class and miss another entirely: for CIFAR-10 at 40% about a third of the
variance of a window's accuracy is which classes happen to be in it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.data.base import in_shares
from shiftproof.keyed import Keyed

STRETCH = 256
"""Images within which classes come in any order; every stretch of so many has them in their shares."""


def balanced_order(rng: Keyed, labels: Tensor) -> Tensor:
    """Return a random order of images, [N], in which every stretch of 256 has the classes in their shares.

    `labels` [N] are whole numbers from 0. `rng` has one key; the order depends on its draws and the labels alone.

    >>> order = balanced_order(Keyed(0, [0]), torch.arange(1024) % 4)
    >>> [torch.bincount(part % 4).tolist() for part in order.split(256)] == [[64] * 4] * 4
    True
    """
    count = len(labels)
    order = rng.permutation(count)[0]
    even = in_shares(order, labels)
    stretch = torch.arange(count, dtype=torch.float64) // STRETCH
    return even[(stretch + rng.uniform(shape=(count,))[0]).argsort(stable=True)]
