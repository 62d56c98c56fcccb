"""Training a denoiser for a classifier that stays as it is (Salman et al. 2020)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from shiftproof.models.networks.denoiser import Denoiser
from shiftproof.options import Share
from shiftproof.training.objectives import Moment, Objective

Target = Literal["stab", "mse"]


class Denoising(Objective):
    """stab: the classifier says of the denoised image what it says of the clean one. mse: the image comes back.

    `stab` is tied to the classifier it went through, and certifies more of it; one trained by `mse` serves all. Neither
    looks at labels. The standard deviation of an image's noise is uniform between `low` times sigma and sigma; a range
    costs certificates at its upper end.
    """

    answers: ClassVar[bool] = False
    target: Annotated[
        Target, "What is lowered: stab goes through the classifier; mse is the distance from the clean image."
    ] = "stab"
    low: Annotated[Share, "The least noise, as a share of sigma; 1: sigma alone."] = 1.0

    def loss(self, moment: Moment) -> Tensor:
        """Return the loss of every image: the network, which has the classifier, computes it."""
        (images,) = moment.images
        noise = torch.zeros_like(images) if moment.noise is None else moment.noise[0, 0]
        share = self.low + (1 - self.low) * torch.rand(len(images), 1, 1, 1, device=images.device)
        level = (moment.sigma * share).expand(-1, 1, *images.shape[2:])
        return moment.network(torch.cat([images + noise * share, level, images], 1)).float().flatten()


class DenoiserInTraining(nn.Module):
    """A denoiser and the classifier it is trained for, whose weights and statistics stay as they are.

    Of images [N, C, H, W] it returns the scores of the denoised ones. Of [N, 2 C + 1, H, W] (noisy images, how much
    noise there is, the clean images) it returns the losses, [N, 1].
    """

    def __init__(self, classifier: nn.Module, channels: int, sigma: float, options: Denoising) -> None:
        super().__init__()
        self.channels, self.sigma, self.target = channels, sigma, options.target
        self.denoiser = Denoiser(channels, (options.low * sigma, sigma))
        self.classifier = classifier.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """Put the denoiser into training mode; the classifier never is."""
        super().train(mode)
        self.classifier.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Return scores, or losses."""
        if images.shape[1] == self.channels:
            scores: Tensor = self.classifier(self.denoiser(images, self.sigma))
            return scores
        noisy, level, clean = images[:, : self.channels], images[:, self.channels], images[:, self.channels + 1 :]
        restored = self.denoiser(noisy, level[:, 0, 0])
        if self.target == "mse":
            off: Tensor = (restored.float() - clean).square()
            return off.flatten(1).mean(1, keepdim=True)
        with torch.no_grad():
            said = self.classifier(clean).argmax(1)
        return functional.cross_entropy(self.classifier(restored).float(), said, reduction="none")[:, None]
