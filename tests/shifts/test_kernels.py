"""The CUDA kernels against the tensor code, which runs on the CPU on the same random numbers."""

import pytest
import torch

from shiftproof import shifts
from shiftproof.keyed import Keyed
from shiftproof.shifts.augment.max_entropy import Prime, plus_waves
from shiftproof.shifts.corruptions.jpeg import compress_tensor
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.levels import quantize, quantize_, to_bytes
from tests.shifts.batches import random_images

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
NAMES = (*shifts.names("common"), *shifts.names("holdout"))
SEVERITIES = (1, 3, 5)
INNER_LEVELS = {"snow", "spatter"}
"""These truncate or threshold midway, so that the last bit of a blur can, rarely, decide more than one level."""


def on_cpu(drawn):
    if isinstance(drawn, tuple):
        return type(drawn)(*map(on_cpu, drawn))
    return drawn.cpu() if isinstance(drawn, torch.Tensor) else drawn


@pytest.mark.parametrize("shape", [(4, 3, 224, 224), (5, 1, 37, 50), (3, 3, 8, 9)])
@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "jpeg_compression"])
def test_a_corruption_is_the_same_within_one_level(name, severity, shape):
    images = random_images(*shape)
    shift = shifts.corruption(name, severity)
    drawn = shift.draw(Keyed(1, range(len(images)), device="cuda"), Shape(*shape[1:]))
    expected = quantize(shift.transform(images, on_cpu(drawn)))
    found = quantize(shift.transform(images.cuda(), drawn)).cpu()
    apart = ((found - expected).abs() * 255).round()
    if name in INNER_LEVELS:
        assert (apart > 1).float().mean() < 1e-4
    else:
        assert apart.max() <= 1
    assert (apart > 0).float().mean() < 1e-2


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("quality", [7, 15, 60, 95])
@pytest.mark.parametrize(("height", "width"), [(224, 224), (33, 50), (8, 9), (17, 16)])
def test_jpeg_is_the_same(channels, quality, height, width):
    levels = to_bytes(random_images(4, channels, height, width))
    assert torch.equal(compress_tensor(levels.cuda(), quality).cpu(), compress_tensor(levels, quality))


def test_levels_are_the_same():
    images = torch.rand(3, 3, 99, 101, generator=torch.Generator().manual_seed(0)) * 1.2 - 0.1
    levels = random_images(3, 3, 99, 101)
    assert torch.equal(quantize_(images.cuda()).cpu(), quantize(images))
    assert torch.equal(quantize_(levels.cuda()).cpu(), levels)
    assert torch.equal(to_bytes(levels.cuda()).cpu(), to_bytes(levels))


def test_sums_of_waves_are_the_same():
    start, numbers, waves = (torch.rand(*shape) - 0.5 for shape in [(9, 50, 2), (7, 25), (25, 9, 50, 2)])
    found = plus_waves(start.cuda(), numbers.cuda(), waves.cuda()).cpu()
    torch.testing.assert_close(found, plus_waves(start, numbers, waves), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [(64, 3, 32, 32), (5, 1, 37, 50)])
def test_a_view_of_prime_is_the_same_within_one_level(shape):
    images, shift = random_images(*shape), Prime()
    drawn = shift.draw(Keyed(1, range(len(images)), device="cuda"), Shape(*shape[1:]))
    expected = quantize(shift.transform(images, on_cpu(drawn)))
    apart = ((quantize(shift.transform(images.cuda(), drawn)).cpu() - expected).abs() * 255).round()
    assert (apart > 0).float().mean() < 1e-2
    assert (apart > 1).float().mean() < 1e-4  # a curve looks levels up, which the last bit of a filter can decide


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_in_any_batch_of_large_images(name):
    images, keys = random_images(64, 3, 224, 224).cuda(), torch.arange(64) * 7919 + 5
    shift = shifts.corruption(name, 3)
    together = shift(images, keys)
    assert torch.equal(quantize(together.cpu()), together.cpu())
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    for size in (1, 7):
        for part in order.split(size):
            assert torch.equal(shift(images[part], keys[part]), together[part])
