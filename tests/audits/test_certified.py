"""The sections certified and spectrum: what they plan, measure and say."""

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm

import shiftproof
from shiftproof import shifts
from shiftproof.audits.audit_settings import make_settings
from shiftproof.audits.sections import section
from shiftproof.audits.sections.base import PerImage, Scope
from shiftproof.audits.sections.certified import RANGES, SIGMAS, CertifiedPart
from shiftproof.audits.sections.scores_by_task import WORDS
from shiftproof.audits.sections.spectrum import Amplitudes, NoiseSet, Wave, _verdict
from shiftproof.certificates import Smoothed
from shiftproof.certificates.frequencies import BANDS
from shiftproof.models import BlackBox
from shiftproof.prediction_tasks import CLASSES
from shiftproof.reports.view import Figure, Table
from shiftproof.runs import Result
from shiftproof.shifts.spectral.waves import FourierBasis, PowerLaw
from shiftproof.subjects import Subject


def scope(images=1000, side=32, **options):
    return Scope(make_settings(**options), images, side)


def certified(label, sigma, radii, **options):
    shift = None if label == "clean" else shifts.parse(label)
    denoiser = {"denoiser": "cifar10"} if options.get("denoised") else {}
    return Result(
        CertifiedPart(shift, sigma, 0, len(radii), n0=20, n=250, alpha=0.01, seed=0, **options),
        {"images": len(radii), "radii": radii, "samples": 100 * len(radii), **denoiser},
        None,
        1.0,
    )


def test_certified_tells_the_share_that_is_stable():
    found = [
        certified("clean", 0.03, [0.0, 0.02, 0.05, 0.06]),
        certified("clean", 0.25, [0.0, 0.0, 0.0, 0.1]),
        certified("fog@3", 0.03, [0.0, 0.0, 0.0, 0.04]),
        certified("fog@3", 0.25, [0.0, 0.0, 0.0, 0.0]),
    ]
    view = section("certified").view(found)
    said = view.verdict[0].text
    assert said.startswith("Certified accuracy of the smoothed model is 50.0% (")
    assert "on clean images and 25.0% under fog at an L2 radius of 0.03 (noise 0.03); 0.0% (" in said
    assert said.endswith("at an L2 radius of 0.25 (noise 0.03).")
    assert (view.tiles[0].title, view.tiles[0].value) == ("Certified accuracy at L2 0.25", "0.0%")
    assert view.tiles[0].rule.startswith("50.0% at 0.03.")
    distances = {name.partition(".")[2]: value for name, value in view.numbers.items() if "accuracy" in name}
    assert distances == {"0.03": 0.5, "0.1": 0.25, "0.25": 0, "0.5": 0, "1": 0}
    assert view.numbers["acr"] == pytest.approx(0.13 / 4)
    assert view.numbers["acr.fog@3"] == pytest.approx(0.01)
    assert any("not trained with such noise" in note for note in view.notes)
    figure, distances_table, table = view.blocks
    assert isinstance(figure, Figure)
    assert isinstance(distances_table, Table)
    assert isinstance(table, Table)
    assert distances_table.rows[0] == ("clean", 0.03, 0.5, 0.0, 0.0, 0.0, 0.0)
    assert [trace["name"] for trace in figure.plot["data"]] == ["clean, 4 images", "fog 3, 4 images"]
    assert figure.plot["data"][0]["y"][0] == 75
    assert len(table.rows) == 4
    json.dumps(figure.plot, allow_nan=False)


def test_a_model_trained_with_noise_is_told_by_the_larger_noise():
    view = section("certified").view(
        [certified("clean", 0.03, [0.06, 0.06]), certified("clean", 0.25, [0.5, 0.3]), certified("fog@3", 0.25, [0.0])]
    )
    assert "; 100.0% (" in view.verdict[0].text
    assert view.verdict[0].level == "good"
    assert not any("not trained" in note for note in view.notes)


def test_a_robust_model_is_never_below_a_fragile_one_at_any_number():
    """The robust one is certified at least as far on every image, by more noise, at which it is a little less right."""

    def others(far):
        ranges = [certified("clean", 0.1, [far, 0.0], against=against) for against in RANGES]
        return [*ranges, certified("clean", 0.25, [far] * 8, denoised=True), certified("fog@3", 0.25, [far, 0.0])]

    fragile = section("certified").view(
        [certified("clean", 0.03, [0.05] * 8 + [0.0] * 2), certified("clean", 0.25, [0.0] * 10), *others(0.1)]
    )
    robust = section("certified").view(
        [
            certified("clean", 0.03, [0.06] * 8 + [0.0] * 2),
            certified("clean", 0.25, [0.5] * 6 + [0.2] + [0.0] * 3),
            *others(0.2),
        ]
    )
    known = {number.name.removesuffix(".*") for number in section("certified").numbers}
    assert {name.partition(".")[0] for name in robust.numbers} == known  # every number a gate knows
    assert set(fragile.numbers) - set(robust.numbers) == set()
    assert all(robust.numbers[name] >= value for name, value in fragile.numbers.items())
    (headline, *_) = section("certified").numbers
    assert headline.name == "acr"  # what a requirement on the section is about
    assert robust.numbers["acr"] > fragile.numbers["acr"]


def test_a_network_trained_with_noise_is_above_one_that_was_not_at_every_number():
    def numbers(model):
        subject = Subject.of(model, "demo", images=8, device="cpu", batch_size=64)
        tasks = [CertifiedPart(None, sigma, 0, 8, n0=20, n=250, alpha=0.01, seed=0) for sigma in SIGMAS]
        return section("certified").view([Result(task, task.measure(subject), None, 1.0) for task in tasks]).numbers

    fragile, robust = numbers("demo"), numbers("cifar10-gaussian-jsd")
    assert all(robust[name] >= value for name, value in fragile.items())
    assert robust["acr"] > 2 * fragile["acr"]
    assert robust["certified_accuracy.0.03"] > fragile["certified_accuracy.0.03"]


def test_the_smoothed_models_accuracy_stands_beside_the_models_own():
    cell = certified("clean", 0.03, [0.05, 0.0, 0.0, 0.0])
    row: Any = cell.row
    row.update(voted_right=2, plain_right=3)
    said = section("certified").view([cell]).verdict[1].text
    assert "the smoothed model (noise 0.03) is 50.0%" in said
    assert "the model itself, which has no such guarantee, is 75.0%" in said


def test_the_advice_names_a_denoiser_where_it_certifies_more():
    plain = certified("clean", 0.25, [0.3, 0.0, 0.0, 0.0])
    (better,) = section("certified").view([plain, certified("clean", 0.25, [0.3] * 4, denoised=True)]).actions
    (worse,) = section("certified").view([plain, certified("clean", 0.25, [0.0] * 4, denoised=True)]).actions
    assert "with the denoiser 'cifar10' it is 100.0%" in better.why
    assert "denoiser" not in worse.why


def test_a_denoiser_that_fits_is_used_and_told(tmp_path, monkeypatch):
    from shiftproof.models import denoising
    from shiftproof.models.networks.denoiser import Denoiser

    denoising.save_denoiser(tmp_path / "cifar10.safetensors", Denoiser(3, (0.1, 0.3)), {})
    (tmp_path / "cifar10.json").write_text(json.dumps({"shape": [3, 32, 32], "classifier": None}))
    monkeypatch.setattr(denoising, "FOLDER", tmp_path)
    planned = [cell for cell in section("certified").plan(scope(images=8)) if isinstance(cell, CertifiedPart)]
    (task,) = [cell for cell in planned if cell.denoised]
    assert denoising.fitting_denoiser("any", (3, 64, 64), 0.25) is None
    assert denoising.fitting_denoiser("any", (3, 32, 32), 0.5) is None
    subject = Subject.of("cifar10-gaussian-jsd", "demo", images=3, device="cpu", batch_size=32)
    row: Any = replace(task, end=3, n=100).measure(subject)
    assert row["denoiser"] == "cifar10"
    view = section("certified").view([certified("clean", 0.03, [0.05, 0.02]), Result(task, row, None, 1.0)])
    assert "With the packaged denoiser 'cifar10'" in view.verdict[1].text
    assert view.numbers["denoised_acr"] == pytest.approx(np.mean(row["radii"]))
    assert view.numbers["acr"] == pytest.approx(0.035)


def test_provably_stable_ranges_are_told():
    def part(against, sigma, radii):
        row = {"images": len(radii), "radii": radii, "samples": 100, "voted_right": 2, "plain_right": 2}
        return Result(CertifiedPart(None, sigma, 0, len(radii), 20, 250, 0.01, 0, against), row, None, 1.0)

    view = section("certified").view(
        [
            certified("clean", 0.03, [0.05, 0.02]),
            part("brightness", 0.1, [0.12, 0.0, 0.3, 0.09]),
            part("contrast+brightness", 0.1, [0.11, 0.0]),
            part("blur", 1.0, [3.0, 2.0]),
            part("translation", 3.0, [2.5, 3.5]),
        ]
    )
    said = view.verdict[1].text
    assert "its certified accuracy on clean images is 50.0% (" in said
    for share, change in (
        ("50.0%", "brightness ±0.1"),
        ("50.0%", "contrast ±10% with brightness ±0.1"),
        ("100.0%", "Gaussian blur of a variance up to 2 square pixels"),
        ("50.0%", "cyclic shifts of less than 3 pixels"),
    ):
        assert re.search(rf"{share} \([^)]*\) for {re.escape(change)}", said)
    ranges = {name: value for name, value in view.numbers.items() if name.startswith("certified_range")}
    assert ranges == pytest.approx(
        {
            **{"certified_range.brightness": 0.1275, "certified_range.contrast": 0.055},
            **{"certified_range.blur": 2.5, "certified_range.translation": 3.0},
        }
    )
    assert view.numbers["acr"] == pytest.approx(0.035)  # of L2 alone
    table = view.blocks[-1]
    assert isinstance(table, Table)
    assert len(table.rows) == 20
    planned = {cell.against for cell in section("certified").plan(scope()) if isinstance(cell, CertifiedPart)}
    assert planned == {"l2", "brightness", "contrast+brightness", "blur", "translation"}


def test_what_so_many_samples_can_show_is_told():
    view = section("certified").view([certified("clean", 0.03, [0.05, 0.02])])
    most = 0.25 * norm.ppf(0.005 ** (1 / 250))  # the last of two looks, each at half of alpha
    assert any(f"can be certified is {int(1000 * most) / 1000:g}:" in note for note in view.notes)


def test_certified_measures_what_the_shell_certifies():
    data = shiftproof.load_data("demo").take(4)
    model = shiftproof.load_model("demo")
    task = CertifiedPart(None, sigma=0.03, begin=1, end=4, n0=20, n=100, alpha=0.01, seed=0)
    row = task.measure(Subject.of(model, data, device="cpu", batch_size=32))
    batch: Any = next(iter(data.subset([1, 2, 3]).batches(3)))
    made = Smoothed(model, 0.03).certify(batch.inputs, batch.labels, keys=batch.keys, n0=20, n=100, alpha=0.01)
    assert row["plain_right"] == int(model(batch.inputs).argmax(1).eq(batch.labels).sum())
    assert row["voted_right"] == sum(not each.skipped for each in made)
    radii: Any = row["radii"]
    assert radii == pytest.approx([each.radius for each in made], abs=1e-6)
    assert all(written <= each.radius for written, each in zip(radii, made, strict=True))
    assert sum(radii) > 0


def test_a_model_that_cannot_be_certified_gets_a_note_and_no_failure():
    data = shiftproof.load_data("demo").take(4)
    box = BlackBox(lambda images: torch.rand(len(images), 10))
    task = CertifiedPart(None, sigma=0.03, begin=0, end=4, n0=20, n=100, alpha=0.01, seed=0)
    row = task.measure(Subject.of(box, data, device="cpu", batch_size=32))
    view = section("certified").view([Result(task, row, None, 1.0)])
    assert any("stochastic" in note for note in view.notes)


@pytest.mark.parametrize("name", ["certified", "spectrum"])
def test_plans_are_small_and_fit_the_images(name):
    cells = list(section(name).plan(scope(images=10)))
    assert len(cells) == len(set(cells)) > 5
    for cell in cells:
        assert int(str(cell.parameters().get("end", cell.parameters().get("images")))) <= 10
    assert list(section(name).plan(scope(shifts=["pixelate"], severities=[2])))


def test_certified_takes_fog_and_a_blur():
    labels = {cell.parameters()["shift"] for cell in section("certified").plan(scope())}
    assert labels == {"clean", "fog@3", "defocus_blur@3"}


def tallied(shift, right, side=32, step=16, images=10):
    row = {"images": images, "right": right, "confidence": 0.5, "hits": ""}
    kind: Any = Wave if isinstance(shift, FourierBasis) else NoiseSet
    return Result(kind(shift, images, 0, side, step), row, None, 1.0)


def test_spectrum_tells_the_weakest_band():
    waves = {(0, 0): 9, (0, 16): 2, (16, 0): 1, (16, 16): 0}
    found = [tallied(FourierBasis(i, j), right) for (i, j), right in waves.items()]
    found += [tallied(PowerLaw(8.0, float(c), 1.0), right) for c, right in ((1, 8), (9, 2))]
    shares = {"low": 0.1, "mid": 0.3, "high": 0.6}
    about = Amplitudes(shifts.corruption("gaussian_noise", 3), images=10, seed=0, side=32, step=16)
    found.append(Result(about, {"shares": shares}, None, 1.0))
    view = section("spectrum").view(found)
    said = "Most sensitive to high frequencies: under a single added wave, mean accuracy is 10.0% at high, 90.0% at low"
    assert said in view.verdict[0].text
    assert view.numbers["spectrum.high"] == pytest.approx(0.1)
    assert view.numbers["worst_wave_accuracy"] == 0
    heat, sets, bars = view.blocks
    assert isinstance(heat, Figure)
    assert isinstance(sets, Figure)
    assert isinstance(bars, Figure)
    assert heat.plot["data"][0]["z"][1] == [20, 90, 20]
    assert "Noise around 9 cycles" in sets.title
    assert bars.table.rows == (("gaussian noise", 0.1, 0.3, 0.6),)
    for block in (heat, sets, bars):
        json.dumps(block.plot, allow_nan=False)


def test_one_frequency_that_stands_out_is_named():
    waves = {(i, j): 38 for i in (-8, 0, 8) for j in (0, 8, 16)}
    for right, stands_out in ((4, True), (36, False)):  # 36 of 40 is chance
        found = [
            tallied(FourierBasis(i, j), right if (i, j) == (8, 8) else each, step=8, images=40)
            for (i, j), each in waves.items()
        ]
        said = section("spectrum").view(found).verdict[0]
        assert ("a wave of 8 cycles across and 8 down leaves 10.0% right" in said.text) == stands_out
        assert (said.level == "bad") == stands_out


def test_an_even_model_is_not_called_sensitive():
    found = [tallied(FourierBasis(0, j), 8) for j in (0, 8, 16)]
    assert "No band of frequencies is shown to cost more" in section("spectrum").view(found).verdict[0].text


@pytest.mark.parametrize(
    ("images", "low", "says", "level"),
    [
        (1000, 0.0, "Waves of any frequency cost about the same: 80", "plain"),
        (1000, 0.05, "A little more sensitive to low frequencies: under a single", "plain"),
        (1000, 0.2, "Most sensitive to low frequencies: under a single", "watch"),
        (30, 0.05, "No band of frequencies is shown to cost more than another", "plain"),
        (30, 0.12, "No band of frequencies is shown to cost more than another", "plain"),
        (30, 0.5, "Most sensitive to low frequencies", "watch"),
        (8, 0.5, "No band of frequencies is shown to cost more than another", "plain"),
    ],
)
def test_bands_are_compared_image_by_image(images, low, says, level):
    rng = np.random.default_rng(0)
    right = rng.permutation(images) < 0.8 * images
    hurt = rng.permutation(images) < low / 0.8 * images
    shares: Any = {"low": right & ~hurt, "mid": right, "high": np.roll(right, 1) if images > 100 else right}
    known = {name: PerImage(values.astype(float)) for name, values in shares.items()}
    (said,) = _verdict({name: values.mean() for name, values in shares.items()}, known, WORDS[CLASSES.name])
    assert said.text.startswith(says)
    assert said.level == level


def test_bands_that_are_not_told_apart_are_named_together():
    rng = np.random.default_rng(0)
    right = rng.random((3, 100)) < np.array([[0.3], [0.31], [0.8]])
    known = {name: PerImage(values.astype(float)) for name, values in zip(BANDS, right, strict=True)}
    (said,) = _verdict({name: each.values.mean() for name, each in known.items()}, known, WORDS[CLASSES.name])
    assert said.text.startswith(("Most sensitive to low and mid frequencies", "Most sensitive to mid and low freq"))


@pytest.mark.parametrize("shape", [(3, 12, 20), (1, 17, 13)])
def test_spectrum_measures_oblong_images(shape):
    images = torch.rand(6, *shape, generator=torch.Generator().manual_seed(0))
    data = shiftproof.load_data((images, [0, 1, 0, 1, 0, 1]))
    box = BlackBox(lambda batch: torch.stack([batch.flatten(1).mean(1), batch.flatten(1).std(1)], 1))
    chosen = section("spectrum")
    cells = list(chosen.plan(scope(images=6, side=data.side, shifts=["contrast"])))
    found = [Result(cell, cell.measure(Subject.of(box, data, device="cpu", batch_size=8)), None, 0.1) for cell in cells]
    view = chosen.view(found)
    assert set(view.numbers) == {"spectrum.low", "spectrum.mid", "spectrum.high", "worst_wave_accuracy"}


def test_both_sections_in_an_audit(tmp_path):
    result = shiftproof.audit(
        lambda images: images.mean((2, 3)).repeat(1, 4)[:, :10],
        "demo",
        out=tmp_path,
        images=20,
        sections=["spectrum", "certified"],
        shifts=["fog"],
        severities=[3],
    )
    assert not result.failed
    assert {"acr", "certified_accuracy.0.03", "certified_accuracy.1", "spectrum.low"} <= set(result.numbers)
    text = result.report.read_text()
    assert "Certified robustness" in text
    assert "Sensitivity by frequency" in text
