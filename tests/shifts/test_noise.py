"""Noise: distributions against closed forms and scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts import corruption
from shiftproof.shifts.corruptions.noise import (
    GaussianNoise,
    ImpulseNoise,
    ShotNoise,
    SpeckleNoise,
    alias,
    photon_counts,
)
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.tables import Parameters

NOISES = ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise")
CPU = torch.device("cpu")


def flat(level: int, count: int = 20, side: int = 64) -> Tensor:
    return torch.full((count, 3, side, side), level / 255)


def noisy(
    recipe: GaussianNoise | ShotNoise | ImpulseNoise | SpeckleNoise, images: Tensor, **parameters: float
) -> Tensor:
    p = Parameters(parameters)
    drawn = recipe.sample(Keyed(0, range(len(images))), Shape(*images.shape[1:]), p)
    return recipe.apply(images, drawn, p)


@pytest.mark.parametrize("severity", [0.1, 3.0, 5.0])
@pytest.mark.parametrize("name", NOISES)
def test_an_image_has_the_same_bits_in_any_batch(name: str, severity: float) -> None:
    shift = corruption(name, severity)
    images = torch.rand(64, 3, 33, 29, generator=torch.Generator().manual_seed(0))
    keys, before = torch.arange(200, 264), images.clone()
    together = shift(images, keys)
    for rows in (slice(0, 1), slice(63, 64), slice(5, 12)):
        assert torch.equal(shift(images[rows].clone(), keys[rows]), together[rows])
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    assert torch.equal(shift(images[order], keys[order]), together[order])
    assert torch.equal(images, before)


def test_gaussian_noise_is_normal() -> None:
    difference = noisy(GaussianNoise(), flat(128), sigma=0.2) - flat(128)
    assert stats.kstest(difference.flatten()[:20_000].numpy(), stats.norm(0, 0.2).cdf).pvalue > 1e-3


def test_speckle_noise_is_in_proportion_to_the_value() -> None:
    for level in (0, 51, 255):
        difference = noisy(SpeckleNoise(), flat(level), sigma=0.3) - flat(level)
        assert difference.std().item() == pytest.approx(0.3 * level / 255, rel=0.01)


class TestImpulseNoise:
    def test_salt_and_pepper_are_equally_likely_and_the_rest_is_kept(self) -> None:
        values = noisy(ImpulseNoise(), flat(100), amount=0.2)
        shares = [(values == value).float().mean().item() for value in (0.0, 1.0, flat(100)[0, 0, 0, 0].item())]
        assert shares == pytest.approx([0.1, 0.1, 0.8], abs=0.005)

    def test_channels_are_hit_independently(self) -> None:
        hit = noisy(ImpulseNoise(), flat(100), amount=0.2) != flat(100)
        assert (hit[:, 0] & hit[:, 1]).float().mean().item() == pytest.approx(0.04, abs=0.005)


def outcome_chances(photons: float) -> tuple[NDArray[np.float64], float]:
    """Return what the tables of shot noise say: the chance of every outcome at every level, and an outcome's value."""
    table = photon_counts(photons, CPU)
    entries = table.entries.view(256, table.columns).double().numpy()
    other = np.floor(entries).astype(int)
    own = entries - other
    chances = own / table.columns
    for column in range(table.columns):
        np.add.at(chances, (np.arange(256), other[:, column]), (1 - own[:, column]) / table.columns)
    return chances, table.value


class TestShotNoise:
    @pytest.mark.parametrize("photons", [3.0, 7.3, 12.0, 60.0, 255.0])
    def test_tables_hold_poisson_distributions(self, photons: float) -> None:
        chances, value = outcome_chances(photons)
        assert value == pytest.approx(1 / photons)
        white = int(np.ceil(photons))
        rates = np.arange(256)[:, None] / 255 * photons
        expected = stats.poisson.pmf(np.arange(white), rates)
        np.testing.assert_allclose(chances[:, :white], expected, atol=1e-6)
        np.testing.assert_allclose(chances[:, white], stats.poisson.sf(white - 1, rates[:, 0]), atol=1e-6)

    @pytest.mark.parametrize("photons", [500.0, 50_000.0])
    def test_many_photons_are_told_apart_by_grey_level(self, photons: float) -> None:
        chances, value = outcome_chances(photons)
        assert value == pytest.approx(1 / 255)
        for level in (0, 17, 200):
            counts = np.arange(int(2 * photons))
            stored = np.minimum(np.floor(255 * counts / photons + 1e-9), 255).astype(int)
            expected = np.bincount(stored, stats.poisson.pmf(counts, level / 255 * photons), minlength=256)
            np.testing.assert_allclose(chances[level], expected, atol=1e-6)

    @pytest.mark.parametrize("level", [0, 64, 255])
    def test_draws_are_poisson(self, level: int) -> None:
        counts = (noisy(ShotNoise(), flat(level), photons=12.0) * 12).round().long()
        rate = level / 255 * 12
        expected = stats.poisson.pmf(np.arange(12), rate)
        found = torch.bincount(counts.flatten(), minlength=13)[:12] / counts.numel()
        np.testing.assert_allclose(found.numpy(), expected, atol=5 * np.sqrt(0.25 / counts.numel()))

    def test_values_between_levels_count_as_the_nearest(self) -> None:
        images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
        nearest = (images * 255).round() / 255
        assert torch.equal(noisy(ShotNoise(), images, photons=40.0), noisy(ShotNoise(), nearest, photons=40.0))

    def test_neighbouring_values_are_independent(self) -> None:
        values = noisy(ShotNoise(), flat(128), photons=12.0) - 128 / 255
        variance = values.square().mean()
        for shifted in (values.roll(1, 1), values.roll(1, 3), values.roll(1, 2)):
            assert abs((values * shifted).mean() / variance) < 0.02


@given(st.integers(1, 17), st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_alias_tables_keep_every_distribution(columns: int, seed: int) -> None:
    chances = np.random.default_rng(seed).dirichlet(np.full(columns, 0.2), size=5)
    own, other = alias(chances)
    kept = own.copy()
    for column in range(columns):
        np.add.at(kept, (np.arange(5), other[:, column]), 1 - own[:, column])
    np.testing.assert_allclose(kept / columns, chances, atol=1e-12)
    assert (own >= 0).all()
    assert (own <= 1 + 1e-12).all()
