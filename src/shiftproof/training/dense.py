"""Training where every pixel has a label: which pixels count, and which recipes apply."""

from __future__ import annotations

from torch import Tensor

from shiftproof.data import ImageSet
from shiftproof.data.images.mask_values import IGNORE
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.shifts import ImageShift
from shiftproof.shifts.moving import moves_content
from shiftproof.training.objectives import Consistency, CrossEntropy, Hierarchical, ThreeWay
from shiftproof.training.recipes import Recipe
from shiftproof.training.settings import TrainingSettings

OBJECTIVES = (CrossEntropy, ThreeWay, Consistency, Hierarchical)
"""Losses that are sums over images, and so over pixels."""


def labelled(labels: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the labels of a batch [M] and, of maps [N, H, W], the places of the M pixels that have one.

    >>> import torch
    >>> labelled(torch.tensor([[[1, 255], [0, 255]]], dtype=torch.uint8))
    (tensor([1, 0]), tensor([0, 2]))
    """
    if labels.ndim == 1:
        return labels, None
    flat = labels.flatten()
    places = (flat != IGNORE).nonzero()[:, 0]
    return flat[places].long(), places


def check_dense(
    settings: TrainingSettings, recipe: Recipe, framing: ImageShift | None, augment: ImageShift | None
) -> None:
    """Refuse recipes and settings that do not apply where labels are maps."""
    asked = {"mix": settings.mix, "sampling": settings.sampling, "goal": settings.goal}
    for name, value in asked.items():
        if value not in (None, "none", "uniform", "accuracy"):
            raise ConfigurationError(f"Not available for segmentation: {name} {value!r}.", fix=f"leave {name} out")
    if framing is not None:
        moves_content(framing)  # refuses one that does not say
    if not isinstance(recipe.objective, OBJECTIVES) or recipe.denoising is not None:
        raise _refused(recipe, "its loss is of whole images")
    if recipe.tuples is not None and recipe.tuples.searcher is not None:
        raise _refused(recipe, "its search is of classifiers", "rda")
    if augment is None or not moves_content(augment):
        return
    if recipe.objective.views > 1:
        raise _refused(recipe, "its views move content, each in another way, and are compared pixel by pixel")
    if augment.name == "augmix":
        raise _refused(recipe, "it mixes images that were moved in different ways")


def check_same_task(data: ImageSet, other: ImageSet) -> None:
    """Refuse a validation set for another task."""
    if data.task != other.task:
        raise DataError(
            "The validation set has other labels than the training set.",
            expected=f"a set for {data.task}",
            got=f"one for {other.task}",
        )


def _refused(recipe: Recipe, reason: str, instead: str = "") -> ConfigurationError:
    fix = f"--recipe {instead}" if instead else "--recipe erm, gaussian, gaussian+jsd, fouriermix or autoaugment"
    if recipe.augment is not None and recipe.augment.startswith("augmix"):
        fix = "-O 'augment=augmix[geometric=false]', whose operations move nothing"
    return ConfigurationError(f"Not available for segmentation: the recipe {recipe.name!r}.", reason=reason, fix=fix)
