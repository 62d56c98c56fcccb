"""Which method of adaptation to advise: the cheapest within noise of the best, as the code that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shiftproof.adapters import Counts, diagnose, method
from shiftproof.adapters.method import Method
from shiftproof.adapters.resets import Every, never
from shiftproof.measures.intervals import Interval, batch_interval, mean_interval

UPDATES_THAT_TELL = 100
"""Methods that learn gain little that would show in fewer."""
Gains = Mapping[str, NDArray[np.float64]]
"""Method -> what it adds to the unadapted model's accuracy on each image, or batch, the same for all, [N]."""


def count_updates(updates: int) -> str:
    """Write how many updates a method made."""
    return f"{updates:,} update{'s' * (updates != 1)}"


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


def near_best(gains: Gains, batch: int | None = None) -> list[str]:
    """Return the methods whose gain is within noise of the best.

    Within noise is an interval of the paired difference that reaches 0, those of all methods holding together at 95%.
    Gains are of images, or of batches of so many.
    """
    best = max(gains, key=lambda name: gains[name].mean())
    above = {name: gain_interval(gains[best] - each, len(gains), batch) for name, each in gains.items()}
    return [name for name, reach in above.items() if reach is None or reach.low <= 0]


def advised(gains: Gains, *, long: bool, batch: int | None = None) -> str | None:
    """Return the cheapest method whose gain is within noise of the best, None where there is none to advise.

    Cost is in passes through the network. A method that learns and never resets is advised only where `long` says that
    a long stream supports it.
    """
    fit = {name: each for name, each in gains.items() if long or not never_resets(method(name))}
    if not fit:
        return None
    return min(near_best(fit, batch), key=lambda name: (method(name).cost, -fit[name].mean()))


def advised_over(short: Gains, lasting: Gains, *, long: bool, batch: int = 64) -> str | None:
    """Return the cheapest method within noise of the best on short streams that the long one, if any, supports.

    `lasting` are gains on batches of the long stream of the methods that did not fall below the model; of those within
    noise of the best on short streams, the ones within noise of the best there, too, come first.
    """
    fit = {name: each for name, each in short.items() if not lasting or name in lasting}
    fit = {name: each for name, each in fit.items() if long or not never_resets(method(name))}
    if not fit:
        return None
    near = near_best(fit)
    lasts = near_best({name: lasting[name] for name in fit}, batch) if lasting else near
    both = [name for name in near if name in lasts] or near
    return min(both, key=lambda name: (method(name).cost, -fit[name].mean()))


@dataclass(frozen=True)
class Grounds:
    """What a piece of advice rests on, beside short streams.

    `steps` are the batches of the long stream, 0 where there was none, and `long` whether they tell what lasts;
    `together` is what the method adds on each image where those of a class come together, one of `among` methods;
    `updates` are the most that a method which learns has made along any stream, 0 where there was no such method.
    """

    steps: int = 0
    long: bool = False
    together: NDArray[np.float64] | None = None
    among: int = 1
    updates: int = 0

    def told(self, name: str) -> str:
        """Return it in words, with what speaks against the method."""
        said = "on short streams" if not self.steps else f"on short streams and along one of {self.steps:,} batches"
        said += "." if self.long or not self.steps else ", too short to tell whether it lasts."
        if 0 < self.updates < UPDATES_THAT_TELL and not method(name).needs_gradients:
            said += (
                f" Methods that learn made at most {count_updates(self.updates)}, too few to tell what they add to it "
                "along a long stream: compare them with shiftproof compare-on-stream."
            )
        if self.together is None:
            return said
        reach = gain_interval(self.together, self.among)
        points = f"{100 * abs(float(self.together.mean())):.1f} points"
        if reach is not None and reach.high < 0:
            return (
                f"{said} Only for streams of mixed classes: where images of one class arrive together {name} costs "
                f'{points}. There do not adapt, or let a few labels decide: shiftproof.adapt(model, "safe").'
            )
        if self.together.mean() < 0:
            return f"{said} Where images of one class arrive together {name} lost {points}, which may be chance."
        return f"{said} Where images of one class arrive together no loss is shown ({points} gained)."


def adapting_code(name: str, preset: str | None) -> str:
    """Return the line that makes the adapter that was measured: with its preset where that changes its options."""
    chosen = method(name)
    given = preset is not None and chosen.options(preset, "paper", {}) != chosen.options(None, "paper", {})
    return f'adapted = shiftproof.adapt(model, "{name}"' + (f', preset="{preset}")' if given else ")")


def diagnoses(counts: Mapping[str, Counts]) -> list[str]:
    """Return what has to be said of methods that hardly learnt, by what was counted of them."""
    chosen = {name: method(name) for name in counts}
    return [f"{said}." for name, each in chosen.items() for said in diagnose(each, each.defaults.reset, counts[name])]
