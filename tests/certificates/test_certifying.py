"""`certify` end to end: what it returns and writes, resumes, and does alike everywhere."""

import json
import signal
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import shiftproof
from shiftproof import shifts
from shiftproof.adapters import adapt
from shiftproof.certificates import Certification, Smoothed, certify, load_certificate, make_rule
from shiftproof.certificates.certifying import CELL_SAMPLES
from shiftproof.certificates.telling import verdict
from shiftproof.errors import ConfigurationError, DataError, ModelError, RunError
from shiftproof.measures import Accuracy, average_radius, certified_curve, mean_average_radius
from tests.processes import Stop, measured, python

SMALL: dict[str, Any] = {"sigma": 0.04, "n0": 20, "n": 120, "alpha": 0.01, "images": 9}


@pytest.fixture(autouse=True)
def several_cells(monkeypatch):
    monkeypatch.setitem(CELL_SAMPLES, "cpu", 200)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return certify("demo", "demo", out=tmp_path_factory.mktemp("reference"), **SMALL)


def test_shown_as_text_it_does_not_list_every_image(reference):
    assert "sigma=0.04" in repr(reference)
    assert not any(f"{name}=" in repr(reference) for name in ("keys", "labels", "certificates", "plain", "room"))


def test_certificates_are_those_of_the_shell(reference):
    demo = shiftproof.load_data("demo")
    (batch,) = demo.subset(demo.draw(9).sort().values).batches(9)  # in the order of the data
    smoothed = Smoothed(shiftproof.load_model("demo"), 0.04)
    made = smoothed.certify(batch.inputs, batch.labels, keys=batch.keys, n0=20, n=120, alpha=0.01)
    assert list(reference.certificates) == made
    assert list(reference.keys) == batch.keys.tolist()
    assert 0 < sum(each.prediction >= 0 for each in made) < 9


def test_numbers_follow_from_the_certificates(reference):
    assert reference.labels is not None
    radii = [
        each.radius if each.prediction == label else 0.0
        for each, label in zip(reference.certificates, reference.labels, strict=True)
    ]
    assert reference.radii.tolist() == radii
    assert reference.acr == average_radius(radii)  # without an interval: 9 images are too few to say
    many = replace(reference, **{name: 5 * getattr(reference, name) for name in ("keys", "labels", "certificates")})
    reach = make_rule("sequential", sigma=0.04, n=120, alpha=0.01).reach
    assert many.acr == average_radius(5 * radii, reach)
    assert many.acr.interval is not None
    assert 0 < many.acr.interval.low < many.acr.value < many.acr.interval.high < reach
    assert reference.accuracy(0.02).right == sum(radius >= 0.02 for radius in radii)
    assert reference.samples == sum(each.samples + 20 for each in reference.certificates)


def test_the_file_says_what_is_guaranteed(reference, tmp_path):
    content = load_certificate(reference.save(tmp_path / "certificate.json"))
    model = shiftproof.load_model("demo")
    assert shiftproof.models.fingerprint(model) in content["guarantee"]
    assert "0.04" in content["guarantee"]
    assert "float32" in content["guarantee"]
    terms = content["terms"]
    assert (terms["sigma"], terms["n0"], terms["n"], terms["alpha"]) == (0.04, 20, 120, 0.01)
    assert (terms["dtype"], terms["rule"], terms["shift"]) == ("float32", "sequential", "clean")
    assert content["data"]["images"] == 9
    assert content["batch_size"] == 64
    place = content["columns"].index("radius")
    for row, computed in zip(content["images"], reference.certificates, strict=True):
        assert row[place] <= computed.radius < row[place] + 1.1e-6


def test_the_file_names_what_it_does_not_say_and_both_accuracies(reference):
    content = reference.to_json()
    assert any("floating-point" in each for each in content["not_guaranteed"])
    assert any("hold at once" in each for each in content["not_guaranteed"])
    model = shiftproof.load_model("demo")
    demo = shiftproof.load_data("demo")
    (batch,) = demo.subset(demo.draw(9).sort().values).batches(9)
    assert list(reference.plain) == model(batch.inputs).argmax(1).tolist()
    right = sum(each.guess == label for each, label in zip(reference.certificates, reference.labels, strict=True))
    assert content["numbers"]["smoothed_accuracy"] == right / 9
    assert content["numbers"]["accuracy"] == sum(reference.plain[i] == reference.labels[i] for i in range(9)) / 9
    assert content["numbers"]["certified_wrong"] is None
    assert content["numbers"]["linf_of_l2"]["0.25"] == pytest.approx(0.25 / 3072**0.5, abs=1e-6)
    assert [*content["numbers"]["certified_accuracy_at"]] == ["0.03", "0.1", "0.25", "0.5", "1"]


def test_certified_but_wrong_is_counted_on_request():
    images = torch.eye(3)[:, :, None, None].expand(3, 3, 8, 8)
    found = certify(lambda x: x.mean((2, 3)), (images, [0, 2, 2]), sigma=0.25, n=400, wrong=True)
    assert found.certified_wrong(0.2) == Accuracy(1, 3)
    assert found.accuracy(0.2) == Accuracy(2, 3)
    assert not any(each.skipped for each in found.certificates)


def test_the_accuracy_of_a_vote_that_never_abstains_is_told_as_that(reference):
    row = reference.to_row()
    assert f"before it may abstain, the smoothed model is right on {row['smoothed_accuracy']:.1%}" in verdict(reference)


def test_without_labels_nothing_is_said_of_right_and_wrong(reference):
    images = torch.eye(3)[:, :, None, None].expand(3, 3, 8, 8)
    said = verdict(certify(lambda x: x.mean((2, 3)), images, sigma=0.25, n=400))
    assert "0 abstained. They have no labels: what is certified counts whether it is right or wrong." in said
    assert "guessed wrong" not in said
    assert "guessed wrong" in verdict(reference)
    assert "no labels" not in verdict(reference)


def test_joint_certificates_share_alpha():
    images = torch.eye(3)[:, :, None, None].expand(3, 3, 8, 8)
    found = certify(lambda x: x.mean((2, 3)), images, sigma=0.25, n=400, alpha=0.03, joint=True)
    assert found.terms.rule["alpha"] == pytest.approx(0.01)
    assert "any of 3 such certificates is wrong has probability at most 0.03" in found.guarantee()
    assert not any("hold at once" in each for each in found.not_guaranteed())
    both = certify(lambda x: x.mean((2, 3)), images, sigma=0.25, n=400, shift=["clean", "fog@1"], joint=True)
    assert both.parts[0].terms.joint == 6  # of all conditions


def test_the_price_of_stopping_early_is_told():
    images = torch.eye(3)[:, :, None, None].expand(3, 3, 8, 8) * 0.05 + 0.5
    found = certify(lambda x: x.mean((2, 3)), images, sigma=0.25, n=5000, tolerance=1.0)
    fixed = certify(lambda x: x.mean((2, 3)), images, sigma=0.25, n=5000, rule="fixed")
    assert found.acr.value < fixed.acr.value
    assert found.acr_by_fixed == pytest.approx(fixed.acr.value, rel=0.1)
    assert fixed.acr_by_fixed is None


def test_bad_certificate_files_are_refused(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json").write_text("no json")
    for name, kind in (("a.json", DataError), ("b.json", DataError), ("c.json", RunError)):
        with pytest.raises(kind):
            load_certificate(tmp_path / name)


@pytest.mark.parametrize("options", [{"batch_size": 17}, {"executor": "processes:2"}], ids=str)
def test_batch_size_and_workers_do_not_change_certificates(reference, options):
    assert certify("demo", "demo", **SMALL, **options) == reference


def test_kill_and_resume_gives_the_same_certificates(reference, tmp_path):
    script = (
        "from shiftproof.certificates import certify, certifying\n"
        "certifying.CELL_SAMPLES['cpu'] = 200\n"
        f"certify('demo', 'demo', out={str(tmp_path)!r}, **{SMALL!r})"
    )
    heard: list[tuple[int, int]] = []
    assert python(script, tmp_path, Stop(signal.SIGKILL, lambda: measured(tmp_path) >= 1)).returncode == -signal.SIGKILL
    resumed = certify(
        "demo", "demo", out=tmp_path, on_progress=lambda done, total, _: heard.append((done, total)), **SMALL
    )
    assert resumed == reference
    assert heard[-1][0] == heard[-1][1] > 1
    again: list[object] = []
    assert certify("demo", "demo", out=tmp_path, on_progress=lambda *news: again.append(news[2]), **SMALL) == reference
    assert again == [None]


def test_a_shift_is_applied_first(reference):
    found = certify("demo", "demo", shift="contrast@5", **SMALL)
    (batch,) = shiftproof.load_data("demo").take(9).batches(9)
    images = shifts.parse("contrast@5")(batch.inputs, batch.keys)
    plain = certify("demo", (images, batch.labels), **{**SMALL, "images": None})
    assert found.terms.shift == "contrast@5"
    assert "under contrast@5" in found.guarantee()
    assert [each.guess for each in found.certificates] != [each.guess for each in reference.certificates]
    # Other keys, other noise: the same images have nearly the same chances.
    assert abs(found.acr.value - plain.acr.value) < 0.02
    both = mean_average_radius({"clean": reference.radii, "contrast@5": found.radii})
    assert both.value == pytest.approx((reference.acr.value + found.acr.value) / 2)


def test_black_boxes_and_images_without_labels():
    images = torch.eye(3)[:, :, None, None].expand(3, 3, 8, 8)
    found = certify(lambda x: x.mean((2, 3)), images, sigma=0.25, n=400)
    assert found.labels is None
    assert [each.prediction for each in found.certificates] == [0, 1, 2]
    assert found.accuracy(0.3).value == 1
    assert json.loads(json.dumps(found.to_json()))["numbers"]["acr"] == found.acr.value


def test_the_radius_rule_answers_at_the_asked_distance():
    images = torch.eye(3)[:, :, None, None].expand(3, 3, 8, 8)
    found = certify(lambda x: x.mean((2, 3)), (images, [0, 1, 0]), sigma=0.25, rule="radius", radius=0.3)
    assert found.radii.tolist() == [0.3, 0.3, 0]
    assert found.accuracy(0.3).right == 2
    assert found.samples < 3 * 1000


def test_one_image_has_a_certificate_and_no_interval():
    found = certify(lambda x: x.mean((2, 3)), torch.rand(1, 3, 8, 8), sigma=0.25, n=100)
    assert found.to_row()["acr_high"] is None
    json.dumps(found.to_json(), allow_nan=False)


def test_what_cannot_be_certified_is_refused(tmp_path):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3), torch.nn.Dropout())
    images = torch.rand(4, 3, 8, 8)
    with pytest.raises(ModelError, match="training mode"):
        certify(network, images, sigma=0.25)
    assert network.training
    with pytest.raises(ModelError, match="adapts"):
        certify(adapt(network.eval(), "lame"), images, sigma=0.25)
    with pytest.raises(ModelError, match="NaN"):
        certify(lambda x: x.flatten(1) * float("nan"), images, sigma=0.25)
    with pytest.raises(RunError, match="not finite"):
        certify(lambda x: x.mean((2, 3)).sqrt(), images * 0, sigma=0.25, n=100)
    with pytest.raises(ConfigurationError):
        certify("demo", "demo", sigma=0.0)
    with pytest.raises(ConfigurationError):
        certify("demo", "demo", sigma=0.1, shift="fogg@3")
    for distance in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match="distance"):
            certify("demo", "demo", sigma=0.1, at=[0.1, distance])


def test_a_run_directory_is_for_one_model(reference, tmp_path):
    certify(lambda x: x.mean((2, 3)), torch.rand(2, 3, 8, 8), sigma=0.25, n=100, out=tmp_path)
    with pytest.raises(RunError, match="another model"):
        certify(lambda x: -x.mean((2, 3)), torch.rand(2, 3, 8, 8), sigma=0.25, n=100, out=tmp_path)


def test_more_samples_certify_more():
    images = torch.eye(3)[:, :, None, None].expand(3, 3, 8, 8)
    found: list[Certification] = [
        certify(lambda x: x.mean((2, 3)), images, sigma=0.5, n=n) for n in (100, 1000, 10_000)
    ]
    values = [each.acr.value for each in found]
    assert values == sorted(values)


def test_certified_curves_fall_and_enclose_the_average():
    radii = np.random.default_rng(0).exponential(0.3, 500) * (np.arange(500) % 4 > 0)
    grid = np.linspace(0, radii.max(), 4001)
    curve = [point.value for point in certified_curve(radii, grid.tolist())]
    assert curve == sorted(curve, reverse=True)
    assert np.trapezoid(curve, grid) == pytest.approx(average_radius(radii).value, abs=1e-3)


def test_an_exported_program_is_certified_as_it_is():
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3)).eval()
    batch = torch.export.Dim("batch")
    exported = torch.export.export(network, (torch.zeros(2, 3, 4, 4),), dynamic_shapes=({0: batch},)).module()
    data = (torch.rand(4, 3, 4, 4, generator=torch.Generator().manual_seed(0)), [0, 1, 2, 0])
    found, plain = (shiftproof.certify(model, data, sigma=0.25, n=100) for model in (exported, network))
    assert found.radii.tolist() == plain.radii.tolist()
