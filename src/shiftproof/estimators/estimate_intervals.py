"""An estimate with its interval: what a method says of a set, and the doubts that widen it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from shiftproof.estimators.catalogue import METHODS, needs, statistic, summary
from shiftproof.estimators.confidence import few
from shiftproof.estimators.profiles import Familiarity
from shiftproof.estimators.results import LEVEL, Estimate
from shiftproof.measures.estimation import Array, percentile_interval

if TYPE_CHECKING:
    from shiftproof.estimators.calibration import Calibration, Said


def with_interval(
    calibration: Calibration,
    method: str,
    values: Mapping[str, Array],
    *,
    inputs: int,
    seed: int = 0,
    level: float = LEVEL,
    place: Familiarity | None = None,
) -> Estimate:
    """Return the accuracy to expect on a set of inputs, from the values of its statistics.

    The interval holds three doubts: whether the class mix changed (it spans what the method says either way), how far
    off it is on families of shifts it has not seen (grouped conformal quantiles), and which inputs came (bootstrap).
    For a set at a `place` unlike anything calibrated on it spans all methods and the largest miss.
    """
    now, errors = summary(values), calibration.family_errors
    said = calibration.say(method, now)
    off = errors.half_width(method, level)
    below, above = _sampling(calibration, said, values, inputs, level, seed)
    low, high = said.low - off - below, said.high + off + above
    strange = _strange(calibration, said.method, now, place)
    warnings = few(inputs, "inputs") + strange
    if not np.isfinite(off):
        warnings += (f"The families calibrated on support no interval at {100 * level:.0f}%: at most "
                     f"{100 * errors.largest_level(method):.0f}%.",)  # fmt: skip
    if strange:
        each = [calibration.say(name, now) for name in calibration.methods() if set(needs(name)) <= set(now)]
        worst = max(errors.worst_miss(method), 0.0 if np.isinf(off) else off)
        low = min(low, min(one.low for one in each) - worst)
        high = max(high, max(one.high for one in each) + worst)
    known = errors.knows_shifts
    return Estimate(
        accuracy=said.value,
        low=float(np.clip(low, 0, said.value)),
        high=float(np.clip(high, said.value, 1)),
        method=said.method,
        inputs=inputs,
        error=None if not known else errors.auto if method == "auto" else errors.by_method[method],
        warnings=warnings,
        facts={name: now[name] for name in needs(said.method)},
        level=level,
        in_family=errors.within(said.method) if known else None,
        unlike=bool(strange),
    )


def _sampling(
    calibration: Calibration, said: Said, values: Mapping[str, Array], inputs: int, level: float, seed: int
) -> tuple[float, float]:
    """Return how far below and above what is said the sampling of the inputs may put it.

    That of the inputs' own accuracy is held by the copies' residuals, as far as these have as few inputs.
    """
    from scipy.stats import norm

    names, copies = needs(said.method), calibration.copies
    drawn = [statistic(name).bootstrap(values[name], seed) for name in names]
    guesses = _guesses(calibration, said.method, names, np.array(drawn).T)
    low, high = percentile_interval(guesses, level) if len(guesses) else (said.value, said.value)
    held = np.mean([copy.inputs for copy in copies]) if copies else inputs
    truth = norm.ppf((1 + level) / 2) * np.sqrt(said.value * (1 - said.value) * max(0.0, 1 / inputs - 1 / float(held)))
    return max(0.0, said.value - low) + float(truth), max(0.0, high - said.value) + float(truth)


def _guesses(calibration: Calibration, method: str, names: Sequence[str], drawn: Array) -> Array:
    """Return what a method says of drawn statistics [draws, d]."""
    read = METHODS[method].read
    if read is None:
        return np.clip(calibration.lines.read_rows(method, drawn), 0, 1)
    if method in METHODS.own:  # arithmetic, of numbers and of arrays; those of others may be anything
        columns: Mapping[str, float] = dict(zip(names, drawn.T, strict=True))
        said: Array = np.clip(np.asarray(read(calibration.source, columns), float), 0, 1)
        return said
    return np.array([calibration.predict(method, dict(zip(names, row, strict=True))) for row in drawn.tolist()])


def _strange(
    calibration: Calibration, method: str, now: Mapping[str, float], place: Familiarity | None
) -> tuple[str, ...]:
    """Return the warning that a set is unlike the copies: by its place, or by the leverage of its statistics."""
    if place is not None:
        return (place.told(),) if place.unlike else ()
    return calibration.lines.stretched(method, now)
