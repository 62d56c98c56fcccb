"""Counting what a model says of noisy copies of images: many images to a batch, and the counts stay on the device.

The noise of sample j of an image is a function of (seed, key of the image, j) and of the kind of device. So counts do
not depend on which samples share a batch, or on the order, the worker or the interruption in which they were drawn.

Every batch has the same number of rows, the last one padded, for two reasons: a compiled model is compiled once, and
the arithmetic of a convolution can depend on the size of its batch in the last bit, which may turn a tie between two
classes. Between batch sizes such a sample in many millions can change sides; for one size, counts are the same bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.certificates.transformations import Transformation
from shiftproof.errors import INTERRUPTIONS, ModelError, ShiftproofError
from shiftproof.keyed import Keyed

STREAM = "smoothing"

_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_STEP = 0x9E3779B97F4A7C15


class Sampler:
    """The counts of the classes a model gives to images with noise, image by image, on the model's device.

    `images` are [N, C, H, W] in [0, 1] and `keys` [N] name them. `model` maps a batch of `batch_size` images, in
    `dtype`, to scores [batch_size, K]; the noise is added in float32. It is Gaussian and of the values, or of the
    parameter of a transformation.
    """

    def __init__(
        self,
        model: Callable[[Tensor], Any],
        images: Tensor,
        keys: Tensor,
        *,
        sigma: float,
        seed: int,
        batch_size: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        transformation: Transformation | None = None,
    ) -> None:
        self.model, self.transformation = model, transformation
        self.images = images.to(device)
        self._prepared = self.images if transformation is None else transformation.prepared(self.images)
        self.keys = keys.cpu().numpy().astype(np.uint64)
        self.sigma, self.seed = sigma, seed
        self.batch_size, self.device, self.dtype = batch_size, device, dtype
        self.batches = 0
        self._wanted = deque[tuple[int, int, int]]()
        self._rows = 0
        self._counts: Tensor | None = None
        self._finite = torch.ones((), dtype=torch.bool, device=device)

    @property
    def waiting(self) -> int:
        """How many samples are asked for and not yet drawn."""
        return self._rows

    def ask(self, image: int, start: int, stop: int) -> None:
        """Ask for samples start, ..., stop - 1 of an image; they are drawn in the order asked."""
        self._wanted.append((image, start, stop))
        self._rows += stop - start

    def run(self) -> None:
        """Draw whole batches of what was asked while there are any; where there is none, one padded batch."""
        self._batch()
        while self._rows >= self.batch_size:
            self._batch()

    def counted(self, n: int) -> NDArray[np.int64]:
        """Draw samples 0, ..., n - 1 of every image and return their counts, [N, K]."""
        for image in range(len(self.images)):
            self.ask(image, 0, n)
        while self.waiting:
            self.run()
        return self.take(range(len(self.images)))

    def undrawn(self) -> set[int]:
        """Return the images some of whose samples wait."""
        return {image for image, _, _ in self._wanted}

    def take(self, images: Sequence[int]) -> NDArray[np.int64]:
        """Return the counts of some images since they were last taken, [len(images), K]; this waits for the device."""
        if self._counts is None:
            raise RuntimeError("no sample was drawn yet")
        if not bool(self._finite):
            raise ModelError(
                "The model returns scores that are not finite numbers.",
                expected="finite scores for images with Gaussian noise, whose values leave [0, 1]",
                got="NaN or infinity for at least one noisy image",
                fix="check what the model does with values below 0 or above 1, and its precision",
            )
        chosen = torch.as_tensor(images, dtype=torch.int64, device=self.device)
        taken = self._counts[chosen].cpu().numpy()
        self._counts[chosen] = 0
        return taken

    def _batch(self) -> None:
        """Draw the next samples, at most a batch of them."""
        if not self._rows:
            return
        owners, places = self._next()
        padding = self.batch_size - len(owners)
        # The padding repeats a sample; it is counted for an image that does not exist.
        keys = sample_keys(self.keys[np.pad(owners, (0, padding), mode="edge")], np.pad(places, (0, padding)))
        owners = np.pad(owners, (0, padding), constant_values=len(self.images))
        owner, key = self._sent(np.stack([owners, keys.view(np.int64)]))
        scores = self._scores(self._noisy(self._prepared[owner.clamp(max=len(self.images) - 1)], key).to(self.dtype))
        if self._counts is None:
            self._counts = torch.zeros(len(self.images) + 1, scores.shape[1], dtype=torch.int64, device=self.device)
        self._finite &= scores.isfinite().all()
        hit = owner * scores.shape[1] + scores.argmax(1)
        self._counts.view(-1).index_add_(0, hit, torch.ones_like(hit))
        self.batches += 1

    def _noisy(self, prepared: Tensor, keys: Tensor) -> Tensor:
        """Return images with noise of these keys."""
        if self.transformation is None:
            return Keyed(self.seed, keys, path=STREAM).normal(std=self.sigma, shape=prepared.shape[1:]).add_(prepared)
        rng = Keyed(self.seed, keys, path=f"{STREAM}/{self.transformation.name}")
        return self.transformation.apply(prepared, self.transformation.draw(rng, self.sigma))

    def _sent(self, numbers: NDArray[np.int64]) -> Tensor:
        """Return numbers on the device, without waiting for it: a wait would leave it idle until the next batch."""
        here = torch.from_numpy(numbers)
        return here if self.device.type == "cpu" else here.pin_memory().to(self.device, non_blocking=True)

    def _next(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Take the next samples off the queue: whose they are, and their numbers, at most a batch of them."""
        owners, places = [], []
        room = self.batch_size
        while self._wanted and room:
            image, start, stop = self._wanted.popleft()
            if stop - start > room:
                self._wanted.appendleft((image, start + room, stop))
                stop = start + room
            owners.append(np.full(stop - start, image, np.int64))
            places.append(np.arange(start, stop, dtype=np.int64))
            room -= stop - start
        self._rows -= self.batch_size - room
        return np.concatenate(owners), np.concatenate(places)

    def _scores(self, noisy: Tensor) -> Tensor:
        """Return the scores of a batch, [batch_size, K], on the device."""
        try:
            with torch.no_grad():
                scores = self.model(noisy)
        except (ShiftproofError, *INTERRUPTIONS):
            raise
        except torch.OutOfMemoryError as error:
            raise ModelError(
                "The model ran out of memory.",
                got=f"a batch of {self.batch_size} images",
                fix="use smaller batches: batch_size=, --batch-size",
            ) from error
        except BaseException as error:  # whatever a user's model raises is told in one paragraph
            raise ModelError(
                "The model failed on a batch of noisy images.",
                expected="a model that takes float tensors N x C x H x W, also with values outside [0, 1]",
                got=f"{type(error).__name__} on shape {tuple(noisy.shape)}: {error}".splitlines()[0],
            ) from error
        if not isinstance(scores, Tensor) or scores.ndim != 2 or len(scores) != len(noisy) or scores.shape[1] < 2:
            got = f"shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else f"a {type(scores).__name__}"
            raise ModelError(
                "The model returns the wrong shape.",
                expected=f"one row of at least 2 scores for each of {len(noisy)} images",
                got=got,
            )
        return scores.to(self.device)


def sample_keys(keys: NDArray[np.uint64], samples: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the key of the noise of a sample of an image, elementwise.

    For one image it is a permutation of the 64-bit numbers (Steele et al. 2014, SplitMix), so samples of an image never
    share their noise; those of different images do so by chance alone, which no certificate minds.
    """
    with np.errstate(over="ignore"):
        return _mixed(_mixed(keys) + samples.astype(np.uint64) * np.uint64(_STEP))


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of 64-bit words, invertibly."""
    with np.errstate(over="ignore"):
        words = (words ^ (words >> np.uint64(30))) * np.uint64(_MIX[0])
        words = (words ^ (words >> np.uint64(27))) * np.uint64(_MIX[1])
        return words ^ (words >> np.uint64(31))
