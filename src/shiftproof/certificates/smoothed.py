"""The stateful shell: a model smoothed with noise, which predicts and certifies."""

from __future__ import annotations

import copy
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shiftproof.certificates.checks import check_fixed, check_function, check_sizes
from shiftproof.certificates.laws import check_sigma, law_of
from shiftproof.certificates.radius import is_majority
from shiftproof.certificates.rules import Rule, check_numbers, make_rule
from shiftproof.certificates.sampling import Sampler
from shiftproof.certificates.transformations import Transformation, check_resolvable, transformation
from shiftproof.data.contents import content_keys
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.models import device_of
from shiftproof.models.denoising import DenoiserLike, check_noise, load_denoiser
from shiftproof.models.networks.denoiser import Denoised
from shiftproof.models.outputs import precision_of
from shiftproof.shifts.image_shift import check_values

Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]
PRECISIONS = ("float32", "bfloat16", "float16")

ABSTAIN = -1
"""The class of an image of which nothing is claimed."""
SEED_BITS = 62
"""Of a seed that nobody can guess."""
_KNOWN: WeakKeyDictionary[nn.Module, set[tuple[object, ...]]] = WeakKeyDictionary()
"""Modules that were seen to be functions of single images, with the precisions and shapes of images that showed it."""
PREFETCH_BATCHES = 8
"""Images are admitted until so many batches of samples wait, so that batches are full and the device seldom idles."""


@dataclass(frozen=True)
class Certificate:
    """The certificate of one image.

    The smoothed classifier predicts the same class within the L2 distance `radius` of the image (on the [0, 1] scale,
    over all values), or within that range of a transformation.

    Args:
        prediction: The certified class, or -1 if the smoothed classifier abstains.
        radius: The certified radius, or range of a transformation.
        guess: The most frequent class of the first n0 samples.
        hits: Number of further samples of that class.
        samples: Number of further samples drawn.
        skipped: Whether no further samples were drawn because the guess is not the label, so that the image counts as
            radius 0.
    """

    prediction: int
    radius: float
    guess: int
    hits: int
    samples: int
    skipped: bool = False


class Smoothed:
    """A smoothed classifier: it predicts the most frequent class of `model` under Gaussian noise.

    Against a transformation (brightness, contrast+brightness, blur, translation, or a `Transformation`), the noise is
    on its parameter. With a `denoiser`, denoiser and model are smoothed together (Salman et al. 2020), so the model
    needs no training with noise. With `dtype` or `compile`, certificates are for the converted copy of the model. The
    noise for certifying an image depends only on `seed` and its key; the noise for predictions is drawn anew.

    Args:
        model: A callable from images to scores.
        sigma: Standard deviation of the noise, on the [0, 1] scale of images.
        against: `l2`, or a transformation (its name, or a `Transformation`).
        denoiser: A denoiser in front of the model: a name, a file or a module. Default: none.
        seed: Seed of the noise for certifying.
        batch_size: Noisy images per batch. Default: as memory allows.
        dtype: Precision of the model. Default: unchanged.
        compile: Whether to compile the model.

    >>> smoothed = Smoothed(lambda images: images.mean((2, 3)), sigma=0.25)
    >>> smoothed.certify(torch.eye(3)[:, :, None, None].expand(3, 3, 8, 8), n=1000)[1].prediction
    1
    """

    def __init__(
        self,
        model: Callable[[Tensor], Any],
        sigma: float,
        *,
        against: str | Transformation = "l2",
        denoiser: DenoiserLike | None = None,
        seed: int = 0,
        batch_size: int | None = None,
        dtype: Precision = "float32",
        compile: bool = False,  # noqa: A002  (the option's name)
    ) -> None:
        self.transformation = against if isinstance(against, Transformation) else _transformation(against)
        self.against = against.name if isinstance(against, Transformation) else against
        check_sigma(sigma, self.against)
        if batch_size is not None and batch_size < 1:
            raise ConfigurationError("The batch size must be positive.", expected="1 or more", got=str(batch_size))
        check_fixed(model)
        if denoiser is not None:
            model = denoised(model, denoiser, sigma, self.against)
        self.sigma, self.seed, self.batch_size = float(sigma), seed, batch_size
        self._plain, self.dtype = prepared(model, dtype, compile)
        self.model = torch.compile(self._plain, dynamic=False) if compile else self._plain
        self.device = device_of(model)
        known = _KNOWN.setdefault(self._plain, set()) if isinstance(self._plain, nn.Module) else set()
        self._known: set[tuple[object, ...]] = known
        self._resolved: set[tuple[int, ...]] = set()

    def certify(
        self,
        images: Tensor,
        labels: Tensor | Sequence[int] | None = None,
        *,
        keys: Tensor | Sequence[int] | None = None,
        n0: int = 100,
        rule: str | Rule = "sequential",
        **options: Any,
    ) -> list[Certificate]:
        """Certify images [N, C, H, W] in [0, 1]; each certificate is wrong with probability at most alpha.

        `rule` is a name with its options (`n`, 100,000 by default, `alpha`, 0.001 by default, `radius`, `tolerance`,
        `futility`), or a `Rule`. With `labels`, images whose guess is wrong are skipped. `keys` determine the noise of
        each image; by default they are hashes of its pixels.
        """
        chosen = self._rule(rule, options)
        check_sizes(n0, chosen.n)
        sampler = self.sampler(images, keys)
        wanted = None if labels is None else _labels(labels, len(images))
        return certify_sampled(sampler, chosen, n0, wanted) if len(images) else []

    def predict(
        self,
        images: Tensor,
        *,
        keys: Tensor | Sequence[int] | None = None,
        n: int = 1000,
        alpha: float = 0.001,
        seed: int | None = None,
    ) -> Tensor:
        """Predict with the smoothed classifier: classes [N] int64, or -1 where n samples do not suffice.

        A returned class differs from that of the exact smoothed classifier with probability at most alpha. This needs
        noise that is unknown when the image is chosen, so every call draws fresh noise from the system's entropy. Use a
        `seed` only for evaluation and reproduction: an attacker who knows it can search offline for an image within the
        certified radius that is always misclassified.
        """
        check_numbers(n, alpha)
        sampler = self.sampler(images, keys, secrets.randbits(SEED_BITS) if seed is None else seed)
        if not len(images):
            return torch.empty(0, dtype=torch.int64)
        counts = sampler.counted(n)
        order = np.argsort(-counts, axis=1, kind="stable")[:, :2]
        top = np.take_along_axis(counts, order, 1)
        settled = [is_majority(int(first), int(second), alpha) for first, second in top]
        return torch.from_numpy(np.where(settled, order[:, 0], ABSTAIN))

    def choose(self, images: Tensor, keys: Tensor | Sequence[int] | None = None, n0: int = 100) -> list[int]:
        """Return the most frequent class of n0 samples of each image; this is not a certified prediction."""
        chosen: list[int] = self.sampler(images, keys).counted(n0).argmax(1).tolist()
        return chosen

    def _rule(self, rule: str | Rule, options: dict[str, Any]) -> Rule:
        """Return a rule by its name and options; refuse one that is for other noise, and options beside a rule."""
        if isinstance(rule, str):
            return make_rule(rule, sigma=self.sigma, against=self.against, **options)
        other = {name: value for name, value in options.items() if getattr(rule, name, None) != value}
        if other:
            raise ConfigurationError(
                "Options cannot be combined with a Rule object.",
                expected=f"these options set on {rule}",
                got=", ".join(f"{name}={value}" for name, value in other.items()),
            )
        if (rule.sigma, rule.against) != (self.sigma, self.against):
            raise ConfigurationError(
                "The rule was made for different noise.",
                expected=f"sigma={self.sigma:g} against {self.against}",
                got=f"sigma={rule.sigma:g} against {rule.against}",
            )
        return rule

    def sampler(self, images: Tensor, keys: Tensor | Sequence[int] | None, seed: int | None = None) -> Sampler:
        """Return a sampler of noisy copies of these images, after checking that the model can be certified."""
        check_fixed(self._plain)  # a model may have been switched to training since
        if not isinstance(images, Tensor) or images.ndim != 4 or not images.is_floating_point():
            got = f"{images.dtype} of shape {tuple(images.shape)}" if isinstance(images, Tensor) else type(images)
            raise DataError("Expected a batch of images.", expected="a float tensor N x C x H x W", got=str(got))
        check_values(images)  # a distance on the scale of normalised images would be told for one on [0, 1]
        named = content_keys(images) if keys is None else torch.as_tensor(keys, dtype=torch.int64)
        if len(named) != len(images):
            raise DataError("Every image needs a key.", expected=f"{len(images)} keys", got=f"{len(named)}")
        shape = tuple(images.shape[1:])
        size = self.batch_size or batch_size_for(self.device, math.prod(shape))
        if len(images) and (self.dtype, shape) not in self._known:
            check_function(self._plain, images.to(self.device, torch.float32), self.dtype)
            self._known.add((self.dtype, shape))
        if len(images) and self.transformation is not None and shape not in self._resolved:
            check_resolvable(self.transformation, shape, self.sigma)
            self._resolved.add(shape)
        return Sampler(
            self.model,
            images.float(),
            named,
            sigma=self.sigma,
            seed=self.seed if seed is None else seed,
            batch_size=size,
            device=self.device,
            dtype=self.dtype,
            transformation=self.transformation,
        )


def denoised(model: Callable[[Tensor], Tensor], denoiser: DenoiserLike, sigma: float, against: str = "l2") -> Denoised:
    """Return a model behind a denoiser, on the model's device; refuse noise that the denoiser is not for."""
    if not law_of(against).pixels:
        raise ConfigurationError(
            f"A denoiser cannot be used against {against}.",
            expected="against l2, rotation or scaling",
            got=f"against {against}",
        )
    loaded = load_denoiser(denoiser, device_of(model))
    check_noise(loaded, sigma)
    made = Denoised(loaded.to(precision_of(model)), model, sigma)
    made.training = False  # of the pair; the model's own mode is looked at apart
    return made


def certify_sampled(
    sampler: Sampler, rule: Rule, n0: int, labels: NDArray[np.int64] | None, classes: NDArray[np.int64] | None = None
) -> list[Certificate]:
    """Certify all images of a sampler by a rule.

    Samples 0 to n0 - 1 of an image choose its class; those after them, which are fresh, count it. With `classes` that
    were chosen before, nothing is chosen. Images are admitted as others finish, so that batches stay full.
    """
    images = len(sampler.images)
    made: dict[int, Certificate] = {}
    admitted = 0
    guess, hits = np.full(images, ABSTAIN) if classes is None else classes, np.zeros(images, np.int64)
    looks = np.full(images, -1 if classes is None else 0)  # the next look at an image; -1 while its class is chosen

    def ask(image: int) -> None:
        before = rule.looks[looks[image] - 1] if looks[image] > 0 else 0
        sampler.ask(image, n0 + before, n0 + rule.looks[looks[image]])

    while len(made) < images:
        while admitted < images and sampler.waiting < PREFETCH_BATCHES * sampler.batch_size:
            if classes is None:
                sampler.ask(admitted, 0, n0)
            else:
                ask(admitted)
            admitted += 1
        sampler.run()
        waiting = sampler.undrawn()
        ready = np.array([each for each in range(admitted) if each not in made and each not in waiting], np.int64)
        counts = sampler.take(ready.tolist())
        choosing = looks[ready] < 0
        for image, tally in zip(ready[choosing].tolist(), counts[choosing], strict=True):
            guess[image] = tally.argmax()
            if labels is not None and guess[image] != labels[image]:
                made[image] = Certificate(ABSTAIN, 0.0, int(guess[image]), 0, 0, skipped=True)
            else:
                looks[image] = 0
                ask(image)
        counting, tallies = ready[~choosing], counts[~choosing]
        hits[counting] += tallies[np.arange(len(counting)), guess[counting]]
        reached = looks[counting]  # a copy: an image that goes on is not judged again before its samples are drawn
        for look in np.unique(reached).tolist():
            judged = counting[reached == look]
            radius, done = rule.judge(look, hits[judged])
            for image, over, distance in zip(judged.tolist(), done.tolist(), radius.tolist(), strict=True):
                if over:
                    claimed = int(guess[image]) if distance > 0 else ABSTAIN
                    made[image] = Certificate(claimed, distance, int(guess[image]), int(hits[image]), rule.looks[look])
                else:
                    looks[image] += 1
                    ask(image)
    return [made[image] for image in range(images)]


def prepared(model: Callable[[Tensor], Any], dtype: str, compiled: bool) -> tuple[Callable[[Tensor], Any], torch.dtype]:
    """Return the model to sample (or to compile first) and its precision: itself, or a copy cast and laid out anew."""
    if dtype not in PRECISIONS:
        raise ConfigurationError(f"Unknown precision {dtype!r}.", expected=", ".join(PRECISIONS))
    if dtype == "float32" and not compiled:
        return model, precision_of(model)
    if not isinstance(model, nn.Module):
        raise ConfigurationError(
            "dtype and compile need a PyTorch module.",
            got=f"{type(model).__name__} with dtype={dtype!r}, compile={compiled}",
            fix="leave both options out, or pass the PyTorch module",
        )
    kind: torch.dtype = getattr(torch, dtype)
    return copy.deepcopy(model).to(kind).to(memory_format=torch.channels_last), kind  # type: ignore[call-overload]


def batch_size_for(device: torch.device, values: int) -> int:
    """Return the images per batch that suit a device: few enough for a CPU's cache, enough to fill a GPU."""
    if device.type == "cpu":
        return 64
    return int(max(256, min(4096, 2 ** int(math.log2(2**24 / values)))))


def _transformation(against: str) -> Transformation | None:
    """Return what a kind of certificate smooths over; None where it is the values themselves."""
    return None if law_of(against).pixels else transformation(against)


def _labels(labels: Tensor | Sequence[int], images: int) -> NDArray[np.int64]:
    wanted = torch.as_tensor(labels, dtype=torch.int64).cpu().numpy()
    if wanted.shape != (images,):
        raise DataError("Every image needs a label.", expected=f"{images} labels", got=f"shape {wanted.shape}")
    return wanted
