"""The spectral view: a classifier that reacts to one frequency shows it, and maps have the symmetry of waves."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftproof import shifts
from shiftproof.certificates import spectrum
from shiftproof.certificates.frequencies import (
    amplitude_profile,
    axis,
    band,
    band_means,
    frequencies,
    laid_out,
    power_shares,
    radial,
)
from shiftproof.certificates.spectral_analysis import SpectrumPlan
from shiftproof.errors import ConfigurationError, DataError, ModelError
from shiftproof.shifts.spectral.waves import fourier_basis

SIDE = 16


class Detector:
    """Says 1 where an image has much of one frequency, and 0 elsewhere."""

    def __init__(self, i, j):
        self.place = (i % SIDE, j % SIDE)

    def __call__(self, images):
        amplitude = torch.fft.fft2(images).abs()[:, :, self.place[0], self.place[1]].mean(1)
        return torch.stack([torch.full_like(amplitude, 8.0), amplitude], 1)


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(0)
    smooth = torch.rand(6, 3, 1, 1, generator=generator).expand(-1, -1, SIDE, SIDE) * 0.2 + 0.4
    return smooth.contiguous(), torch.zeros(6, dtype=torch.int64)


@pytest.mark.parametrize(("i", "j"), [(4, 2), (-2, 6), (0, 8), (6, 0)])
def test_the_map_shows_the_frequency_a_classifier_reacts_to(images, i, j):
    found = spectrum(Detector(i, j), images, step=2, alphas=[3], strengths=[4], corruptions=["contrast"])
    heat, rows, columns = found.heat(), axis(SIDE, 2), axis(SIDE, 2)
    alike = {(i % SIDE, j % SIDE), (-i % SIDE, -j % SIDE)}
    expected = [[float((row % SIDE, column % SIDE) not in alike) for column in columns] for row in rows]
    assert heat.tolist() == expected
    assert found.clean == 1
    worst = found.worst()
    assert (worst[0][0] % SIDE, worst[0][1] % SIDE) in alike
    named = band(radial((i, j), SIDE, SIDE), SIDE)
    assert min(found.bands(), key=lambda name: found.bands()[name]) == named


def test_the_map_of_certified_radii_shows_it_too(images):
    found = spectrum(
        Detector(4, 2), images, measure="acr", sigma=0.1, n0=20, n=200, step=2, images=3, alphas=[], strengths=[]
    )
    values = {(i % SIDE, j % SIDE): value for (i, j), value in found.waves.items()}
    reacting = values.pop((4, 2)) if (4, 2) in values else values.pop((-4 % SIDE, -2 % SIDE))
    assert reacting == 0
    assert min(values.values()) > 0.1


def test_noise_around_the_frequency_is_what_hurts(images):
    found = spectrum(Detector(0, 7), images, step=2, alphas=[3], strengths=[6], corruptions=["contrast"])
    curve = {center: value for (_, center), value in found.sets.items()}
    assert sorted(curve) == [1, 3, 5, 7]
    assert curve[7] < 0.5 < curve[1]


def test_waves_are_the_shifts_themselves():
    """Accuracy under a wave, by a loop of one's own over the demo."""
    import shiftproof

    found = spectrum("demo", "demo", images=20, step=16, alphas=[1], strengths=[8], corruptions=["fog"])
    (batch,) = shiftproof.load_data("demo").take(20).batches(20)
    assert batch.labels is not None
    shifted = shifts.parse("fourier_basis[i=0,j=16]")(batch.inputs, batch.keys)
    with torch.inference_mode():
        expected = shiftproof.load_model("demo")(shifted).argmax(1).eq(batch.labels).double().mean().item()
    assert found.waves[0, 16] == expected


@settings(max_examples=40)
@given(st.integers(4, 20), st.integers(4, 20), st.integers(1, 4))
def test_every_wave_is_measured_once(height, width, step):
    chosen = frequencies(height, width, step)
    waves = [fourier_basis(i, j, height, width).double().flatten() for i, j in chosen]
    overlap = torch.stack(waves) @ torch.stack(waves).T - torch.eye(len(waves))
    assert overlap.abs().max() < 1e-5 or step > 1
    assert len({tuple(wave.mul(1e4).round().tolist()) for wave in waves}) == len(waves)
    if step == 1:
        assert len(chosen) == sum((i, j) <= (-i % height, -j % width) for i in range(height) for j in range(width))
    heat = laid_out({each: radial(each, height, width) for each in chosen}, height, width, step)
    assert not np.isnan(heat).any()
    assert np.allclose(heat, heat[::-1, ::-1])
    middle = tuple(size // 2 for size in heat.shape)
    assert heat[middle] == 0


def test_bands_are_thirds():
    assert band_means([(1, 0.5), (2, 1.0), (9, 0.25), (15, 0.0)], 32) == {"low": 0.75, "mid": 0.25, "high": 0.0}
    assert band_means([], 32) == {}


def test_amplitudes_tell_where_a_corruption_acts():
    wave = fourier_basis(0, 12, 32, 32).expand(2, 3, 32, 32)
    profile = amplitude_profile(wave)
    assert int(np.argmax(profile)) == 12
    assert power_shares(wave)["high"] > 0.999
    assert power_shares(torch.zeros(1, 3, 32, 32)) == {"low": 0, "mid": 0, "high": 0}


def test_white_noise_has_the_shares_of_the_areas_of_the_bands():
    """Corners of the spectrum included, which are a fifth of it."""
    noise = torch.randn(200, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    every = [radial((i, j), 32, 32) for i in range(-16, 16) for j in range(-16, 16)]
    counts = {name: sum(band(each, 32) == name for each in every) / 1024 for name in ("low", "mid", "high")}
    assert power_shares(noise) == pytest.approx(counts, abs=0.005)
    assert counts["high"] == pytest.approx(0.65, abs=0.01)


def test_large_images_get_a_grid_that_can_be_afforded():
    heard: list[SpectrumPlan] = []
    images = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))

    def on_plan(plan):
        heard.append(plan)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        spectrum(lambda x: x.mean((2, 3)), (images, [0, 1]), on_plan=on_plan)
    (plan,) = heard
    assert plan.cells < 300
    assert plan.images == 2
    assert plan.seconds > 0


def test_norms_grow_with_the_side(images):
    options: dict[str, Any] = {"step": 8, "alphas": [], "corruptions": ["contrast"], "images": 2}
    assert spectrum(Detector(1, 1), images, **options).facts["eps"] == 4 * SIDE / 32
    assert spectrum(Detector(1, 1), images, eps=1.5, **options).facts["eps"] == 1.5


def test_corruptions_act_where_the_tables_say():
    """Noise is high, contrast loss low (Sun et al. 2022, appendix A)."""
    found = spectrum(
        "demo", "demo", images=20, step=16, alphas=[], strengths=[], corruptions=["gaussian_noise", "contrast", "fog"]
    )
    shares = found.shares()
    for name in ("gaussian_noise", "contrast", "fog"):
        assert max(shares[name], key=lambda part: shares[name][part]) == shifts.facts(name)["frequency"]
    assert shares["clean"]["low"] > 0.9


def test_it_resumes_and_is_written(images, tmp_path):
    options = {"step": 4, "alphas": [1.0], "strengths": [4.0], "corruptions": ["contrast"], "out": tmp_path}
    found = spectrum(Detector(4, 0), images, **options)
    heard: list[object] = []
    again = spectrum(Detector(4, 0), images, on_progress=lambda *news: heard.append(news[2]), **options)
    assert heard == [None]
    assert again == found
    content = json.loads((tmp_path / "spectrum.json").read_text())
    assert content["bands"] == found.bands()
    assert content["clean"] == 1


def test_what_has_no_spectrum_is_refused(images):
    sizes = ({"step": 0}, {"images": 0}, {"eps": 0}, {"eps": math.inf})
    for options in (*sizes, {"measure": "loss"}, {"measure": "acr", "sigma": 0}):
        with pytest.raises(ConfigurationError):
            spectrum(Detector(1, 1), images, **options)
    with pytest.raises(DataError, match="no labels"):
        spectrum(Detector(1, 1), images[0])
    with pytest.raises(DataError, match="do not fit"):
        spectrum(Detector(1, 1), (images[0], images[1] + 2))
    with pytest.raises(ModelError, match="training"):
        spectrum(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIDE * SIDE, 2)), images)


def test_radial_frequencies_of_oblong_images():
    assert radial((0, 4), 8, 32) == pytest.approx(4 * math.sqrt(8 * 32) / 32)
