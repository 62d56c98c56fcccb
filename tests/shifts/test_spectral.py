"""Power-law and Fourier basis noise against their definitions, in numpy's full spectrum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.shifts.base import Shift
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.spectral.waves import (
    FourierBasis,
    PowerLaw,
    amplitude_spectrum,
    fourier_basis,
    frequency_sets,
    make_real_,
    radial_frequency,
    radial_profile,
)
from tests.shifts.batches import assert_same_bits_in_any_batch, random_images

SIZES = [(32, 32), (33, 32), (16, 27), (64, 48)]


@pytest.mark.parametrize("shift", [PowerLaw(8, 4, 1), PowerLaw(12, 1, 3), FourierBasis(3, -2)], ids=str)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 40, 33)])
def test_same_bits_in_any_batch(shift: Shift, shape: tuple[int, int, int]) -> None:
    assert_same_bits_in_any_batch(shift, random_images(9, *shape))


def test_large_images_are_the_same_in_any_batch() -> None:
    """Sums over images this large are split among threads when the batch is small."""
    assert_same_bits_in_any_batch(PowerLaw(40, 20, 1), random_images(3, 3, 224, 224))


@pytest.mark.parametrize("size", SIZES)
def test_power_law_noise_has_the_stated_amplitudes(size: tuple[int, int]) -> None:
    height, width = size
    shift = PowerLaw(eps=10, center=5, alpha=2)
    images = random_images(4, 3, height, width)
    noise = (shift.transform(images, shift.draw(Keyed(0, range(4)), Shape(3, height, width))) - images).double()
    assert torch.allclose(noise.square().sum((1, 2, 3)).sqrt(), torch.full((4,), 10.0, dtype=torch.float64), rtol=1e-4)

    side = np.sqrt(height * width)
    u, v = np.fft.fftfreq(height, 1 / side), np.fft.fftfreq(width, 1 / side)
    frequency = np.sqrt(u[:, None] ** 2 + v**2)
    bound = height * width / 1024
    clean = np.abs(np.fft.fft2(images.double().numpy())).clip(20 * bound, 200 * bound)
    ratio = np.abs(np.fft.fft2(noise.numpy())) / (clean / (np.abs(frequency - 5) + 1) ** 2)
    # Each image's noise is scaled by one number, gamma; what is left is the uniform factor in [0.8, 1.2], mean 1.
    for each in ratio:
        gamma = each.mean()
        assert 0.78 < each.min() / gamma < 0.85
        assert 1.15 < each.max() / gamma < 1.22
        factors = each[:, 1 : height // 2, 1 : width // 2].ravel() / gamma
        assert kstest(factors, "uniform", (0.8, 0.4)).pvalue > 1e-4


def test_power_law_phases_are_uniform() -> None:
    images = torch.full((40, 1, 32, 32), 0.5)
    shift = PowerLaw(8, 4, 1)
    noise = shift.transform(images, shift.draw(Keyed(1, range(40)), Shape(1, 32, 32))) - images
    phases = torch.fft.rfft2(noise.double())[..., 1:16].angle().flatten()
    assert kstest(phases.numpy(), "uniform", (-np.pi, 2 * np.pi)).pvalue > 0.001


@pytest.mark.parametrize("center", [2, 8, 14])
def test_power_law_energy_lies_at_its_centre(center: int) -> None:
    images = random_images(16, 3, 32, 32) * 0.2 + 0.4
    shift = PowerLaw(8, center, 3)
    noise = shift.transform(images, shift.draw(Keyed(2, range(16)), Shape(3, 32, 32))) - images
    profile = radial_profile(amplitude_spectrum(noise)).mean((0, 1))
    assert abs(int(profile.argmax()) - center) <= 1


@pytest.mark.parametrize("size", SIZES)
def test_half_spectra_are_made_those_of_real_images(size: tuple[int, int]) -> None:
    height, width = size
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(2, height, width // 2 + 1, dtype=torch.complex128, generator=generator)
    before = half.clone()
    make_real_(half, width)
    back = torch.fft.rfft2(torch.fft.irfft2(half, s=size))
    assert torch.allclose(back, half, atol=1e-9)
    upper = slice(1, (height + 1) // 2)
    assert torch.equal(half[:, upper], before[:, upper])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("i", "j"), [(0, 0), (3, -2), (-5, 0), (8, 13), (1, 1)])
def test_basis_images_have_two_conjugate_frequencies(size: tuple[int, int], i: int, j: int) -> None:
    wave = fourier_basis(i, j, *size).double()
    assert float(wave.square().sum()) == pytest.approx(1.0, abs=1e-6)
    spectrum = np.abs(np.fft.fft2(wave.numpy()))
    places = {(i % size[0], j % size[1]), (-i % size[0], -j % size[1])}
    found = {(int(row), int(column)) for row, column in np.argwhere(spectrum > 1e-3)}
    assert found == places


def test_basis_noise_is_a_signed_wave_in_every_channel() -> None:
    images = torch.full((200, 3, 32, 32), 0.5)
    shift = FourierBasis(4, 7, eps=4)
    noise = shift.transform(images, shift.draw(Keyed(0, range(200)), Shape(3, 32, 32))) - images
    signs = torch.einsum("nchw,hw->nc", noise, fourier_basis(4, 7, 32, 32))
    assert torch.allclose(signs.abs(), torch.tensor(4.0), atol=1e-4)
    assert len(signs.sign().unique(dim=0)) == 8
    assert 0.4 < float((signs > 0).float().mean()) < 0.6


def test_radial_frequency_counts_cycles_per_side() -> None:
    frequency = radial_frequency(32, 32)
    assert frequency[0, 0] == 0
    assert frequency[3, 4] == 5
    assert frequency[-3, -4] == 5
    assert frequency[16, 0] == 16
    # Four times as high as wide, side 32: four cycles down are as fine as one across.
    oblong = radial_frequency(64, 16)
    assert oblong[4, 0] == oblong[0, 1] == 2


def test_radial_profile_averages_rings() -> None:
    spectrum = radial_frequency(32, 32).round()
    assert torch.allclose(radial_profile(spectrum), torch.arange(17, dtype=torch.float64))
    batch = torch.rand(2, 3, 20, 31)
    ring = radial_frequency(20, 31).round()
    assert radial_profile(batch).shape == (2, 3, 13)
    assert radial_profile(batch)[1, 2, 4].item() == pytest.approx(batch[1, 2][ring == 4].double().mean().item())


def test_the_published_family() -> None:
    family = list(frequency_sets())
    assert len(set(family)) == len(family) == 192
    assert {(each.eps, each.alpha) for each in family} == {(e, a) for e in (8, 10, 12) for a in (0.5, 1, 2, 3)}
    assert {each.center for each in family} == set(range(1, 17))


@pytest.mark.parametrize("shift", [PowerLaw(8, 17, 1), FourierBasis(17, 0), FourierBasis(0, -17)], ids=str)
def test_frequencies_the_image_does_not_have(shift: Shift) -> None:
    with pytest.raises(ConfigurationError, match="32 x 32 pixels have no frequency"):
        shift(torch.zeros(1, 3, 32, 32), [0])
