"""Which method of adaptation to advise: the cheapest within noise of the best, as the code that was measured."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shiftproof.adapters import Counts, diagnose, method
from shiftproof.adapters.method import Method
from shiftproof.adapters.resets import Every, never
from shiftproof.measures.intervals import Interval, batch_interval, mean_interval

Gains = Mapping[str, NDArray[np.float64]]
"""Method -> what it adds to the unadapted model's accuracy on each image, or batch, the same for all, [N]."""


def steps_that_tell() -> int:
    """Return the batches after which a stream can show whether help lasts: RDumb has then gone back twice."""
    reset = method("rdumb").defaults.reset
    return 2 * reset.steps if isinstance(reset, Every) else 2000


def never_resets(chosen: Method) -> bool:
    """Return whether a method learns and never goes back, so that only a long stream tells whether it lasts."""
    return chosen.needs_gradients and not chosen.recovers and chosen.defaults.reset == never


def gain_interval(gains: NDArray[np.float64], among: int, batch: int | None = None) -> Interval | None:
    """Return the interval of a mean gain over images, or over batches of so many, one of some that hold together."""
    return mean_interval(gains, -1.0, 1.0, among=among) if batch is None else batch_interval(gains, batch, among=among)


def advised(gains: Gains, *, long: bool, batch: int | None = None) -> str | None:
    """Return the cheapest method whose gain is within noise of the best, None where there is none to advise.

    Within noise is an interval of the paired difference that reaches 0, those of all methods holding together at 95%;
    cost is in passes through the network. A method that learns and never resets is advised only where `long` says that
    a long stream supports it. Gains are of images, or of batches of so many.
    """
    fit = {name: each for name, each in gains.items() if long or not never_resets(method(name))}
    if not fit:
        return None
    best = max(fit, key=lambda name: fit[name].mean())
    above = {name: gain_interval(fit[best] - each, len(fit), batch) for name, each in fit.items()}
    near = [name for name, reach in above.items() if reach is None or reach.low <= 0]
    return min(near, key=lambda name: (method(name).cost, -fit[name].mean()))


def adapting_code(name: str, preset: str | None) -> str:
    """Return the line that makes the adapter that was measured: with its preset where that changes its options."""
    chosen = method(name)
    given = preset is not None and chosen.options(preset, "paper", {}) != chosen.options(None, "paper", {})
    return f'adapted = shiftproof.adapt(model, "{name}"' + (f', preset="{preset}")' if given else ")")


def diagnoses(counts: Mapping[str, Counts]) -> list[str]:
    """Return what has to be said of methods that hardly learnt, by what was counted of them."""
    chosen = {name: method(name) for name in counts}
    return [f"{said}." for name, each in chosen.items() for said in diagnose(each, each.defaults.reset, counts[name])]
