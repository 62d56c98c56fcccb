"""What a run is validated on: a set of its own, another split of the same data, or a share that is not trained on."""

from __future__ import annotations

import torch

from shiftproof.data import DataLike, DataSpec, ImageSet
from shiftproof.data.base import in_shares
from shiftproof.errors import ConfigurationError

SPLIT = "split="


def share_of(validation: object) -> float | None:
    """Return the share of the data that is kept for validation, where that is what was given, as a number or text."""
    given = validation.given if isinstance(validation, DataSpec) else validation
    if isinstance(given, bool) or not isinstance(given, str | float | int):
        return None
    try:
        share = float(given)
    except ValueError:
        return None
    if not 0.0 < share < 1.0:
        raise ConfigurationError(
            "Invalid share of the images.",
            expected="a number between 0 and 1, such as 0.1, or a set of images",
            got=str(given),
        )
    return share


def other_split(validation: DataLike, data: DataLike) -> DataLike:
    """Return another split of the data where `split=NAME` was given, and else what was given.

    >>> other_split("split=val", DataSpec("photos", split="train"))
    DataSpec('photos', split='val')
    """
    given = validation.given if isinstance(validation, DataSpec) else validation
    if not (isinstance(given, str) and given.startswith(SPLIT)):
        return validation
    whole = data if isinstance(data, DataSpec) else DataSpec(data)
    return DataSpec(whole.given, **{**whole.options, "split": given.removeprefix(SPLIT)})


def split_off(data: ImageSet, share: float, *, seed: int) -> tuple[ImageSet, ImageSet]:
    """Return the images to train on and those to validate on, classes in their shares, by the seed and content."""
    order = in_shares(data.order(seed, "train/validation"), data.labels)
    count = max(1, round(share * len(data)))
    if count >= len(data):
        raise ConfigurationError("Nothing is left to train on.", got=f"{count} of {len(data)} images for validation")
    chosen = torch.zeros(len(data), dtype=torch.bool)
    chosen[order[:count]] = True
    places = torch.arange(len(data))
    return data.subset(places[~chosen]), data.subset(places[chosen])
