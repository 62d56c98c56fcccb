"""Mean corruption error: errors relative to a baseline's, averaged over corruptions (Hendrycks & Dietterich 2019).

`errors` maps a corruption to its top-1 errors, one per severity, as fractions. A baseline gives the mean error over
its severities for each corruption. mCE is printed in percent, where the baseline itself scores 100.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shiftproof.errors import ConfigurationError

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
"""AlexNet's mean top-1 errors on ImageNet-C, severities 1..5: the normalisers of the published mCE."""

ALEXNET_CLEAN = 0.4348
"""AlexNet's top-1 error on the clean ImageNet validation set, for the relative mCE."""


def mce(errors: Mapping[str, Sequence[float]], baseline: Mapping[str, float] = ALEXNET) -> float:
    """Return the mean over corruptions of (mean error over severities) / (the baseline's), in percent."""
    means = _means(errors, baseline)
    return 100.0 * sum(mean / baseline[name] for name, mean in means.items()) / len(means)


def relative_mce(
    errors: Mapping[str, Sequence[float]],
    clean: float,
    baseline: Mapping[str, float] = ALEXNET,
    baseline_clean: float = ALEXNET_CLEAN,
) -> float:
    """Return the same ratio of what corruption adds to the clean error, in percent."""
    means = _means(errors, baseline)
    ratios = [(mean - clean) / (baseline[name] - baseline_clean) for name, mean in means.items()]
    return 100.0 * sum(ratios) / len(ratios)


def _means(errors: Mapping[str, Sequence[float]], baseline: Mapping[str, float]) -> dict[str, float]:
    missing = sorted(set(errors) - set(baseline))
    if missing or not errors:
        raise ConfigurationError(
            "A corruption error needs a baseline for every corruption.",
            expected=f"some of: {', '.join(sorted(baseline))}",
            came=f"also {', '.join(missing)}" if missing else "no corruption at all",
        )
    return {name: sum(values) / len(values) for name, values in errors.items()}
