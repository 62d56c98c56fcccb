"""What a step minimises: views of the images and noise in, one loss per image out. Shells over `losses`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from shiftproof.options import Count, NotNegative, Options, Positive, Words
from shiftproof.training import losses
from shiftproof.training.losses import Direction
from shiftproof.training.mixed_targets import Targets

Several = Annotated[int, Ge(2), Words("two copies or more"), "How many noises each view gets."]
Copies = Annotated[Count, "How many noises each view gets."]


@dataclass(frozen=True, eq=False)
class Moment:
    """One step as an objective sees it.

    `images` are views [V, N, C, H, W] in [0, 1], `targets` what they are to be called; where labels are maps, they are
    those of the labelled `pixels`, places among all pixels of the images, which then stand for images. `noise`
    [V, S, N, C, H, W] is zero where a recipe adds none. `network` is called once per step, with gradients; `fixed` is
    the same network in evaluation mode, for attacks, and `featured` the same with the features before its last linear
    layer, where it has one; `holding` holds that mode over many calls, as turning it on and off takes time. `epoch`
    counts from 0, with fractions. `right` gets the share of first views that the network gave their label, and `before`
    is what the network that training began with said of the first views, as logarithms of probabilities, where an
    objective asks for it.
    """

    network: Callable[[Tensor], Tensor]
    fixed: Callable[[Tensor], Tensor]
    images: Tensor
    targets: Targets
    noise: Tensor | None
    sigma: float
    epoch: float
    before: Tensor | None = None
    right: list[Tensor] = field(default_factory=list)
    pixels: Tensor | None = None
    featured: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None
    holding: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def labels(self) -> Tensor:
        """The labels of the images, [N]."""
        return self.targets.labels

    def logits(self, images: Tensor | None = None) -> Tensor:
        """Return the logits of all noisy views, [V, S, N, K] float32, by one call of the network."""
        seen = (self.images if images is None else images)[:, None]
        seen = seen if self.noise is None else seen + self.noise
        scores = self.network(seen.flatten(0, 2)).float()
        if self.pixels is None:
            made = scores.view(*seen.shape[:3], -1)
        else:
            made = scores.movedim(1, -1).reshape(*seen.shape[:2], -1, scores.shape[1])[:, :, self.pixels]
        self.right.append((made[0, 0].detach().argmax(-1) == self.labels).float().mean())
        return made


class Objective(Options, ABC):
    """How noisy views become a loss. `views` is 1 (the augmented image) or more (the original and augmented ones)."""

    views: ClassVar[int] = 1
    anchored: ClassVar[bool] = False
    """Whether it asks the network that training began with."""
    answers: ClassVar[bool] = True
    """Whether its labels can be softened, weighted and mixed: whether they enter by `Targets.cross_entropy` alone."""

    @property
    def noises(self) -> int:
        """How many noises each view gets."""
        return 1

    @property
    def passes(self) -> int:
        """How many images go through the network for each image of a batch: the cost of a step over erm's."""
        return self.views * self.noises

    @abstractmethod
    def loss(self, moment: Moment) -> Tensor:
        """Return the loss of every image, [N]."""


class CrossEntropy(Objective):
    """Cross-entropy of one view."""

    def loss(self, moment: Moment) -> Tensor:
        """Return the cross-entropy."""
        return moment.targets.cross_entropy(moment.logits())


class ThreeWay(Objective):
    """Cross-entropy of the original and `weight` times the divergence of it and two augmented views (AugMix)."""

    views: ClassVar[int] = 3
    weight: Annotated[NotNegative, "The weight of the divergence beside the cross-entropy."] = 12.0

    def loss(self, moment: Moment) -> Tensor:
        """Return cross-entropy plus Jensen-Shannon divergence."""
        logits = moment.logits()[:, 0]
        return moment.targets.cross_entropy(logits[0]) + self.weight * losses.jsd(logits)


class Anchored(Objective):
    """Say of an image, and of an augmented view of it, what the network said of the image before it was trained.

    Distillation from itself: little is forgotten that a short fine-tuning on few images would forget. Of an image that
    the network was wrong about, the label is said instead, unless `corrected` is off. `labels` is the weight of the
    augmented view's cross-entropy with the label beside that.
    """

    views: ClassVar[int] = 2
    anchored: ClassVar[bool] = True
    lam: Annotated[NotNegative, "The weight of the augmented view's divergence beside that of the image."] = 1.0
    labels: Annotated[NotNegative, "The weight of the augmented view's cross-entropy with the label."] = 0.0
    corrected: Annotated[bool, "Whether the label counts where the network that training began with was wrong."] = True

    def loss(self, moment: Moment) -> Tensor:
        """Return the divergences from what was said before, or from the label, and the cross-entropy."""
        if moment.before is None:
            raise RuntimeError("there is no network to hold on to")
        logits = moment.logits()[:, 0]
        apart = losses.kl(moment.before, logits.log_softmax(-1))
        right = moment.targets.cross_entropy(logits, averaged=False)
        if self.corrected:
            apart = torch.where(moment.targets.missed(moment.before.argmax(-1)), right, apart)
        loss = apart[0] + self.lam * apart[1]
        return loss + self.labels * right[1] if self.labels else loss


class Consistency(Objective):
    """Cross-entropy of noisy copies and their consistency (Jeong & Shin 2020)."""

    lam: Annotated[NotNegative, "The weight of the divergence between the copies."] = 20.0
    eta: Annotated[NotNegative, "The weight of the entropy of their mean prediction."] = 0.5
    copies: Several = 2

    @property
    def noises(self) -> int:
        """How many noises each view gets."""
        return self.copies

    def loss(self, moment: Moment) -> Tensor:
        """Return cross-entropy plus consistency."""
        logits = moment.logits()[0]
        return moment.targets.cross_entropy(logits) + losses.consistency(logits, lam=self.lam, eta=self.eta)


class Hierarchical(Objective):
    """Cross-entropy of the noisy originals and hierarchical consistency over views and noises (Sun et al. 2022).

    The defaults are the paper's for CIFAR-10; CIFAR-100 has lam 20, ImageNet lam 5 and eta 5.
    """

    views: ClassVar[int] = 3
    lam: Annotated[NotNegative, "The weight of the divergence between views."] = 40.0
    eta: Annotated[NotNegative, "The weight of the divergence between the noises of a view."] = 10.0
    copies: Copies = 2
    direction: Annotated[Direction, "Which way the divergence from the mean prediction is taken."] = "to_mean"

    @property
    def noises(self) -> int:
        """How many noises each view gets."""
        return self.copies

    def loss(self, moment: Moment) -> Tensor:
        """Return cross-entropy plus hierarchical consistency."""
        logits = moment.logits()
        regular = losses.hcr(logits, lam=self.lam, eta=self.eta, direction=self.direction)
        return moment.targets.cross_entropy(logits[0]) + regular


class CertifiedRadius(Objective):
    """Cross-entropy of the smoothed prediction and a hinge on its certified radius (Zhai et al. 2020, MACER)."""

    answers: ClassVar[bool] = False
    lam: Annotated[NotNegative, "The weight of the radius beside the cross-entropy."] = 12.0
    gamma: Annotated[Positive, "The difference of Gaussian quantiles from which on a radius is large enough."] = 8.0
    beta: Annotated[Positive, "The inverse temperature of the smoothed prediction."] = 16.0
    copies: Several = 16

    @property
    def noises(self) -> int:
        """How many noises each view gets."""
        return self.copies

    def loss(self, moment: Moment) -> Tensor:
        """Return the loss of MACER."""
        return losses.macer(
            moment.logits()[0], moment.labels, sigma=moment.sigma, lam=self.lam, gamma=self.gamma, beta=self.beta
        )


class Adversarial(Objective):
    """Cross-entropy of noisy images that were attacked first, with the same noises (Salman et al. 2019, SmoothAdv).

    The radius `eps` of the attack, on the [0, 1] scale, rises from 0 over the first `warmup` epochs.
    """

    eps: Annotated[Positive, "The radius of the attack, on the [0, 1] scale."] = 64 / 255
    steps: Annotated[Count, "Steps of the attack."] = 10
    copies: Copies = 2
    warmup: Annotated[int, Ge(0), "Epochs over which the radius rises from 0."] = 10

    @property
    def noises(self) -> int:
        """How many noises each view gets."""
        return self.copies

    @property
    def passes(self) -> int:
        """Every step of the attack goes through the network as the loss does."""
        return self.copies * (self.steps + 1)

    def loss(self, moment: Moment) -> Tensor:
        """Attack, then return the cross-entropy."""
        (images,) = moment.images
        noise = torch.zeros_like(images)[None] if moment.noise is None else moment.noise[0]
        eps = self.eps * min(1.0, moment.epoch / self.warmup) if self.warmup else self.eps
        with moment.holding():
            attacked = losses.smoothadv(moment.fixed, images, moment.labels, noise, eps=eps, steps=self.steps)
        return moment.targets.cross_entropy(moment.logits(attacked[None]))
