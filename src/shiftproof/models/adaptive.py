"""The marker of models that learn while they predict. What derives from it adapts; nothing else is taken to."""

from __future__ import annotations

from torch import Tensor, nn

from shiftproof.models.identity import fingerprint


class Adaptive(nn.Module):
    """A model that learns from the inputs it predicts, so that its answers depend on what it has seen.

    `shiftproof.adapters.Adapter` is one; derive from this for one of your own. Along a stream it runs with gradients,
    hears of every change of shift, and its `state_dict()` is saved. It cannot be certified.
    """

    source: nn.Module
    resets: int = 0

    @property
    def updates(self) -> int:
        """How many updates were made."""
        return 0

    def announce(self, shift: str) -> None:
        """Say which shift the next inputs are under; by default nothing comes of it."""

    def grade(self, labels: Tensor) -> None:
        """Hear the labels of the last batch, [N], where they are known; by default nothing comes of it.

        What is predicted does not depend on them but as the method says: one that asks for labels takes those it asked
        for.
        """

    def identity(self) -> str:
        """Return what tells it apart from others as it begins: two that can learn differently have two."""
        return fingerprint(self)
