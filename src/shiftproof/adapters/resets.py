"""When to go back to the start: reset policies, asked before every batch and shown every batch after it.

A policy is a value without state. What it has to remember lies in `adapter.memory`, where it is saved, loaded and
forgotten at a reset with everything else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from shiftproof.errors import ConfigurationError
from shiftproof.registry import unknown

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter


class Reset(ABC):
    """Decides whether an adapter goes back to its start before the next batch."""

    @abstractmethod
    def due(self, adapter: Adapter) -> bool:
        """Return whether it is time."""

    def observe(self, adapter: Adapter, images: Tensor, logits: Tensor) -> None:  # noqa: B027
        """Look at a batch that was answered with these logits and learnt from; by default, do not."""


@dataclass(frozen=True)
class Never(Reset):
    """Adapt for ever."""

    def __str__(self) -> str:
        return "never"

    def due(self, adapter: Adapter) -> bool:
        """Never."""
        return False


@dataclass(frozen=True)
class Every(Reset):
    """Go back before steps k, 2 k, 3 k, ... (Press et al. 2023, RDumb: k = 1000)."""

    steps: int

    def __str__(self) -> str:
        return f"every({self.steps})"

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigurationError(
                "The reset interval must be positive.", expected="1 step or more", got=str(self.steps)
            )

    def due(self, adapter: Adapter) -> bool:
        """At every multiple of the interval; at step 0 there is nothing to go back from."""
        return adapter.steps > 0 and adapter.steps % self.steps == 0


@dataclass(frozen=True)
class EachShift(Reset):
    """Go back whenever the stream announces a new shift with `adapter.announce(shift)`."""

    def __str__(self) -> str:
        return "each_shift"

    def due(self, adapter: Adapter) -> bool:
        """When the shift announced is not the one last adapted to."""
        return adapter.adapted_to is not None and adapter.shift != adapter.adapted_to


POLICIES = "never, each_shift, guard, a number of steps, or a Reset object"
"""What can be told of resets, in words."""
never = Never()
"""Reset policy: never reset."""
each_shift = EachShift()
"""Reset policy: reset at every change of shift that is announced."""


def every(steps: int) -> Every:
    """Return the policy that goes back every so many steps.

    Args:
        steps: Batches between two resets.
    """
    return Every(steps)


def parse(reset: object) -> Reset:
    """Return a policy from a policy, a number of steps, or one of the words `never`, `each_shift` and `guard`."""
    from shiftproof.adapters.guard import Guard

    words: dict[str, Reset] = {"never": never, "each_shift": each_shift, "guard": Guard()}
    match reset:
        case Reset():
            return reset
        case None:
            return never
        case str() if reset.strip().isdecimal():  # as a command line gives it
            return Every(int(reset))
        case str():
            if reset not in words:
                raise unknown("reset policy", reset, words, fix="a number of steps is a policy, too")
            return words[reset]
        case int() if not isinstance(reset, bool):
            return Every(reset)
    raise ConfigurationError("There is no such reset policy.", expected=POLICIES, got=repr(reset))
