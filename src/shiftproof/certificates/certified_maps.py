"""Certified segmentation by randomized smoothing: all pixels of an image at once, or they abstain (SegCertify).

Fischer et al. 2021, "Scalable Certified Segmentation via Randomized Smoothing". A few noisy copies choose a class for
each pixel; fresh ones test whether its probability exceeds tau. The tests of all pixels are corrected together, so that
with probability 1 - alpha every class that is given holds within sigma * Phi^-1(tau).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from annotated_types import Gt, Lt
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.options import Count, Options, Positive

ABSTAIN = 254
"""What stands for no class in a certified map."""
Control: TypeAlias = Literal["holm", "bonferroni"]


class MapCertificateOptions(Options):
    """How a segmenter is certified."""

    sigma: Annotated[Positive, "Standard deviation of the noise, on the [0, 1] scale."] = 0.25
    tau: Annotated[float, Gt(0.5), Lt(1), "The probability that a class must exceed; it sets the radius."] = 0.75
    choosing: Annotated[Count, "Noisy copies that choose the classes."] = 10
    testing: Annotated[Count, "Fresh noisy copies that test them."] = 100
    alpha: Annotated[float, Gt(0), Lt(1), "The probability that any class of an image is wrongly certified."] = 0.001
    control: Annotated[Control, "How the tests of all pixels are corrected."] = "holm"

    @property
    def radius(self) -> float:
        """The radius within which certified classes hold, in the L2 norm of the whole image."""
        from scipy.stats import norm

        return float(self.sigma * norm.ppf(self.tau))

    def check_size(self, pixels: int) -> None:
        """Refuse so few copies that no pixel of an image could be certified."""
        needed = least_copies(pixels, self.tau, self.alpha)
        if self.testing < needed:
            raise ConfigurationError(
                "Too few noisy copies to certify any pixel of such images.",
                expected=f"{needed} or more for {pixels:,} pixels, tau {self.tau:g} and alpha {self.alpha:g}",
                got=f"testing={self.testing}",
            )


class CertifiedMap(NamedTuple):
    """A class for each pixel, uint8 [H, W], `ABSTAIN` where none is certified, and the radius that they hold within."""

    classes: NDArray[np.uint8]
    radius: float

    @property
    def abstained(self) -> float:
        """The share of pixels without a class."""
        return float((self.classes == ABSTAIN).mean())


def least_copies(pixels: int, tau: float, alpha: float) -> int:
    """Return the fewest copies that can certify a pixel: tau^n <= alpha / pixels.

    >>> least_copies(240 * 180, 0.75, 0.001), least_copies(2048 * 1024, 0.95, 0.001)
    (62, 419)
    """
    return math.ceil(math.log(pixels / alpha) / math.log(1 / tau))


def rejected(p_values: ArrayLike, alpha: float, control: Control = "holm") -> NDArray[np.bool_]:
    """Return which null hypotheses are rejected, with a probability of alpha at most that any of them is true.

    Holm's steps go through the p-values in order, each against alpha over the number left; Bonferroni's all against
    alpha over all.

    >>> rejected([0.001, 0.02, 0.9], 0.05).tolist(), rejected([0.001, 0.02, 0.9], 0.05, "bonferroni").tolist()
    ([True, True, False], [True, False, False])
    """
    values = np.asarray(p_values, float)
    flat = values.ravel()
    if control == "bonferroni":
        return np.asarray(values <= alpha / max(1, flat.size))
    order = flat.argsort(kind="stable")
    passes = flat[order] <= alpha / np.arange(flat.size, 0, -1)
    count = flat.size if passes.all() else int(passes.argmin())
    found = np.zeros(flat.size, bool)
    found[order[:count]] = True
    return found.reshape(values.shape)


def certified_classes(chosen: ArrayLike, hits: ArrayLike, options: MapCertificateOptions) -> NDArray[np.uint8]:
    """Return the classes that were chosen where fresh copies agree often enough, and `ABSTAIN` elsewhere, [H, W].

    `hits` are how many of the fresh copies have the chosen class.
    """
    from scipy.stats import binom

    values = binom.sf(np.asarray(hits) - 1, options.testing, options.tau)
    sure = rejected(values, options.alpha, options.control)
    return np.where(sure, np.asarray(chosen), ABSTAIN).astype(np.uint8)


@dataclass(frozen=True)
class SmoothedSegmenter:
    """A segmenter behind Gaussian noise; `ask` gives logits [N, C, H, W] for images in [0, 1]."""

    ask: Callable[[Tensor], Tensor]
    options: MapCertificateOptions

    def certify(self, image: Tensor, key: int | Tensor, *, seed: int = 0, batch_size: int = 8) -> CertifiedMap:
        """Certify all pixels of an image [C, H, W]; the noise is a matter of the seed and the image's key alone."""
        options = self.options
        options.check_size(image.shape[1] * image.shape[2])
        rng = Keyed(seed, torch.as_tensor([int(key)]), device=image.device)
        counts = self._counts(image, rng, "choosing", options.choosing, batch_size)
        chosen = counts.argmax(0)
        fresh = self._counts(image, rng, "testing", options.testing, batch_size)
        hits = fresh.gather(0, chosen[None])[0]
        classes = certified_classes(chosen.cpu().numpy(), hits.cpu().numpy(), options)
        return CertifiedMap(classes, options.radius)

    def _counts(self, image: Tensor, rng: Keyed, purpose: str, copies: int, batch_size: int) -> Tensor:
        """Return how often each class is given to each pixel, [C, H, W], over noisy copies."""
        counts: Tensor | None = None
        for start in range(0, copies, batch_size):
            some = range(start, min(start + batch_size, copies))
            noise = torch.cat([self._noise(rng, f"{purpose}/{number}", image) for number in some])
            scores = self.ask(image[None] + noise)
            votes = torch.nn.functional.one_hot(scores.argmax(1), scores.shape[1]).sum(0).movedim(-1, 0)
            counts = votes if counts is None else counts + votes
        if counts is None:
            raise RuntimeError("there are no copies")
        return counts

    def _noise(self, rng: Keyed, name: str, image: Tensor) -> Tensor:
        return rng.fork(f"segcertify/{name}").normal(0.0, self.options.sigma, tuple(image.shape))
