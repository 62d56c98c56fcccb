"""Random fields against numpy's Fourier transform, Perlin's definition and their closed forms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts.corruptions.bar_noise import PerlinNoise
from shiftproof.shifts.fields import (
    Gradients,
    direction,
    image_side,
    perlin,
    pixel_axes,
    radial_frequency,
    random_phase_field,
    random_points,
    turbulence,
)
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.tables import Parameters


def phases(count: int, height: int, width: int) -> Tensor:
    return Keyed(0, range(count)).uniform(0, 2 * math.pi, (height * width // 2,))


def tables(count: int) -> Gradients:
    return PerlinNoise().sample(Keyed(0, range(count)), Shape(3, 32, 32), Parameters())


def test_a_square_is_its_own_side_and_axes_broadcast_to_the_pixels() -> None:
    assert image_side(32, 32) == 32
    assert image_side(16, 64) == 32
    rows, columns = pixel_axes(torch.zeros(5, 3, 4, 6))
    assert (rows + columns).shape == (4, 6)
    assert (rows * 6 + columns).flatten().tolist() == list(range(24))


def test_points_fill_what_the_margin_leaves() -> None:
    points = random_points(Keyed(0, range(2000)), Shape(3, 40, 80), 3, margin=0.25)
    assert points.shape == (2000, 3, 2)
    low, high = points.flatten(0, 1).aminmax(dim=0)
    torch.testing.assert_close(low, torch.tensor([10.0, 20.0]), atol=0.2, rtol=0)
    torch.testing.assert_close(high, torch.tensor([30.0, 60.0]), atol=0.2, rtol=0)


def test_directions_do_not_depend_on_their_place_in_memory() -> None:
    generator = torch.Generator().manual_seed(0)
    down, across = torch.randn(2, 1003, generator=generator)
    together = direction(down, across)
    torch.testing.assert_close(together, torch.atan2(across, down), atol=1e-6, rtol=0)
    assert torch.equal(torch.cat([direction(down[i : i + 1], across[i : i + 1]) for i in range(1003)]), together)


class TestRandomPhaseField:
    @pytest.mark.parametrize(("height", "width"), [(8, 8), (32, 32), (12, 20)])
    def test_is_the_published_generator_for_even_sides(self, height: int, width: int) -> None:
        """Phases of the left half of a spectrum centred on zero, repeated upside down on the right."""
        left = np.random.default_rng(0).uniform(0, 2 * np.pi, (height, width // 2))
        centred = np.concatenate([left, left[::-1, ::-1]], axis=1)
        frequency = [np.arange(side) - side / 2 for side in (height, width)]
        amplitude = 1 / (frequency[0][:, None] ** 2 + frequency[1] ** 2 + 1)
        spectrum = np.fft.ifftshift(amplitude * np.exp(1j * centred))
        expected = np.fft.ifft2(spectrum).real
        expected /= expected.std()

        ours = np.fft.ifftshift(centred).reshape(1, -1)[:, : height * width // 2]
        half = np.fft.ifftshift(amplitude)[:, : width // 2 + 1]
        field = random_phase_field(torch.from_numpy(ours.copy()).float(), torch.from_numpy(half.copy()), height, width)
        np.testing.assert_allclose(field[0].numpy(), expected, atol=2e-5)

    @pytest.mark.parametrize(("height", "width"), [(9, 9), (9, 12), (12, 9)])
    def test_is_the_real_part_of_the_transform_for_odd_sides(self, height: int, width: int) -> None:
        half = phases(1, height, width)
        full = torch.cat([half, torch.zeros(1, height * width % 2), half.flip(1)], dim=1).view(height, width)
        down, across = (
            torch.fft.fftfreq(side, 1 / math.sqrt(height * width), dtype=torch.float64) for side in full.shape
        )
        radius = torch.hypot(down[:, None], across)
        expected = torch.fft.ifft2(torch.polar(radius, full.double())).real
        field = random_phase_field(half, radial_frequency(height, width, torch.device("cpu")), height, width)
        torch.testing.assert_close(field[0], (expected / expected.std(correction=0)).float(), atol=2e-5, rtol=0)

    def test_has_unit_deviation_and_the_spectrum_asked_for(self) -> None:
        radius = radial_frequency(32, 32, torch.device("cpu"))
        blue = random_phase_field(phases(200, 32, 32), radius, 32, 32)
        torch.testing.assert_close(blue.std((1, 2), correction=0), torch.ones(200), atol=1e-5, rtol=0)
        power = torch.fft.rfft2(blue).abs().square().mean(0)
        heard = (radius > 2) & (radius < 16)
        ratio = (power / radius.square().float())[heard]
        assert ratio.std() / ratio.mean() < 0.15

    def test_rounding_hides_the_batch(self) -> None:
        drawn = phases(33, 32, 32)
        radius = radial_frequency(32, 32, torch.device("cpu"))
        together = random_phase_field(drawn, radius, 32, 32)
        for row in range(33):
            assert torch.equal(random_phase_field(drawn[row : row + 1], radius, 32, 32), together[row : row + 1])


class TestPerlin:
    @pytest.mark.parametrize("frequency", [1 / 4.57, 0.35, 1.75])
    def test_is_the_smooth_mean_of_gradients(self, frequency: float) -> None:
        gradients = tables(2)
        noise = perlin(gradients, 9, 13, frequency)
        for image, row, column in itertools.product(range(2), range(9), range(13)):
            order, directions = (table[image].double().numpy() for table in gradients)
            y, x = row * frequency, column * frequency
            total = 0.0
            for i, j in itertools.product((int(y), int(y) + 1), (int(x), int(x) + 1)):
                gradient = directions[int(order[int(order[i % 256] + j) % 256])]
                share = math.prod(1 - 3 * abs(d) ** 2 + 2 * abs(d) ** 3 for d in (y - i, x - j))
                total += share * float(gradient @ (y - i, x - j))
            assert noise[image, row, column].item() == pytest.approx(1.5 * total, abs=2e-6)

    def test_vanishes_at_lattice_points_and_turbulence_adds_octaves(self) -> None:
        gradients = tables(3)
        noise = perlin(gradients, 17, 17, 0.25)
        assert noise[:, ::4, ::4].abs().max() == 0
        assert noise.abs().max() > 0.3
        octaves = [perlin(gradients, 17, 17, 0.25 * 2**k).abs() / 2**k for k in range(3)]
        torch.testing.assert_close(turbulence(gradients, 17, 17, cell=4.0, octaves=3), sum(octaves), atol=1e-6, rtol=0)

    def test_tables_are_permutations_and_unit_vectors(self) -> None:
        order, directions = tables(4)
        assert torch.equal(order.sort(dim=1).values, torch.arange(256).expand(4, -1))
        torch.testing.assert_close(directions.square().sum(2), torch.ones(4, 256), atol=1e-6, rtol=0)
