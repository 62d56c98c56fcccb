"""Simulate the test of `shiftproof.adapters.PairedAudit`: false alarms, and labels until a difference is detected.

    python -m benchmarks.detection_delay                 # prints both tables: minutes
    python -m benchmarks.detection_delay --streams 200

Two models disagree; of the disagreements, the one that serves is right on a share, the other on another share. A label
is one outcome of the test. "Late" is a change after so many labels in which the one that served was the better by as
much.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from shiftproof.measures.betting import bet_again, new_capital

ALPHA = 0.05
HORIZON = 2000
STREAMS, STEPS = 2000, 10_000
LATE = 1000
NULLS = ((0.45, 0.45), (0.3, 0.3), (0.1, 0.1), (0.02, 0.02))
DIFFERENCES = ((0.35, 0.25), (0.4, 0.2), (0.5, 0.2), (0.6, 0.1), (0.9, 0.05))
SHARES = (50, 200, 500)


def alarms(
    other: float, served: float, *, streams: int, steps: int, horizon: int, late: int = 0
) -> NDArray[np.float64]:
    """Return after how many labels from the change each stream alarms, [streams]; never is infinity."""
    random = np.random.default_rng(0)
    capital, found = new_capital(streams), np.full(streams, math.inf)
    for step in range(late + steps):
        up, down = (other, served) if step >= late else (served, other)
        draw = random.random(streams)
        capital = bet_again(capital, (draw < up) * 1.0 - ((draw >= up) & (draw < up + down)), horizon)
        heard = (capital.mean(-1) >= 1 / ALPHA) & np.isinf(found)
        found[heard] = step + 1 - late
        capital = np.minimum(capital, 1e99)  # long after an alarm it would overflow
    return found


def false_alarms(streams: int) -> Iterator[str]:
    """Yield the rows of the table of false alarms: equals, looked at after every label."""
    yield "| both right, of the disagreements | alarms within 10,000 labels |"
    yield "|---|---:|"
    for other, served in NULLS:
        found = alarms(other, served, streams=streams, steps=STEPS, horizon=STEPS)
        yield f"| {other:.0%} | {np.isfinite(found).mean():.1%} |"


def delays(streams: int) -> Iterator[str]:
    """Yield the rows of the table of delays, in labels and, with labels by a budget, in images."""
    budgets = " | ".join(f"images at 1 in {share}" for share in SHARES)
    yield f"| right: other / served | labels, median / 90 % | {budgets} | late change, labels |"
    yield "|---|---:|" + "---:|" * (len(SHARES) + 1)
    for other, served in DIFFERENCES:
        early = alarms(other, served, streams=streams, steps=3000, horizon=HORIZON)
        late = alarms(other, served, streams=streams, steps=3000, horizon=HORIZON, late=LATE)
        median, most = np.quantile(early, (0.5, 0.9), method="higher")
        later = np.quantile(late[late > 0], (0.5, 0.9), method="higher")
        images = " | ".join(f"{median * share:,.0f}" for share in SHARES)
        labels, after = (f"{half:,.0f} / {most:,.0f}" for half, most in ((median, most), later))
        yield f"| {other:.0%} / {served:.0%} | {labels} | {images} | {after} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=STREAMS)
    chosen = parser.parse_args()
    for row in (*false_alarms(chosen.streams), "", *delays(chosen.streams)):
        print(row, flush=True)


if __name__ == "__main__":
    main()
