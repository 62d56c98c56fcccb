"""When to go back to the start: reset policies, asked before every batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from shiftproof.errors import ConfigurationError

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter


class Reset(Protocol):
    """Decides whether an adapter goes back to its start before the next batch."""

    def due(self, adapter: Adapter) -> bool:
        """Return whether it is time."""


@dataclass(frozen=True)
class Never:
    """Adapt for ever."""

    def due(self, adapter: Adapter) -> bool:
        """Never."""
        return False


@dataclass(frozen=True)
class Every:
    """Go back before steps k, 2 k, 3 k, ... (Press et al. 2023, RDumb: k = 1000)."""

    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigurationError("A reset needs an interval.", expected="1 step or more", came=str(self.steps))

    def due(self, adapter: Adapter) -> bool:
        """At every multiple of the interval; at step 0 there is nothing to go back from."""
        return adapter.steps > 0 and adapter.steps % self.steps == 0


@dataclass(frozen=True)
class EachShift:
    """Go back whenever the stream announces a new shift with `adapter.announce(shift)`."""

    def due(self, adapter: Adapter) -> bool:
        """When a shift was announced that is not the last one adapted to."""
        return adapter.shift_is_new


never = Never()
each_shift = EachShift()


def every(steps: int) -> Every:
    """Return the policy that goes back every so many steps."""
    return Every(steps)


def parse(reset: object) -> Reset:
    """Return a policy from a policy, a number of steps, or the words `never` and `each_shift`."""
    words: dict[object, Reset] = {None: never, "never": never, "each_shift": each_shift}
    if isinstance(reset, bool) or (isinstance(reset, str) and reset not in words):
        raise ConfigurationError(
            "This is no reset policy.", expected="never, each_shift, a number of steps, or a policy", came=repr(reset)
        )
    if isinstance(reset, int):
        return Every(reset)
    if isinstance(reset, str) or reset is None:
        return words[reset]
    if not callable(getattr(reset, "due", None)):
        raise ConfigurationError("This is no reset policy.", expected="an object with a method due", came=repr(reset))
    return reset  # type: ignore[return-value]
