"""Which preset suits a model: by its number of classes and its kind of normalisation."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from shiftproof.models.layers import has_batch_norm

PUBLISHED = {10: "cifar", 100: "cifar100", 1000: "imagenet"}
"""Classes -> the preset of the data set that has so many."""


def choose_preset(model: Any, classes: int) -> str:
    """Return the preset for a model by its number of classes and its normalisation layers.

    Rates are those published for the data set whose number of classes is nearest, in powers of ten; networks with layer
    normalisation and no batch normalisation take those of vision transformers, published for ImageNet and measured for
    CIFAR-10.

    Args:
        model: The model to adapt.
        classes: Number of its classes.

    >>> [choose_preset(nn.BatchNorm2d(3), classes) for classes in (2, 10, 200, 1000)]
    ['cifar', 'cifar', 'cifar100', 'imagenet']
    >>> [choose_preset(nn.LayerNorm(3), classes) for classes in (10, 1000)]
    ['cifar_vit', 'imagenet_vit']
    """
    layers = list(model.modules()) if isinstance(model, nn.Module) else []
    transformer = any(isinstance(layer, nn.LayerNorm | nn.RMSNorm) for layer in layers)
    nearest = PUBLISHED[min(PUBLISHED, key=lambda known: abs(math.log(known / classes)))]
    if transformer and not has_batch_norm(model):
        return "imagenet_vit" if nearest == "imagenet" else "cifar_vit"
    return nearest
