"""Adversarial data augmentation (Volpi, Namkoong et al. 2018, ADA): images moved to where the loss is higher.

The images stay near the originals in the features that the network decides by, not in pixels, so that an ascent looks
for other domains rather than for imperceptible noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, TypeAlias

import torch
from torch import Tensor

from shiftproof.errors import ModelError
from shiftproof.options import Count, NotNegative, Positive
from shiftproof.training import losses
from shiftproof.training.objectives import Moment, Objective

Featured: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From images to logits [N, K] and features [N, F], with gradients."""


def ascend(network: Featured, images: Tensor, labels: Tensor, *, gamma: float, steps: int, rate: float) -> Tensor:
    """Return images after gradient ascent on the cross-entropy less gamma / 2 times the squared distance of features.

    `steps` steps of `rate` times the gradient; images [N, C, H, W] stay in [0, 1]. The parameters of the network get no
    gradients.
    """
    with torch.no_grad():
        origin = network(images)[1].float()
    moved = images.detach()
    for _ in range(steps):
        moved = moved.requires_grad_(True)
        with torch.enable_grad():
            logits, features = network(moved)
            distance = (features.float() - origin).square().sum(1)
            gain = losses.cross_entropy(logits.float(), labels) - gamma / 2 * distance
            (slope,) = torch.autograd.grad(gain.sum(), moved)
        moved = (moved.detach() + rate * slope).clamp_(0.0, 1.0)
    return moved.detach()


class AdversarialAugmentation(Objective):
    """Cross-entropy of images and of copies that were moved to where it is higher (Volpi et al. 2018, ADA)."""

    answers: ClassVar[bool] = False
    gamma: Annotated[NotNegative, "The weight of the distance of features against the loss."] = 1.0
    steps: Annotated[Count, "Steps of the ascent."] = 15
    rate: Annotated[Positive, "The length of a step, times the gradient."] = 1.0

    @property
    def passes(self) -> int:
        """The image, its copy, the features of the image, and every step of the ascent."""
        return 3 + self.steps

    def loss(self, moment: Moment) -> Tensor:
        """Move the images, then return the mean cross-entropy of both."""
        (images,) = moment.images
        if moment.featured is None:
            raise ModelError(
                "The network has no features to compare.", expected="a network that ends in a linear layer"
            )
        with moment.holding():
            moved = ascend(moment.featured, images, moment.labels, gamma=self.gamma, steps=self.steps, rate=self.rate)
        return moment.targets.cross_entropy(moment.logits(torch.stack([images, moved])))
