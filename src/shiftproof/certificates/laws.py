"""From the probability of a class to the range it certifies, and back, for each law of the smoothing noise.

An image is smoothed over something: its values (`l2`), or the parameter of a transformation (Li et al. 2021). Where the
class has probability p > 1/2 under the noise, it stays the smoothed model's within a range that rises with p. What is
counted is the same for all; a `Law` is that rising map and its inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm

from shiftproof.certificates.radius import FloatArray, probability, radius
from shiftproof.errors import ConfigurationError
from shiftproof.registry import unknown

Against: TypeAlias = Literal["l2", "brightness", "contrast+brightness", "blur", "translation", "rotation", "scaling"]

GRID = np.arange(1, 476) / 500
"""Ranges of contrast and brightness together that are told apart."""
NORMAL = np.linspace(-9, 9, 901)
"""Where a function of a normal number is summed, with these weights: for smooth ones right to 1e-9."""
WEIGHTS = norm.pdf(NORMAL) / norm.pdf(NORMAL).sum()
SAFETY = 1e-6
"""Added to a probability that is such a sum: more than it is off."""
SCAN = 4
"""Contrasts at which a range of them is looked at, below 1 and above, its ends among them."""


@dataclass(frozen=True)
class Law:
    """How far a certificate reaches: `reach(p, scale)` and its inverse `needs(range, scale)`.

    `scale` is that of the noise: `noise` says what it is, `usual` is one that most networks bear, `largest` is more
    than makes sense. `range` says what a claim is about, `distances` are those at which accuracy is told. The
    noise is of an image's values (`pixels`) or of a parameter.
    """

    reach: Callable[[ArrayLike, float], FloatArray]
    needs: Callable[[ArrayLike, float], FloatArray]
    noise: str
    range: str
    usual: float | None
    largest: float
    distances: tuple[float, ...]
    pixels: bool = False


def exponential_reach(bound: ArrayLike, scale: float) -> FloatArray:
    """Return the range that exponential noise of a mean certifies, one-sided: -scale ln(2 - 2p).

    >>> exponential_reach([0.4, 0.5, 0.9], scale=5).round(2).tolist()
    [0.0, 0.0, 8.05]
    """
    p = np.clip(np.asarray(bound, float), 0.5, 1.0)
    with np.errstate(divide="ignore"):
        return np.asarray(-scale * np.log(2 - 2 * p) + 0.0)


def exponential_needs(distance: ArrayLike, scale: float) -> FloatArray:
    """Return the probability that a range needs under exponential noise."""
    return np.asarray(1 - np.exp(-np.asarray(distance, float) / scale) / 2)


def rectangle_reach(bound: ArrayLike, scale: float) -> FloatArray:
    """Return the largest r, in 1/500, such that contrast 1 +- r with brightness +- r is certified; else 0."""
    needed = _rectangle_needs(float(scale))
    within = np.searchsorted(needed, np.asarray(bound, float), side="right")  # ranges whose need the bound meets
    return np.asarray(np.concatenate([[0.0], GRID])[within])


def rectangle_needs(distance: ArrayLike, scale: float) -> FloatArray:
    """Return the probability that a range of contrast and brightness needs: that of the next 1/500."""
    place = np.searchsorted(GRID, np.asarray(distance, float) - 1e-9)
    return np.asarray(np.concatenate([_rectangle_needs(float(scale)), [1.0]])[place])


@cache
def _rectangle_needs(scale: float) -> FloatArray:
    """Return the probability that each range of `GRID` needs: the largest over its edges, and never less than before.

    The corners are worst (on every grid that was looked at; contrasts between them are scanned as well).
    """
    needed = []
    for r in GRID:
        factors = [end * step / SCAN for end in (np.log1p(-r), np.log1p(r)) for step in range(SCAN + 1)]
        worst = max(contrast_brightness_need(k, r, scale, scale) for k in factors)
        needed.append(min(1.0, worst + SAFETY))
        if worst > 1 - 1e-7:  # more than any number of samples shows
            break
    return np.maximum.accumulate(np.pad(needed, (0, len(GRID) - len(needed)), constant_values=1.0))


def contrast_brightness_need(k: float, b: float, sigma: float, tau: float) -> float:
    """Return the p that contrast e^k with brightness b needs, noise N(0, sigma^2) on k and N(0, tau^2) on b.

    With f0 and f1 the densities of the noise and of what it is for the changed image, S the set of small f1 / f0 that
    has probability 1/2 under f1: its probability under f0 (Neyman-Pearson).
    """
    return _contrast_brightness(k, b, sigma, tau, share=0.5, of_changed=True)


def contrast_brightness_share(p: float, k: float, b: float, sigma: float, tau: float) -> float:
    """Return the least probability of a class for the changed image, where it is p for the image itself."""
    return _contrast_brightness(k, b, sigma, tau, share=p, of_changed=False)


def _contrast_brightness(k: float, b: float, sigma: float, tau: float, *, share: float, of_changed: bool) -> float:
    """Return the probability, under one density, of the set of small f1 / f0 that has `share` under the other."""
    if abs(k) < 1e-9:
        away = abs(b) / tau
        return float(norm.cdf(norm.ppf(share) + away)) if of_changed else float(norm.cdf(norm.ppf(share) - away))

    def log_ratio(v: FloatArray) -> FloatArray:
        """Return log f1 / f0 but for its term in the noise of the contrast."""
        rest = -(k**2) / (2 * sigma**2) + k
        return np.asarray(rest + v**2 / (2 * tau**2) - (v - b) ** 2 * np.exp(2 * k) / (2 * tau**2))

    plain = log_ratio(tau * NORMAL)
    changed = log_ratio(b + np.exp(-k) * tau * NORMAL)
    slope = abs(k) / sigma

    def of_plain_set(c: float) -> float:
        return float(WEIGHTS @ ndtr((c - plain) / slope))

    def of_changed_set(c: float) -> float:
        return float(WEIGHTS @ ndtr((c - changed) / slope - slope))

    known, wanted = (of_changed_set, of_plain_set) if of_changed else (of_plain_set, of_changed_set)
    values = np.concatenate([plain, changed])
    low, high = values.min() - 40 * slope - slope**2, values.max() + 40 * slope + slope**2
    return wanted(float(brentq(lambda c: known(c) - share, low, high, xtol=1e-10)))


LAWS: Mapping[str, Law] = {
    "l2": Law(
        radius,
        probability,
        "Gaussian noise of standard deviation {0:g} on [0, 1] images",
        "every image within the L2 distance `radius` of it",
        None,
        2.0,
        (0.03, 0.1, 0.25, 0.5, 1.0),
        pixels=True,
    ),
    "brightness": Law(
        radius,
        probability,
        "a Gaussian change of brightness of standard deviation {0:g}",
        "the image plus any one number between -`radius` and `radius` (brightness), without clipping,",
        0.1,
        2.0,
        (0.02, 0.05, 0.1, 0.2, 0.4),
    ),
    "contrast+brightness": Law(
        rectangle_reach,
        rectangle_needs,
        "Gaussian changes of log contrast and of brightness, of standard deviation {0:g} each",
        "0.5 + c (the image + b - 0.5), for every contrast c in 1 +- `radius` with every brightness b in +- `radius`, "
        "without clipping,",
        0.1,
        2.0,
        (0.02, 0.05, 0.1, 0.2, 0.4),
    ),
    "blur": Law(
        exponential_reach,
        exponential_needs,
        "Gaussian blur whose variance in pixels is exponential of mean {0:g}",
        "the image under Gaussian blur (the discrete heat kernel) of every variance up to `radius`",
        1.0,
        100.0,
        (0.25, 1.0, 2.0, 4.0, 9.0),
    ),
    "translation": Law(
        radius,
        probability,
        "cyclic shifts by rounded Gaussian numbers of pixels of standard deviation {0:g}",
        "the image shifted cyclically by whole pixels, less than `radius` of them in L2,",
        3.0,
        1000.0,
        (1.0, 2.0, 3.0, 5.0, 10.0),
    ),
    "rotation": Law(
        radius,
        probability,
        "Gaussian noise of standard deviation {0:g} on [0, 1] images",
        "the image turned about its centre by every angle up to `radius` degrees either way (bilinear, black outside)",
        0.25,
        2.0,
        (1.0, 2.0, 5.0, 10.0, 30.0),
        pixels=True,
    ),
    "scaling": Law(
        radius,
        probability,
        "Gaussian noise of standard deviation {0:g} on [0, 1] images",
        "the image scaled about its centre by every factor in 1 +- `radius` (bilinear, black outside)",
        0.25,
        2.0,
        (0.02, 0.05, 0.1, 0.2, 0.3),
        pixels=True,
    ),
}
"""What a certificate can be against."""


def law_of(against: str) -> Law:
    """Return the law of a kind of certificate."""
    if against not in LAWS:
        raise unknown("kind of certificate", against, LAWS)
    return LAWS[against]


def scale_of(against: str, sigma: float | None) -> float:
    """Return the noise to smooth with: what was given, or what is usual for the kind of certificate."""
    found = law_of(against).usual if sigma is None else float(sigma)
    if found is None:
        raise ConfigurationError(
            "sigma must be positive.", expected="sigma above 0, on the [0, 1] scale of images", fix="--sigma 0.25"
        )
    return found


def check_sigma(sigma: float, against: str = "l2") -> None:
    """Refuse noise that smooths nothing, or leaves nothing of an image."""
    law = law_of(against)
    if not 0 < sigma < np.inf:
        raise ConfigurationError(
            "sigma must be positive.",
            expected="sigma above 0, on the [0, 1] scale of images" if law.usual is None else "sigma above 0",
            got=f"sigma={sigma:g}",
        )
    if sigma > law.largest:
        pixels = law.pixels
        raise ConfigurationError(
            f"sigma={sigma:g} is too large for images in [0, 1].",
            expected=f"sigma up to {law.largest:g}"
            + (
                ", on the [0, 1] scale; certified training uses 0.12 to 1" if pixels else f": {law.noise.format(sigma)}"
            ),
            got=f"sigma={sigma:g}",
            **({"fix": f"if this is on the scale 0 to 255, use sigma={sigma / 255:.3g}"} if pixels else {}),
        )
