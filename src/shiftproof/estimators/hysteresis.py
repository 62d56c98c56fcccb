"""Alarms that neither flutter nor cry at a single bad moment."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Hysteresis:
    """An alarm on a signal: it rises above `high`, and falls only below `low`, each `patience` times in a row.

    It is a value: `step` returns the alarm after the next look at the signal.

    >>> alarm = Hysteresis(high=0.1, low=0.05, patience=2)
    >>> alarm.step(0.2).raised, alarm.step(0.2).step(0.2).raised
    (False, True)
    """

    high: float
    low: float
    patience: int = 3
    raised: bool = False
    against: int = 0
    """How many looks in a row spoke for the other state."""

    def step(self, signal: float) -> Hysteresis:
        """Return the alarm after a look at the signal."""
        speaks = signal < self.low if self.raised else signal > self.high
        if not speaks:
            return replace(self, against=0)
        if self.against + 1 < self.patience:
            return replace(self, against=self.against + 1)
        return replace(self, raised=not self.raised, against=0)
