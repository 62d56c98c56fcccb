"""C-bar corruptions against scipy, scikit-image, pixel-by-pixel definitions and closed forms.

What every shift must hold is in `test_contract`; here is what each of these is.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage
from scipy.special import ndtr
from torch import Tensor

from shiftproof.keyed import Keyed
from shiftproof.shifts import corruption, facts, names
from shiftproof.shifts.corruptions.bar_blur import CircularMotionBlur, TransverseChromaticAbberation
from shiftproof.shifts.corruptions.bar_noise import (
    BrownishNoise,
    CocentricSineWaves,
    PerlinNoise,
    PlaneWave,
    PlasmaNoise,
    Rings,
    SingleFrequencyGreyscale,
)
from shiftproof.shifts.corruptions.bar_overlay import (
    BlueNoiseSample,
    Board,
    CheckerboardCutout,
    InverseSparkles,
    Lines,
    Sparkles,
    Stars,
    Strokes,
)
from shiftproof.shifts.corruptions.bar_warp import CausticRefraction, PinchAndTwirl, Ripple, Water, Waves, sample_at
from shiftproof.shifts.fields import turbulence
from shiftproof.shifts.image_shift import Shape
from shiftproof.shifts.tables import Parameters
from tests.shifts.batches import assert_same_bits_in_any_batch, random_images

line_aa = pytest.importorskip("skimage.draw", reason="scikit-image is the reference").line_aa

Plane = NDArray[np.float64]
SIZES = pytest.mark.parametrize(("height", "width"), [(32, 32), (20, 33)])


def rng(count: int) -> Keyed:
    return Keyed(0, range(count))


def planes(images: Tensor) -> list[Plane]:
    """All channels of all images, one after another, as numpy sees them."""
    return [plane.double().numpy() for plane in images.flatten(0, 1)]


def grid(height: int, width: int) -> tuple[Plane, Plane]:
    rows, columns = np.mgrid[:height, :width].astype(np.float64)
    return rows, columns


@pytest.mark.parametrize("name", names("bar"))
@pytest.mark.parametrize("shape", [(3, 33, 24), (1, 9, 8)])
def test_same_bits_in_any_batch(name: str, shape: tuple[int, int, int]) -> None:
    assert_same_bits_in_any_batch(corruption(name, 3.3), random_images(15, *shape))


def test_the_family_is_the_published_twenty() -> None:
    published = [preset for name in names("bar") for preset in facts(name)["published"]]
    assert len(names("bar")) == 15
    assert published.count("imagenet") == published.count("cifar") == 10


@pytest.mark.parametrize("name", names("bar"))
def test_little_severity_changes_little(name: str) -> None:
    images = random_images(8, 3, 32, 32)
    change = (corruption(name, 1e-6)(images, range(8)) - images).abs()
    assert change.mean() * 255 < 0.05


class TestNoise:
    def test_single_frequency_is_a_plane_wave(self) -> None:
        images = random_images(4, 3, 20, 33)
        p = Parameters(strength=2.0)
        wave = SingleFrequencyGreyscale().sample(rng(4), Shape(3, 20, 33), p)
        rows, columns = grid(20, 33)
        for image, frequency, phase, out in zip(
            images, *wave, SingleFrequencyGreyscale().apply(images, wave, p), strict=True
        ):
            field = np.sin(rows * frequency[0].item() + columns * frequency[1].item() + phase.item())
            expected = image.double().numpy() + 0.2 * 196 / 255 * field
            np.testing.assert_allclose(out.numpy(), expected, atol=2e-5)

    def test_one_frequency_is_uniform_and_bounds_the_other(self) -> None:
        wave = SingleFrequencyGreyscale().sample(rng(4000), Shape(3, 32, 32), Parameters())
        assert isinstance(wave, PlaneWave)
        small, large = wave.frequency.abs().sort(dim=1).values.T
        assert large.mean() == pytest.approx(math.pi / 2, rel=0.03)
        assert (small / large).mean() == pytest.approx(0.5, rel=0.03)
        assert (wave.frequency[:, 0].abs() == large).float().mean() == pytest.approx(0.5, abs=0.03)

    def test_sine_waves_are_saw_toothed_rings(self) -> None:
        images = random_images(1, 1, 24, 24)
        rings = Rings(*(torch.tensor([value]) for value in ([7.3, 15.1], 3.5, 2.0, 4.0)))
        out = CocentricSineWaves().apply(images, rings, Parameters(strength=10.0))
        rows, columns = grid(24, 24)
        angle = np.arctan2(columns - 15.1, rows - 7.3)
        position = (np.hypot(columns - 15.1, rows - 7.3) + 2 * np.sin(3.5 * angle)) / 4
        # Away from the step between two rings, which rounding may put on either side.
        smooth = np.abs(position - position.round()) > 1e-4
        expected = images[0, 0].numpy() + (position % 1 - 0.5) * 128 / 255
        np.testing.assert_allclose(out[0, 0].numpy()[smooth], expected[smooth], atol=1e-5)

    def test_plasma_folds_the_plane(self) -> None:
        images = random_images(6, 3, 32, 32)
        p = Parameters(strength=7.0)
        plasma = PlasmaNoise().sample(rng(6), Shape(3, 32, 32), p)
        assert set(plasma.folds.tolist()) <= {4, 5, 6}
        share = 0.7 * 64 / 255
        for image, time, folds, sharpness, scale, out in zip(
            images, *plasma, PlasmaNoise().apply(images, plasma, p), strict=True
        ):
            y, x = (axis / scale.item() for axis in grid(32, 32))
            t = time.item()
            for fold in range(int(folds)):
                angle, size = t / 1.15**fold, (2.25 - sharpness.item()) ** fold
                u, v = np.cos(y * 1.93**fold + angle) / size, np.sin(x * 1.93**fold + angle) / size
                x, y = x + u - 0.3 * v, y + v + 0.3 * u
            noise = np.stack([np.sin(x - t), np.sin((x + y + math.sin(t)) / 2), np.sin(y + t)])
            np.testing.assert_allclose(out.numpy(), (1 - share) * image.numpy() + share * noise, atol=1e-4)

    def test_perlin_noise_is_half_turbulence_at_full_strength(self) -> None:
        images = random_images(2, 3, 32, 32)
        gradients = PerlinNoise().sample(rng(2), Shape(3, 32, 32), Parameters())
        out = PerlinNoise().apply(images, gradients, Parameters(strength=10.0))
        cloud = (0.5 + 0.5 * turbulence(gradients, 32, 32, 32 * 32 / 224, 5)).clamp(max=1)
        torch.testing.assert_close(out, 0.5 * images + 0.5 * cloud[:, None], atol=1e-6, rtol=0)
        assert 0.6 < cloud.mean() < 0.8

    def test_brownish_noise_has_its_deviation_in_every_channel(self) -> None:
        p = Parameters(strength=5.0)
        phases = BrownishNoise().sample(rng(30), Shape(3, 32, 32), p)
        noise = BrownishNoise().apply(torch.zeros(30, 3, 32, 32), phases, p)
        torch.testing.assert_close(noise.std((2, 3), correction=0), torch.full((30, 3), 32 / 255), atol=1e-5, rtol=0)
        assert abs(np.corrcoef(noise.mean((2, 3)).T.numpy())[0, 1]) < 0.5
        power = torch.fft.rfft2(noise).abs().square().mean((0, 1))
        assert power[:4, :4].sum() > 20 * power[8:24, 8:].sum()


class TestOverlays:
    @staticmethod
    def light(row: int, column: int, centre: Tensor, rays: int, lengths: list[float], power: float) -> float:
        """Share of a star at one pixel, by its definition."""
        down, across = row - centre[0].item(), column - centre[1].item()
        position = (math.atan2(across, down) + math.pi) / (2 * math.pi) * rays
        ray, beyond = int(position), position - int(position)
        length = (1 - beyond) * lengths[ray % rays] + beyond * lengths[(ray + 1) % rays]
        light: float = (length**2 / (down**2 + across**2 + 1e-4)) ** power
        return min((1 - (beyond - 0.5) ** 2) * light, 1.0)

    def test_sparkles_cover_what_the_stars_before_them_leave(self) -> None:
        images = random_images(2, 3, 16, 16)
        p = Parameters(strength=8.0, opacity=1.0)
        stars = Sparkles().sample(rng(2), Shape(3, 16, 16), p)
        out = Sparkles().apply(images, stars, p)
        radius = 0.08 * 16
        for image, row, column in itertools.product(range(2), range(16), range(16)):
            value = images[image, :, row, column].double()
            for centre, rays, jitter in zip(*(part[image] for part in stars), strict=True):
                lengths = [max(1.0, radius * (1 + 0.25 * j)) for j in jitter.tolist()]
                value = value + self.light(row, column, centre, int(rays), lengths, 1.0) * (1 - value)
            torch.testing.assert_close(out[image, :, row, column].double(), value, atol=2e-4, rtol=0)

    def test_inverse_sparkles_leave_a_star(self) -> None:
        images = random_images(2, 1, 16, 16)
        p = Parameters(strength=4.0, opacity=1.0)
        stars = InverseSparkles().sample(rng(2), Shape(1, 16, 16), p)
        out = InverseSparkles().apply(images, stars, p)
        for image, row, column in itertools.product(range(2), range(16), range(16)):
            lengths = [4 * (1 + 0.25 * j) for j in stars.jitter[image, 0].tolist()]
            centre, rays = stars.centre[image, 0], int(stars.rays[image, 0])
            kept = self.light(row, column, centre, rays, lengths, power=65 * 0.4 / 50)
            expected = 1 + kept * (images[image, 0, row, column].item() - 1)
            assert out[image, 0, row, column].item() == pytest.approx(expected, abs=2e-4)

    def test_stars_have_fifty_to_199_rays(self) -> None:
        stars = Sparkles().sample(rng(2000), Shape(3, 32, 32), Parameters(strength=1.0, opacity=1.0))
        assert isinstance(stars, Stars)
        assert set(stars.rays.flatten().tolist()) == set(range(50, 200))
        assert stars.centre.shape == (2000, 5, 2)

    def test_opacity_fades_a_star(self) -> None:
        images = random_images(2, 3, 16, 16)
        for recipe in (Sparkles(), InverseSparkles()):
            stars = recipe.sample(rng(2), Shape(3, 16, 16), Parameters())
            none, half, full = (
                recipe.apply(images, stars, Parameters(strength=5.0, opacity=opacity)) for opacity in (0.0, 0.5, 1.0)
            )
            torch.testing.assert_close(none, images, atol=1e-6, rtol=0)
            assert (half >= images - 1e-6).all()
            assert (full >= half - 1e-6).all()
            assert full.mean() > half.mean() > images.mean()

    @pytest.mark.parametrize("strength", [0.7, 4.2])
    def test_blue_noise_blackens_what_is_below_the_threshold(self, strength: float) -> None:
        p = Parameters(strength=strength)
        phases = BlueNoiseSample().sample(rng(200), Shape(3, 32, 32), p)
        images = torch.rand(200, 3, 32, 32, generator=torch.Generator().manual_seed(0)).clamp_min(0.1)
        out = BlueNoiseSample().apply(images, phases, p)
        black = out == 0
        assert torch.equal(black.any(1), black.all(1))
        assert torch.equal(out[~black], images[~black])
        assert black.float().mean() == pytest.approx(ndtr(0.3 * strength - 2.5), rel=0.05)

    @SIZES
    def test_checkerboard_covers_open_black_squares(self, height: int, width: int) -> None:
        images = random_images(3, 3, height, width)
        p = Parameters(strength=6.0)
        board = CheckerboardCutout().sample(rng(3), Shape(3, height, width), p)
        assert isinstance(board, Board)
        out = CheckerboardCutout().apply(images, board, p)
        agreed = 0
        for image, row, column in itertools.product(range(3), range(height), range(width)):
            angle, square = board.angle[image].item(), board.square[image].item()
            u = (math.cos(angle) * row + math.sin(angle) * column) / square
            v = (math.cos(angle) * column - math.sin(angle) * row) / square
            black = math.floor(u) % 2 == math.floor(v) % 2
            covered = black and board.chance[image, int(u) % 40, int(v) % 40].item() < 0.6
            expected = torch.full((3,), 128 / 255) if covered else images[image, :, row, column]
            agreed += torch.equal(out[image, :, row, column], expected)
        # The line between two squares may go through a pixel, which rounding puts on either side: the origin does.
        assert agreed >= 3 * height * width - 3

    def test_checkerboard_covers_half_its_strength(self) -> None:
        p = Parameters(strength=5.0)
        board = CheckerboardCutout().sample(rng(400), Shape(1, 32, 32), p)
        covered = CheckerboardCutout().apply(torch.zeros(400, 1, 32, 32), board, p) > 0
        assert covered.float().mean() == pytest.approx(0.25, rel=0.05)

    def test_lines_are_those_of_scikit_image(self) -> None:
        images = random_images(6, 3, 32, 32)
        p = Parameters(strength=2.5)
        strokes = Lines().sample(rng(6), Shape(3, 32, 32), p)
        assert strokes.angle.shape == (6, 8)
        out = Lines().apply(images, strokes, p).double().numpy() * 255
        for levels, middles, angles, found in zip(images.double().numpy() * 255, *strokes, out, strict=True):
            expected = levels.copy()
            for middle, angle in zip(middles.tolist(), angles.tolist(), strict=True):
                half = 32 * math.cos(angle), 32 * math.sin(angle)
                ends = [int(m + sign * h) for sign in (-1, 1) for m, h in zip(middle, half, strict=True)]
                rows, columns, share = line_aa(*ends)
                inside = (rows >= 0) & (columns >= 0) & (rows < 32) & (columns < 32)
                rows, columns, share = rows[inside], columns[inside], share[inside]
                expected[:, rows, columns] += share * (128 - expected[:, rows, columns])
            difference = np.abs(found - expected)
            assert difference.mean() < 0.05  # an end may have one pixel more or less
            assert np.quantile(difference, 0.99) < 0.01

    def test_no_lines_leave_the_image(self) -> None:
        images = random_images(2, 3, 16, 16)
        strokes = Lines().sample(rng(2), Shape(3, 16, 16), Parameters(strength=0.1))
        assert isinstance(strokes, Strokes)
        assert strokes.angle.shape == (2, 0)
        torch.testing.assert_close(Lines().apply(images, strokes, Parameters(strength=0.1)), images, atol=1e-6, rtol=0)


class TestWarps:
    @SIZES
    def test_sampling_is_bilinear_and_black_outside(self, height: int, width: int) -> None:
        images = random_images(2, 3, height, width)
        generator = torch.Generator().manual_seed(0)
        rows = torch.rand(2, height, width, generator=generator) * (height + 4) - 2
        columns = torch.rand(2, height, width, generator=generator) * (width + 4) - 2
        out = sample_at(images, rows, columns)
        for image, at, found in zip(images.numpy(), torch.stack([rows, columns], dim=1).numpy(), out, strict=True):
            for plane, values in zip(image, found, strict=True):
                expected = ndimage.map_coordinates(plane, at, order=1, mode="grid-constant")
                np.testing.assert_allclose(values.numpy(), expected, atol=2e-5)

    @pytest.mark.parametrize(("side", "whirls"), [(32, 3), (44, 5)])
    def test_pinch_and_twirl_one_disc_after_another(self, side: int, whirls: int) -> None:
        images = random_images(2, 1, side, side)
        p = Parameters(strength=8.0, pinch=0.1, whirls=float(whirls))
        senses = PinchAndTwirl().sample(rng(2), Shape(1, side, side), p)
        assert set(senses.flatten().tolist()) == {-1.0, 1.0}
        out = PinchAndTwirl().apply(images, senses, p)
        cell = side // whirls
        rows, columns = grid(side, side)
        for expected, sense, found in zip(planes(images), senses.numpy(), planes(out), strict=True):
            # As published: each disc reads the array that the discs before it have written.
            for across, down in itertools.product(range(whirls), range(whirls)):
                part = np.s_[down * cell : (down + 1) * cell, across * cell : (across + 1) * cell]
                y, x = rows[part] - (down + 0.5) * cell, columns[part] - (across + 0.5) * cell
                share = np.hypot(y, x) / (cell / 2)
                moved = (share <= 1) & (share > 0)
                share = np.where(moved, share, 1.0)
                stretch = np.sin(np.pi / 2 * share) ** -(0.8 * 0.4 + 0.1)
                angle = sense[down, across] * 0.8 * np.pi / 2 * (1 - share) ** 2
                at = [
                    (down + 0.5) * cell + stretch * (y * np.cos(angle) - x * np.sin(angle)),
                    (across + 0.5) * cell + stretch * (y * np.sin(angle) + x * np.cos(angle)),
                ]
                expected[part] = ndimage.map_coordinates(expected, at, order=1, mode="grid-constant")
            np.testing.assert_allclose(found, expected, atol=2e-5)

    @SIZES
    def test_ripple_moves_rows_and_columns_in_waves(self, height: int, width: int) -> None:
        images = random_images(2, 1, height, width)
        p = Parameters(strength=6.0)
        waves = Ripple().sample(rng(2), Shape(1, height, width), p)
        assert isinstance(waves, Waves)
        side = math.sqrt(height * width)
        assert 0.1 * side <= waves.wavelength.min() <= waves.wavelength.max() <= 0.3 * side
        out = Ripple().apply(images, waves, p)
        for plane, wavelength, phase, found in zip(planes(images), *waves, planes(out), strict=True):
            at = [
                axis + 0.6 * 0.025 * side * np.sin(2 * np.pi * axis / length + start)
                for axis, length, start in zip(grid(height, width), wavelength.tolist(), phase.tolist(), strict=True)
            ]
            expected = ndimage.map_coordinates(plane, at, order=1, mode="grid-constant")
            np.testing.assert_allclose(found, expected, atol=5e-5)

    def test_caustics_refract_by_snells_law(self) -> None:
        images = random_images(2, 1, 40, 40)
        p = Parameters(strength=6.0)
        water = CausticRefraction().sample(rng(2), Shape(1, 40, 40), p)
        assert isinstance(water, Water)
        out = CausticRefraction().apply(images, water, p)
        for plane, time, size, found in zip(planes(images), *(v.tolist() for v in water), planes(out), strict=True):
            light = np.pad(ndimage.gaussian_filter(self.caustics(time, size), 1.0), 1)
            slope = np.stack([light[2:, 1:-1] - light[:-2, 1:-1], light[1:-1, 2:] - light[1:-1, :-2]])
            normal = np.stack([*slope, np.ones((40, 40))]) / np.sqrt(1 + (slope**2).sum(0))
            # Leave at the angle of sine sin(a) / 4 from the normal, in the plane of the normal and the vertical.
            angle = np.arccos(normal[2])
            level = normal[:2] / np.maximum(np.hypot(*normal[:2]), 1e-30)
            shift = level * np.sin(angle - np.arcsin(np.sin(angle) / 4)) * 0.6 * 20
            shift[:, normal[2] >= 0.999] = 0
            at = np.stack(grid(40, 40)) + shift
            seen = ndimage.map_coordinates(plane, at, order=1, mode="grid-constant")
            expected = seen + (slope[0] - slope[1]) * 0.6 * 2
            # Where the ray begins to bend, rounding decides whether it does.
            settled = np.abs(normal[2] - 0.999) > 1e-5
            np.testing.assert_allclose(found[settled], expected[settled], atol=2e-3)
            assert np.abs(shift).max() > 1

    @staticmethod
    def caustics(time: float, size: float) -> Plane:
        p = [axis / size % 1 * 2 * np.pi - 250 for axis in grid(40, 40)]
        i, total = p, np.ones((40, 40))
        for n in range(1, 6):
            t = time * (1 - 3.5 / n)
            i = [
                p[0] + np.cos(t - i[0]) + np.sin(t + i[1]),
                p[1] + np.sin(t - i[1]) + np.cos(t + i[0]),
            ]
            total += 1 / (0.005 * np.hypot(p[0] / np.sin(i[0] + t), p[1] / np.cos(i[1] + t)))
        light: Plane = np.abs(1.17 - (total / 5) ** 1.4) ** 8
        return np.clip(light, 0, 1)


class TestBlurs:
    @SIZES
    def test_circular_blur_is_the_mean_of_scipys_rotations(self, height: int, width: int) -> None:
        images = random_images(2, 1, height, width)
        out = CircularMotionBlur().apply(images, None, Parameters(strength=5.0, outside=1.0))
        moments = np.linspace(-1, 1, 21)
        weights = np.exp(-2 * moments**2)
        for plane, found in zip(planes(images), planes(out), strict=True):
            exposures = [ndimage.rotate(plane, 7.5 * moment, reshape=False) for moment in moments]
            np.testing.assert_allclose(found, np.average(exposures, axis=0, weights=weights), atol=5e-6)

    @SIZES
    @pytest.mark.parametrize("strength", [1.0, 10.0])
    def test_aberration_is_scipys_zoom_per_channel(self, height: int, width: int, strength: float) -> None:
        images = random_images(4, 3, height, width)
        p = Parameters(strength=strength, softness=1.0)
        ranks = TransverseChromaticAbberation().sample(rng(4), Shape(3, height, width), p)
        out = TransverseChromaticAbberation().apply(images, ranks, p)
        for plane, rank, found in zip(planes(images), ranks.flatten().tolist(), planes(out), strict=True):
            zoomed = ndimage.zoom(plane, 1 + rank * strength / 40, prefilter=False)
            top, left = (zoomed.shape[0] - height) // 2, (zoomed.shape[1] - width) // 2
            expected = zoomed[top : top + height, left : left + width] + 0.5 / 255
            np.testing.assert_allclose(found, expected, atol=1e-6)

    def test_one_channel_gets_one_of_the_magnifications(self) -> None:
        images = random_images(6, 1, 16, 16)
        p = Parameters(strength=10.0, softness=1.0)
        ranks = TransverseChromaticAbberation().sample(rng(6), Shape(1, 16, 16), p)
        out = TransverseChromaticAbberation().apply(images, ranks, p)
        colours = TransverseChromaticAbberation().apply(images.expand(-1, 3, -1, -1), ranks, p)
        assert torch.equal(out, colours[:, :1])
        assert len(set(ranks[:, 0].tolist())) > 1
