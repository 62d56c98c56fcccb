"""Quantities that depend on the image size alone, interpolated between the presets as severity tables are."""

from __future__ import annotations

from shiftproof.shifts import tables


def between_presets(cifar: float, imagenet: float, height: int, width: int) -> float:
    """Return a value between those of 32-pixel and 224-pixel images, linear in the logarithm of the image side."""
    row = {"zero": {}, "cifar": {"value": [cifar] * 5}, "imagenet": {"value": [imagenet] * 5}}
    return tables.parameters(row, 5.0, height=height, width=width).value
