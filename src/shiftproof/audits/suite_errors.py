"""A published suite as a whole: a model's errors at every corruption and severity of a downloaded ImageNet-C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftproof.audits.sections.corruptions import COMMON, is_imagenet
from shiftproof.audits.sections.measuring import predictions
from shiftproof.data import DataSpec
from shiftproof.data.images.published_suites import find_parts
from shiftproof.errors import DataError
from shiftproof.measures import mce
from shiftproof.models import ModelLike, load_model
from shiftproof.runs.files import expand
from shiftproof.subjects import Subject

SEVERITIES = ("1", "2", "3", "4", "5")


@dataclass(frozen=True)
class SuiteErrors:
    """Errors as fractions by corruption and severity, and the mean corruption error where they are ImageNet-C's."""

    errors: Mapping[str, Mapping[str, float]]
    mce: float | None


def suite_errors(
    model: ModelLike,
    suite: str | Path,
    *,
    images: int | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: int | None = None,
    **options: Any,
) -> SuiteErrors:
    """Measure a model on each part of a published suite, one after the other.

    The mean corruption error is given where all of ImageNet's classes, the fifteen common corruptions and five
    severities are there, as `audit` gives it.

    Args:
        model: What `load_model` takes or returned.
        suite: A folder of ImageNet-C, ImageNet-C-bar or CIFAR-10-C, as published or as `corrupt --suite` writes it.
        images: Images of each part. Default: all.
        seed: Seed of the draw of images.
        device: auto, cpu, cuda, cuda:1.
        batch_size: Default: what suits the device and the size of images.
        options: Of `load_data`, but for the split.
    """
    folder = expand(suite)
    parts = find_parts(folder) if folder.is_dir() else {}
    if not parts:
        raise DataError(
            f"{str(suite)!r} is not a suite of corrupted images.",
            expected="a folder with fog/3/ and the like, or with fog.npy and labels.npy",
        )
    loaded = load_model(model)
    errors: dict[str, dict[str, float]] = {}
    whole = True
    for part in parts:
        data = DataSpec(str(folder), split=part, **options)
        subject = Subject.of(loaded, data, images=images, seed=seed, device=device, batch_size=batch_size)
        labels, predicted, _ = predictions(subject, 0, len(subject.data), None, seed)
        name, _, severity = part.partition("@")
        errors.setdefault(name, {})[severity] = float((labels != predicted).double().mean())
        whole = whole and (name not in COMMON or is_imagenet(subject))
    published = whole and all(tuple(sorted(errors.get(name, ()))) == SEVERITIES for name in COMMON)
    common = {name: list(errors[name].values()) for name in COMMON} if published else {}
    return SuiteErrors(errors, mce(common) if published else None)
