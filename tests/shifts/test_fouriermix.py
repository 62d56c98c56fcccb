"""FourierMix: the distributions of its perturbations, a real result, and the same change at all frequencies."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from shiftproof import load_data
from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.shifts.augment.framing import PadCrop
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.spectral.fouriermix import AMPLITUDES, PHASES, FourierMix, multiplier, truncated_normal_
from shiftproof.shifts.spectral.waves import amplitude_spectrum, radial_profile
from tests.shifts.batches import assert_same_bits_in_any_batch, random_images

KEYS = torch.arange(300)


def drawn(shift=None, shape=(1, 16, 16), keys=KEYS):
    return (shift or FourierMix()).draw(Keyed(0, keys).fork("test"), Shape(*shape))


def test_amplitude_factors_are_uniform_at_one_of_five_severities():
    factor = drawn().factor
    reach = (factor - 1).abs().flatten(2).amax(2)  # of 144 draws: close below the severity
    severities = torch.tensor(AMPLITUDES)
    chosen = (severities < reach[..., None] - 1e-6).sum(2)  # the smallest that reaches as far
    counts = torch.bincount(chosen.flatten(), minlength=5)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    for place, severity in enumerate(AMPLITUDES):
        values = factor[chosen == place].flatten().double().numpy()
        assert stats.kstest(values, stats.uniform(1 - severity, 2 * severity).cdf).pvalue > 1e-3


@pytest.mark.parametrize("limit", [math.pi / 12, math.pi / 4, 3 * math.pi / 4, 20.0])
def test_phase_noise_is_a_truncated_gaussian(limit):
    unit = Keyed(1, torch.arange(50)).uniform(shape=(400,)).double()
    noise = truncated_normal_(unit, torch.tensor(limit, dtype=torch.float64), 5.0).flatten()
    assert noise.abs().max() <= limit
    truncated = stats.truncnorm(-limit / 5.0, limit / 5.0, scale=5.0)
    assert stats.kstest(noise.numpy(), truncated.cdf).pvalue > 1e-3


@pytest.mark.parametrize("preset", ["cifar", "imagenet"])
def test_phases_stay_within_their_severities(preset):
    reach = drawn(FourierMix(preset=preset)).phase.abs().flatten(2).amax(2)
    assert reach.max() <= PHASES[preset][-1]
    assert reach.min() <= PHASES[preset][0]
    assert reach.max() > 0.95 * PHASES[preset][-1]


def test_weights_are_dirichlet_and_beta():
    draws = drawn(keys=torch.arange(4000))
    total = draws.spectral + draws.moved
    assert torch.allclose(total.sum(1) + draws.kept, torch.ones(4000), atol=1e-5)
    share = (total / total.sum(1, keepdim=True))[:, 0].double().numpy()
    assert stats.kstest(share, stats.beta(1, 2).cdf).pvalue > 1e-3  # one of three under Dirichlet(1, 1, 1)
    assert stats.kstest((draws.spectral / total)[:, 1].double().numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(draws.kept.double().numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("size", [(16, 16), (15, 16), (16, 15), (9, 11)])
def test_the_perturbed_spectrum_is_that_of_a_real_image(size):
    draws = drawn(shape=(3, *size), keys=torch.arange(4))
    half = multiplier(draws, size[1]).numpy()
    image = np.random.default_rng(0).random((4, 3, *size))
    spectrum = np.fft.rfft2(image) * half
    whole = np.fft.rfft2(np.fft.irfft2(spectrum, s=size))
    assert np.allclose(whole, spectrum)  # nothing of it is lost, as it would be if it were not symmetric
    plain = draws._replace(factor=torch.ones_like(draws.factor), phase=torch.zeros_like(draws.phase))
    assert np.allclose(multiplier(plain, size[1]), draws.spectral.sum(1)[:, None, None, None])


def test_one_branch_against_numpy():
    (image,) = random_images(1, 1, 16, 16).double()
    draws = drawn(FourierMix(branches=1), keys=torch.arange(1))
    only = draws._replace(spectral=torch.ones(1, 1), moved=torch.zeros(1, 1), kept=torch.zeros(1))
    found = FourierMix(branches=1).transform(image[None].float(), only)
    spectrum = np.fft.fft2(image[0].numpy())
    half = spectrum[:, :9].copy()
    factor, phase = draws.factor[0, 0, 0].double().numpy(), draws.phase[0, 0, 0].double().numpy().copy()
    phase[[0, 0, 8, 8], [0, 8, 0, 8]] = 0.0
    half *= factor * np.exp(1j * phase)
    whole = np.zeros((16, 16), complex)
    whole[:, :9] = half
    for row in range(16):
        for column in range(16):
            mirrored = (-row % 16, -column % 16)
            if column > 8 or (column in (0, 8) and row > 8):
                whole[row, column] = whole[mirrored].conj()
    assert np.allclose(np.fft.ifft2(whole).imag, 0, atol=1e-12)
    assert np.allclose(found[0, 0], np.fft.ifft2(whole).real, atol=1e-5)


def test_the_share_of_change_is_flat_over_frequency_unlike_that_of_noise():
    (batch,) = load_data("demo").subset(range(100)).batches(100)
    before = amplitude_spectrum(batch.inputs)

    def profile(images):
        change = radial_profile((amplitude_spectrum(images) - before).abs().mean(0)) / radial_profile(before.mean(0))
        return change.mean(0)[1:]  # the mean colour aside

    draws = FourierMix(branches=1).draw(Keyed(0, batch.keys).fork("fouriermix"), Shape(3, 32, 32))
    spectral = draws._replace(spectral=torch.ones(100, 1), moved=torch.zeros(100, 1), kept=torch.zeros(100))
    mixed = profile(FourierMix(branches=1).transform(batch.inputs, spectral))
    noise = torch.randn(batch.inputs.shape, generator=torch.Generator().manual_seed(0))
    noisy = profile(batch.inputs + 0.1 * noise)
    assert mixed.max() / mixed.min() < 1.3
    assert noisy[-4:].mean() / noisy[:2].mean() > 5


def test_one_image_is_the_same_in_any_batch():
    assert_same_bits_in_any_batch(FourierMix(), random_images(20, 3, 16, 17))
    assert_same_bits_in_any_batch(PadCrop(), random_images(20, 1, 16, 17))


def test_pad_crop_moves_by_whole_pixels_and_mirrors_half():
    images = random_images(60, 3, 16, 16)
    shift = PadCrop()
    moved = shift(images, torch.arange(60), seed=2)
    mirrored, down, right = shift.draw(Keyed(2, torch.arange(60)).fork("pad_crop"), Shape(3, 16, 16))
    assert 0.3 < mirrored.float().mean() < 0.7
    assert down.abs().max() == right.abs().max() == 2
    for image, made, flip, y, x in zip(images, moved, mirrored.tolist(), down.tolist(), right.tolist(), strict=True):
        padded = torch.nn.functional.pad(image.flip(2) if flip else image, (2, 2, 2, 2))
        assert torch.equal(made, padded[:, 2 - y : 18 - y, 2 - x : 18 - x])


def test_parameters_are_checked():
    with pytest.raises(ConfigurationError, match="a whole number from 1 to 8"):
        FourierMix(branches=0)
    with pytest.raises(ConfigurationError, match="did you mean  imagenet"):
        FourierMix(preset="imagnet")
    with pytest.raises(ConfigurationError, match="a number from 0 to 1"):
        PadCrop(pad=2)
