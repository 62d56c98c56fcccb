"""What values the options of our methods can have. They mean the same in all of them, so one table serves all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from shiftproof.errors import ConfigurationError


@dataclass(frozen=True)
class Range:
    """Which values there are, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _prior(value: Any) -> bool:
    if isinstance(value, str):
        return value == "auto"
    return isinstance(value, Real) and not isinstance(value, bool) and float(value) >= 0


WHOLE = Range("a whole number", _whole)
COUNT = Range("a whole number, 1 or more", lambda value: _whole(value) and value >= 1)
NUMBER = Range("a number", _number)
NOT_NEGATIVE = Range("a number, 0 or more", lambda value: _number(value) and value >= 0)
POSITIVE = Range("a number above 0", lambda value: _number(value) and value > 0)
SHARE = Range("a number from 0 to 1", lambda value: _number(value) and 0 <= value <= 1)
BELOW_ONE = Range("a number from 0 to less than 1", lambda value: _number(value) and 0 <= value < 1)
FLAG = Range("True or False", lambda value: isinstance(value, bool))
PRIOR = Range("a number of images, 0 or more, inf for the source alone, or (bn) auto", _prior)
IMAGES = Range(
    "stream, or images", lambda value: value == "stream" if isinstance(value, str) else isinstance(value, Iterable)
)
FUNCTION = Range("None, or a function", lambda value: value is None or callable(value))


def one_of(*words: str) -> Range:
    """Return the range of an option that is one of several words."""
    return Range(" or ".join(words), lambda value: isinstance(value, str) and value in words)


def or_auto(numbers: Range) -> Range:
    """Return a range of numbers that can be left to the number of classes."""
    words = f"{numbers.words}, or auto: by the number of classes"
    return Range(words, lambda value: value == "auto" if isinstance(value, str) else numbers.holds(value))


RANGES: Mapping[str, Range] = {
    "seed": WHOLE,
    **dict.fromkeys(("views", "capacity", "update_every", "neighbours", "supports", "fisher_images"), COUNT),
    **dict.fromkeys(("keep_weights", "keep_hidden", "keep_mean", "ema", "restore", "q"), SHARE),
    "momentum": BELOW_ONE,
    **dict.fromkeys(("lr", "weight_decay", "epsilon", "noise", "rho"), NOT_NEGATIVE),
    **dict.fromkeys(("confidence", "entropy_margin", "weight_margin"), NOT_NEGATIVE),
    "similarity": or_auto(NOT_NEGATIVE),
    "recover_below": or_auto(NUMBER),
    **dict.fromkeys(("fisher_weight", "ratio_weight"), NOT_NEGATIVE),
    **dict.fromkeys(("nesterov", "consistency", "prior_correction", "freeze_last", "reset_optimizer"), FLAG),
    "temperature": POSITIVE,
    "drop": NUMBER,
    "prior": PRIOR,
    "average": one_of("probabilities", "logits"),
    "variance": one_of("biased", "unbiased"),
    "fisher": IMAGES,
    "orders": FUNCTION,
}
"""Option -> its values; those that are missing, such as resets and statistics, are read where they are used."""


def check_values(method: str, options: Mapping[str, Any], ranges: Mapping[str, Range]) -> None:
    """Refuse options that are out of range; the seed is everybody's."""
    ranges = {"seed": WHOLE, **ranges}
    for name, value in options.items():
        if name in ranges and not ranges[name].holds(value):
            raise ConfigurationError(
                f"The option {name!r} of {method!r} cannot have this value.",
                expected=ranges[name].words,
                came=repr(value),
            )
