"""Randomness keyed by (seed, image key): independent of batch size, order, worker and resume.

A `Keyed` generator stands for a batch of images. Row i of everything it draws depends on the seed, the key of image
i, the name of the generator and the number of the draw, and on nothing else, so image 17 gets the same rain whatever
batch it arrives in.

    rng = Keyed(seed=0, keys=torch.tensor([17, 4])).fork("fog")
    angle = rng.uniform(-45, 45)                # [2], one number per image
    field = rng.normal(shape=(3, 32, 32))       # [2, 3, 32, 32]

Every draw is made from uniform numbers of 24 bits, which come from a counter-based generator:

* small fields (at most 256 numbers per image): Philox-4x32-10, the same bits everywhere;
* larger fields on the CPU: numpy's Philox-4x64-10, one counter block per image and draw;
* larger fields on CUDA: Philox-4x32-10.

On CUDA, where Triton is installed, a kernel makes the uniform numbers, with the same bits as the tensor arithmetic, and
large fields of normal numbers.

So the same kind of device gives the same bits; different kinds give the same distribution.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Words = TypeVar("Words", Tensor, NDArray[np.int64])

SMALL = 256
"""Fields of at most this many numbers per image have the same bits on every device."""

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_UNIT = 2.0**-24
_WORTH_A_THREAD = 2**14
"""Handing less than this many values to another thread takes longer than computing them."""


def key_of(text: str) -> int:
    """Return the image key of a name, such as a file's path within its folder: 63 bits of BLAKE2.

    Args:
        text: The name.
    """
    return _digest(text.encode()) >> 1


class Keyed:
    """A generator for a batch of images, one independent stream per image.

    Successive draws are independent; `fork(name)` starts an independent generator, so that adding a draw in one part of
    a program does not change another.

    Args:
        seed: The seed.
        keys: One integer per image, [N].
        device: Device of the numbers. Default: that of the keys.
        path: The names of the forks that led here.

    >>> alone, together = Keyed(0, [7]).uniform(3), Keyed(0, [5, 7]).uniform(3)
    >>> bool((alone[0] == together[1]).all())
    True
    """

    def __init__(
        self,
        seed: int,
        keys: Tensor | Sequence[int],
        *,
        device: torch.device | str | None = None,
        path: str = "",
    ) -> None:
        keys = torch.as_tensor(keys, dtype=torch.int64)
        self.seed = int(seed)
        self.keys = keys.to(device) if device is not None else keys
        self.path = path
        self._stream = _digest(f"{self.seed}/{path}".encode())
        self._draws = 0

    @property
    def device(self) -> torch.device:
        """Where the numbers are made."""
        return self.keys.device

    def __len__(self) -> int:
        return len(self.keys)

    def fork(self, name: str) -> Keyed:
        """Return a generator over the same images that is independent of this one."""
        return Keyed(self.seed, self.keys, path=f"{self.path}/{name}")

    def uniform(self, low: float = 0.0, high: float = 1.0, shape: Sequence[int] = ()) -> Tensor:
        """Draw float32 numbers uniform in [low, high), `[N, *shape]`."""
        unit = self._unit(math.prod(shape)).view(len(self), *shape)
        if (low, high) == (0.0, 1.0):
            return unit
        return unit.mul_(high - low).add_(low)

    def normal(self, mean: float = 0.0, std: float = 1.0, shape: Sequence[int] = ()) -> Tensor:
        """Draw float32 numbers from a normal distribution, `[N, *shape]`, by the Box-Muller transform."""
        count = math.prod(shape)
        if count > SMALL and self.device.type == "cuda" and has_triton():
            from shiftproof import keyed_triton

            self._draws += 1
            drawn = keyed_triton.normal(self._stream, self.keys, self._draws, count, mean, std)
            return drawn.view(len(self), *shape)
        half = (count + 1) // 2
        unit = self._unit(2 * half)
        # 1 - u is in (0, 1], so that the logarithm is finite.
        length = unit[:, :half].neg().add_(1.0).log_().mul_(-2.0).sqrt_()
        angle = unit[:, half:] * (2.0 * math.pi)
        drawn = torch.cat([length * angle.cos(), length.mul_(angle.sin_())], dim=1)[:, :count]
        return drawn.mul_(std).add_(mean).reshape(len(self), *shape)

    def integers(self, low: int, high: int, shape: Sequence[int] = ()) -> Tensor:
        """Draw whole numbers uniform in [low, high), `[N, *shape]` int64; the range must be under 2**24."""
        if not 0 < high - low <= 2**24:
            raise ValueError(f"integers needs low < high <= low + 2**24; got low={low}, high={high}")
        # Two streams of 24 bits would remove the bias of at most (high - low) / 2**24; no use here needs it.
        return self.uniform(shape=shape).mul_(high - low).floor_().to(torch.int64).add_(low)

    def poisson(self, rate: Tensor) -> Tensor:
        """Draw from Poisson distributions with the given rates, [N, ...] -> [N, ...] float32."""
        if len(rate) != len(self):
            raise ValueError(f"poisson needs one row of rates per image: {len(self)} images, {len(rate)} rows")
        if self.device.type == "cpu":
            drawn = torch.empty_like(rate, dtype=torch.float32, memory_format=torch.contiguous_format)
            rates, rows = rate.double().numpy(), drawn.numpy()

            def fill(row: int, generator: np.random.Generator) -> None:
                rows[row] = generator.poisson(rates[row])

            self._each_image(fill, rate[0].numel())
            return drawn
        return poisson_quantile(rate, self.uniform(shape=rate.shape[1:]))

    def permutation(self, n: int) -> Tensor:
        """Draw a random order of 0..n-1 for each image, [N, n] int64."""
        return self.uniform(shape=(n,)).argsort(dim=1, stable=True)

    def generators(self) -> Iterator[np.random.Generator]:
        """Yield a numpy generator for each input in turn, where inputs need draws of different number, as texts do."""
        self._draws += 1
        counter = np.array([0, 0, self._draws, 0], np.uint64)
        for key in self.keys.cpu().numpy().astype(np.uint64):
            philox = np.random.Philox(key=np.array([self._stream, key], np.uint64), counter=counter)
            yield np.random.Generator(philox)

    def _unit(self, count: int) -> Tensor:
        """Return uniform multiples of 2**-24 in [0, 1), [N, count]: the one source of all draws."""
        if count > SMALL and self.device.type == "cpu":
            drawn = torch.empty(len(self), count)
            rows = drawn.numpy()
            self._each_image(lambda row, generator: generator.random(dtype=np.float32, out=rows[row]), count)
            return drawn
        self._draws += 1
        if self.device.type == "cuda" and has_triton():
            from shiftproof import keyed_triton

            return keyed_triton.philox_unit(self._stream, self.keys, self._draws, count)
        return philox_unit(self._stream, self.keys, self._draws, count)

    def _each_image(self, fill: Callable[[int, np.random.Generator], object], count: int) -> None:
        """Call `fill(row, generator)` for every image, over the cores: numpy fills without the interpreter lock."""
        self._draws += 1
        keys = self.keys.numpy().astype(np.uint64)
        counter = np.array([0, 0, self._draws, 0], np.uint64)

        def work(row: int) -> None:
            generator = _generator()
            # Setting a generator's state takes an eighth of the time of making one. The position 4 is past the buffer.
            generator.bit_generator.state = {
                "bit_generator": "Philox",
                "state": {"counter": counter, "key": np.array([self._stream, keys[row]], np.uint64)},
                "buffer": np.zeros(4, np.uint64),
                "buffer_pos": 4,
                "has_uint32": 0,
                "uinteger": 0,
            }
            fill(row, generator)

        over_threads(work, len(keys), cost=count)


def over_threads(work: Callable[[int], object], count: int, *, cost: int) -> None:
    """Call `work(0)` to `work(count - 1)`, on as many threads as torch uses, or on this one where each costs little.

    The cost of one call is a number of values. `work` must spend most of its time without the interpreter lock.
    """
    parts = min(torch.get_num_threads(), count) if cost >= _WORTH_A_THREAD else 1

    def some(part: int) -> None:
        for number in range(part, count, parts):
            work(number)

    if parts <= 1:
        some(0)
    else:
        list(_threads().map(some, range(parts)))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="shiftproof")


# A forked process has none of its parent's threads, so it starts anew.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)

_local = threading.local()


def _generator() -> np.random.Generator:
    """Return this thread's generator, whose state is to be set before use."""
    if not hasattr(_local, "generator"):
        _local.generator = np.random.Generator(np.random.Philox())
    generator: np.random.Generator = _local.generator
    return generator


@cache
def has_triton() -> bool:
    """Whether Triton, which compiles the kernels of CUDA devices, is installed."""
    return find_spec("triton") is not None


def philox_unit(stream: int, keys: Tensor, draw: int, count: int) -> Tensor:
    """Philox-4x32-10 in tensor arithmetic: uniform multiples of 2**-24, [N, count] float32.

    The cipher's key is `stream`; its counter is (low and high half of the image key, draw, block), Salmon et al. 2011.
    """
    blocks = -(-count // 4)
    block = torch.arange(blocks, device=keys.device, dtype=torch.int64)
    zero = torch.zeros(len(keys), blocks, device=keys.device, dtype=torch.int64)
    lanes = [
        zero + (keys & _MASK)[:, None],
        zero + ((keys >> 32) & _MASK)[:, None],
        zero + (draw & _MASK),
        zero + block,
    ]
    if keys.device.type == "cpu":
        # The same arithmetic, on arrays: with few numbers, most of the time of an operation is torch's overhead.
        lanes = [torch.from_numpy(lane) for lane in _encrypt([lane.numpy() for lane in lanes], stream)]
    else:
        lanes = _encrypt(lanes, stream)
    words = torch.stack(lanes, dim=2).view(len(keys), 4 * blocks)[:, :count]
    return (words >> 8).to(torch.float32) * _UNIT


def _encrypt(lanes: list[Words], stream: int) -> list[Words]:
    """Encrypt blocks, whose four 32-bit words are held in four int64 arrays, with the key `stream`."""
    key = [stream & _MASK, stream >> 32]
    for _ in range(10):
        high0, low0 = _wide_product(_MULTIPLIERS[0], lanes[0])
        high1, low1 = _wide_product(_MULTIPLIERS[1], lanes[2])
        lanes = [high1 ^ lanes[1] ^ key[0], low1, high0 ^ lanes[3] ^ key[1], low0]
        key = [(word + weyl) & _MASK for word, weyl in zip(key, _WEYL, strict=True)]
    return lanes


def poisson_quantile(rate: Tensor, probability: Tensor) -> Tensor:
    """Return the smallest k with P(Poisson(rate) <= k) > probability, elementwise, as float32."""
    rate, probability = rate.double(), probability.double()
    z: Tensor = torch.special.ndtri(probability.clamp(1e-9, 1 - 1e-9))
    k: Tensor = (rate + z * rate.sqrt() + (z * z - 1) / 6).floor().clamp_min(0)

    def below(count: Tensor) -> Tensor:
        """P(Poisson(rate) <= count), 0 for negative counts."""
        known: Tensor = torch.special.gammaincc(count.clamp_min(0) + 1, rate)
        return known.masked_fill(count < 0, 0.0)

    while True:
        up = below(k) <= probability
        down = ~up & (below(k - 1) > probability)
        if not bool((up | down).any()):
            return k.float()
        k = k + up.to(k.dtype) - down.to(k.dtype)


def _wide_product(factor: int, words: Words) -> tuple[Words, Words]:
    """Return the high and low 32 bits of factor * words, for 32-bit numbers held in int64.

    The product can wrap round the sign bit; shifting and masking recovers its bits all the same.
    """
    product = words * factor
    return (product >> 32) & _MASK, product & _MASK


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
