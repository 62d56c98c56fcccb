"""Mean corruption error: errors relative to a baseline's, averaged over corruptions (Hendrycks & Dietterich 2019).

`errors` maps a corruption to its top-1 errors as fractions: one per severity, or their mean. A baseline is the same of
another model: the published AlexNet, or a run of one's own. Ratios are in percent, where the baseline itself scores
100. Every corruption counts the same, whatever the number of its severities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shiftproof.errors import ConfigurationError

Errors: TypeAlias = Mapping[str, Sequence[float]] | Mapping[str, NDArray[np.float64]] | Mapping[str, float]
"""Corruption -> its errors by severity, or their mean."""

ALEXNET: Mapping[str, float] = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
    "speckle_noise": 0.845388,
    "saturate": 0.658248,
    "gaussian_blur": 0.787108,
    "spatter": 0.717512,
}
"""AlexNet's mean top-1 errors on ImageNet-C over severities 1 to 5, the normalisers of the published mCE."""

ALEXNET_CLEAN = 0.4348
"""AlexNet's top-1 error on the clean ImageNet validation set, for the relative mCE."""


def mce(errors: Errors, baseline: Errors = ALEXNET) -> float:
    """Return the mean over corruptions of (mean error over severities) / (the baseline's), in percent.

    The published figure needs the fifteen common corruptions at severities 1 to 5 on ImageNet. A baseline run of one's
    own has the errors of another model under the same corruptions and severities.

    Args:
        errors: Errors at each severity, by corruption.
        baseline: The same for the baseline model. Default: AlexNet.

    >>> mce({"fog": [0.1, 0.3], "snow": [0.5, 0.5]}, {"fog": [0.2, 0.6], "snow": [0.5, 0.5]})
    75.0
    """
    return float(np.mean(list(corruption_errors(errors, baseline).values())))


def corruption_errors(errors: Errors, baseline: Errors = ALEXNET) -> dict[str, float]:
    """Return each corruption's error relative to the baseline's, in percent; `mce` is the mean of them.

    Args:
        errors: Errors at each severity, by corruption.
        baseline: The same for the baseline model. Default: AlexNet.
    """
    means, of_baseline = _means(errors), _baseline_means(errors, baseline)
    return {name: 100.0 * mean / _divisor(name, of_baseline[name]) for name, mean in means.items()}


def relative_mce(
    errors: Errors, clean: float, baseline: Errors = ALEXNET, baseline_clean: float | None = None
) -> float:
    """Return the mean over corruptions of (what corruption adds to the clean error) / (the baseline's), in percent.

    Errors are fractions; AlexNet's clean error is known.

    Args:
        errors: Errors at each severity, by corruption.
        clean: Error on clean images.
        baseline: Errors of the baseline model. Default: AlexNet.
        baseline_clean: Error of the baseline model on clean images.
    """
    if baseline_clean is None:
        if baseline is not ALEXNET:
            raise ConfigurationError(
                "A relative corruption error needs the baseline's clean error.",
                expected="baseline_clean= the baseline's error on clean images",
                got="a baseline other than AlexNet without it",
            )
        baseline_clean = ALEXNET_CLEAN
    means, of_baseline = _means(errors), _baseline_means(errors, baseline)
    ratios = [(mean - clean) / _divisor(name, of_baseline[name] - baseline_clean) for name, mean in means.items()]
    return 100.0 * float(np.mean(ratios))


def category_means(errors: Errors, categories: Mapping[str, str]) -> dict[str, float]:
    """Return the mean error of the corruptions of each category, in the order in which categories first occur.

    `categories` maps a corruption to its category, as `shiftproof.shifts.facts(name)["category"]` tells it.

    Args:
        errors: Errors at each severity, by corruption.
        categories: The category of each corruption.

    >>> categories = {"fog": "weather", "snow": "weather", "contrast": "digital"}
    >>> category_means({"fog": [0.25, 0.75], "snow": [0.75, 0.75], "contrast": [0.5]}, categories)
    {'weather': 0.625, 'digital': 0.5}
    """
    _check_known(errors, categories, "A mean by category needs the category of every corruption.")
    groups: dict[str, list[float]] = {}
    for name, mean in _means(errors).items():
        groups.setdefault(categories[name], []).append(mean)
    return {category: float(np.mean(means)) for category, means in groups.items()}


def _means(errors: Errors) -> dict[str, float]:
    """Return the mean error over severities by corruption."""
    if not errors:
        raise ConfigurationError("There are no errors.", expected="errors by corruption", got="no corruption at all")
    return {name: _mean(name, found) for name, found in errors.items()}


def _baseline_means(errors: Errors, baseline: Errors) -> dict[str, float]:
    """Return the baseline's mean errors under the same corruptions, over as many severities where both tell them."""
    _check_known(errors, baseline, "A corruption error needs a baseline for every corruption.")
    for name, found in errors.items():
        severities, others = np.shape(found), np.shape(baseline[name])
        if severities and others and severities != others:
            raise ConfigurationError(
                f"The baseline of {name!r} has other severities.",
                expected=f"{severities[0]} errors, one per severity, as in what is compared with it",
                got=f"{others[0]} errors",
            )
    return {name: _mean(name, baseline[name]) for name in errors}


def _mean(name: str, found: Sequence[float] | NDArray[np.float64] | float) -> float:
    """Return the mean of a corruption's errors."""
    if np.size(found) == 0:
        raise ConfigurationError(f"Corruption {name!r} has no errors.", expected="at least one, as a fraction")
    return float(np.mean(found))


def _check_known(errors: Errors, known: Mapping[str, object], headline: str) -> None:
    missing = sorted(set(errors) - set(known))
    if missing:
        expected = f"some of: {', '.join(sorted(known))}"
        raise ConfigurationError(headline, expected=expected, got=f"also {', '.join(missing)}")


def _divisor(name: str, value: float) -> float:
    """Refuse a baseline that a ratio cannot be taken to."""
    if value <= 0:
        raise ConfigurationError(
            f"The baseline loses nothing to {name!r}, so the ratio to it is undefined.",
            expected="a baseline with more errors under every corruption than none, or than clean for a relative mCE",
            got=f"{value:g}",
            fix=f"leave {name!r} out, or take another baseline",
        )
    return value
