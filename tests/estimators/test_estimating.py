import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import shiftproof
from shiftproof import load_data, load_model
from shiftproof.data import DataSpec
from shiftproof.errors import ConfigurationError, DataError, ModelError, RunError
from shiftproof.estimators import (
    METHODS,
    Calibration,
    Estimator,
    agreement,
    atc,
    average_confidence,
    difference_of_confidences,
)
from shiftproof.estimators.checks import source_for
from shiftproof.estimators.references import Reference
from shiftproof.estimators.source_copies import Copy
from shiftproof.measures import ErrorLine
from shiftproof.models import BlackBox, ModelSpec
from shiftproof.shifts import parse
from tests.estimators.networks import Brightness, images

SHIFTS = [f"{name}@{level}" for name in ("saturate", "spatter", "gaussian_blur", "speckle_noise") for level in (2, 5)]


@pytest.fixture(scope="module")
def demo():
    source = load_data("demo-source").take(120)
    return Estimator.fit(load_model("demo"), source, shifts=SHIFTS, n=2, images=120)


def test_every_method_answers_with_an_interval_around_its_value(demo):
    result = demo(load_data("demo").take(150), other=load_model("demo"))
    everything = (result, *result.others)
    assert {one.method for one in everything} == set(METHODS)
    for one in everything:
        assert 0 <= one.low <= one.accuracy <= one.high <= 1
        json.dumps(one.to_row(), allow_nan=False)
    by_name = {one.method: one for one in everything}
    assert by_name["agreement"].accuracy == 1.0  # a model agrees with itself
    assert result.method == "cbpe"  # nothing has changed, and so nothing but the class mix
    assert result.error == demo.calibration.auto_error


def test_labels_of_the_target_are_never_looked_at(demo):
    target = load_data("demo").take(60)
    wrong: Any = load_data("demo").take(60)
    wrong.labels = (wrong.labels + 1) % 10
    assert demo(target) == demo(wrong)


def test_a_damaged_set_is_expected_to_do_worse(demo):
    target = load_data("demo").take(150)
    batch: Any = next(iter(target.batches(150)))
    damaged = shiftproof.corrupt(batch.inputs, "gaussian_noise@5", keys=batch.keys)
    truth = float((load_model("demo")(damaged).argmax(1) == batch.labels).float().mean())
    found = demo(damaged)
    assert demo(target).accuracy - found.accuracy > 0.3
    assert found.accuracy == pytest.approx(truth, abs=0.15)


def test_a_set_of_few_classes_is_not_taken_for_a_collapse(demo):
    data: Any = load_data("demo")
    two = data.subset(((data.labels == 3) | (data.labels == 8)).nonzero()[:, 0])
    truth = float((load_model("demo")(next(iter(two.batches(200))).inputs).argmax(1) == two.labels).float().mean())
    found = demo(two)
    assert (found.method, found.trusted) == ("cbpe", True)
    assert found.accuracy == pytest.approx(truth, abs=0.03)
    assert found.notes[0].startswith("Class mix changed: more cat")
    assert {one.name for one in found.by_class if one.recall is not None} == {"cat", "ship"}
    combined = demo(two, method="combined")  # takes few classes for a collapse, but for the class mix that is found
    assert truth - combined.accuracy > 0.3
    assert combined.low <= truth <= combined.high


def test_inputs_unlike_every_family_get_a_wide_interval_and_no_number(demo):
    """Images shrunk to half with a black border: the demo is right on 60% of them, and its lines say 0 to 10%."""
    batch: Any = next(iter(load_data("demo").take(150).batches(150)))
    small = torch.zeros_like(batch.inputs)
    small[:, :, 8:24, 8:24] = torch.nn.functional.interpolate(batch.inputs, scale_factor=0.5, mode="bilinear")
    truth = float((load_model("demo")(small).argmax(1) == batch.labels).float().mean())
    found = demo(small)
    assert found.unlike
    assert not found.trusted
    assert "the nearest known shift is speckle_noise@5 (noise)" in found.warnings[0]
    assert str(found).startswith("between")
    assert found.low <= truth <= found.high
    for one in found.others:
        assert "unlike anything calibrated on" in one.warnings[0]
        assert found.low <= one.accuracy <= found.high


def test_strangeness_never_narrows_the_interval(demo):
    found = demo.observe(load_data("demo").take(150))
    values, calibration = demo.calibration.values(found), demo.calibration
    place = calibration.familiar(calibration.profile(found))
    assert not place.unlike
    near = calibration.estimate("auto", values, inputs=150, place=place)
    far = calibration.estimate("auto", values, inputs=150, place=replace(place, unlike=True))
    assert far.low < near.low
    assert far.high >= near.high
    assert far.accuracy == near.accuracy


def test_auto_tells_the_error_of_choosing_and_not_that_of_the_best(demo):
    calibration = demo.calibration
    residuals = []
    for family in calibration.families:
        without = calibration.without(family)
        own = [copy for copy in calibration.copies if copy.group == family]
        residuals.append(np.mean([abs(c.accuracy - without.say("auto", c.statistics).value) for c in own]))
    assert calibration.auto_error == pytest.approx(np.mean(residuals))
    assert set(calibration.families) == {"class mix", "digital", "weather", "blur", "noise"}


def test_five_families_support_eighty_percent_and_not_ninety(demo):
    target = load_data("demo").take(150)
    assert demo(target).level == 0.8
    found = demo(target, level=0.9)
    assert (found.low, found.high) == (0.0, 1.0)
    assert "support no interval at 90%: at most 83%" in " ".join(found.warnings)


def test_own_sets_are_families(demo):
    batch: Any = next(iter(load_data("demo-source").take(60, seed=1).batches(60)))
    night = load_data((batch.inputs * 0.3, batch.labels)).named("night")
    made = Estimator.fit(demo.model, load_data("demo-source").take(60), shifts=SHIFTS[1::2], sets=[night], n=1)
    assert "set 1: night" in made.calibration.families
    (copy,) = (copy for copy in made.calibration.copies if copy.shift == "set 1: night")
    right = (demo.model(batch.inputs * 0.3).argmax(1) == batch.labels).sum()
    assert copy.accuracy == pytest.approx(int(right) / 60)


def test_a_calibration_is_kept_in_a_file_and_used_again(tmp_path):
    settings: dict[str, Any] = {"source": load_data("demo-source").take(60), "shifts": SHIFTS[1::2], "views": 1}
    first = Counting()
    made = shiftproof.estimate(first, "demo", images=100, calibration=tmp_path / "kept.json", **settings)
    again = Counting()
    assert shiftproof.estimate(again, "demo", images=100, calibration=tmp_path / "kept.json", **settings) == made
    assert again.calls[0] < first.calls[0] / 3
    with pytest.raises(ConfigurationError, match="made for another model"):
        shiftproof.estimate("cifar10-gaussian", "demo", calibration=tmp_path / "kept.json", **settings)
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(DataError, match="Cannot read the calibration"):
        shiftproof.estimate(Counting(), "demo", calibration=tmp_path / "bad.json", **settings)


def test_intervals_of_direct_methods_hold_how_far_off_they_are(demo):
    found = demo(load_data("demo").take(150), method="average_confidence")
    assert found.error > 0.1
    assert found.accuracy - found.low > found.error  # too sure under shift, by far more than the sampling of inputs


def test_one_answer_to_everything_is_not_trusted(demo):
    found = demo(torch.full((60, 3, 32, 32), 0.5))
    assert "same answer" in " ".join(found.warnings)


def test_atc_reads_scores_or_logits():
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(200, 4)) * 3, rng.normal(size=(300, 4)) * 2
    correct = rng.random(200) < 0.7
    from shiftproof.measures.estimation import negative_entropy

    by_logits = atc(source, correct, target, score="entropy")
    assert by_logits == atc(negative_entropy(source), correct, negative_entropy(target), score="entropy")
    assert by_logits.method == "atc_entropy"


def test_atc_of_perfect_and_hopeless_sources():
    scores = np.linspace(0, 1, 60)
    assert atc(scores, np.ones(60, bool), scores - 5).accuracy == 1.0
    assert "no error" in " ".join(atc(scores, np.ones(60, bool), scores).warnings)
    assert atc(scores, np.zeros(60, bool), scores + 5).accuracy == 0.0
    assert "equal" in " ".join(atc(np.ones(60), scores > 0.3, scores).warnings)


def test_confidence_methods_are_their_formulas():
    source, target = np.array([0.9, 0.7]), np.array([0.6, 0.5])
    assert average_confidence(target).accuracy == pytest.approx(0.55)
    doc = difference_of_confidences(source, [True, False], target)
    assert doc.accuracy == pytest.approx(0.5 - (0.8 - 0.55))
    assert agreement([[1, 0], [0, 1], [1, 0]], [[2, 0], [1, 0], [3, 1]]).accuracy == pytest.approx(2 / 3)


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    held = 0
    for trial in range(60):
        correct, sure = rng.random(300) < 0.7, rng.random(300)
        found = atc(sure, correct, rng.random(300), seed=trial)
        held += found.low <= 0.7 <= found.high
    assert held >= 52  # 95% of 60 is 57


def copies(slope=0.8, offset=0.1, kinds=6, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for kind in range(kinds):
        for severity in (1, 3, 5):
            value = 1 - 0.1 * severity - 0.02 * kind
            accuracy = slope * value + offset + noise * rng.normal()
            made.append(Copy(f"kind{kind}@{severity}", accuracy, 100, {"invariance": value}))
    return tuple(made)


REFERENCE = Reference(accuracy=0.9, confidence=0.9, confidence_threshold=0.5, entropy_threshold=-1.0)


def test_a_calibrated_line_is_the_least_squares_line():
    made = Calibration(REFERENCE, copies(noise=0.05))
    line = ErrorLine.fit(
        [copy.statistics["invariance"] for copy in made.copies], [copy.accuracy for copy in made.copies]
    )
    assert made.predict("invariance", {"invariance": 0.66}) == pytest.approx(float(line.predict(0.66)))


def test_held_out_error_leaves_out_the_whole_kind():
    exact = Calibration(REFERENCE, copies())
    assert exact.errors["invariance"] == pytest.approx(0.0, abs=1e-12)
    strange = Copy("odd@1", 0.1, 100, {"invariance": 0.7}), Copy("odd@5", 0.1, 100, {"invariance": 0.7})
    made = Calibration(REFERENCE, (*copies(), *strange))
    # Drawn without either odd copy, the line is exact, and off by the same for both.
    assert made.family_errors.residuals("invariance")[-2:] == pytest.approx([0.1 - 0.66, 0.1 - 0.66])


def test_calibrations_are_written_and_read(demo):
    row = json.loads(json.dumps(demo.calibration.to_row(), allow_nan=False))
    assert Calibration.from_row(row) == demo.calibration
    by_shift = replace(demo.calibration, neighborhood=parse("gaussian_noise@1"), n=3)
    again = Calibration.from_row(json.loads(json.dumps(by_shift.to_row())))
    assert (again.neighborhood, again.n) == ("gaussian_noise@1", 3)
    perfect = Calibration(Reference(1.0, 0.9, -math.inf, -math.inf), ())
    assert Calibration.from_row(json.loads(json.dumps(perfect.to_row(), allow_nan=False))) == perfect


def test_too_few_kinds_cannot_be_calibrated_on():
    made = Calibration(REFERENCE, copies(kinds=3))
    assert all(METHODS[name].read for name in made.methods())
    with pytest.raises(ConfigurationError, match="cannot be calibrated"):
        made.predict("invariance", {"invariance": 0.5})


def test_a_black_box_is_estimated_by_its_outputs():
    model = load_model("demo")
    box = BlackBox(lambda x: model(x).detach().numpy())
    made = Estimator.fit(box, load_data("demo-source").take(60), shifts=SHIFTS[1::2], n=1, images=60)
    assert "bn_distance" not in made.calibration.methods()
    assert made(load_data("demo").take(60)).accuracy > 0.6
    with pytest.raises(ConfigurationError, match="cannot be used here"):
        made(load_data("demo").take(60), method="bn_distance")


def labelled(count=60, classes=3):
    return load_data((images(count, side=32), torch.arange(count) % classes))


@pytest.mark.parametrize(
    ("model", "source", "kind", "told"),
    [
        (Brightness(), lambda: load_data(images(10, side=32)), DataError, "source has no labels"),
        (Brightness(), lambda: labelled(classes=1), DataError, "same label"),
        (Brightness(), lambda: labelled(classes=7), DataError, "do not fit"),
        (lambda x: Brightness()(x).softmax(1), labelled, ModelError, "probabilities, not logits"),
        (lambda x: Brightness()(x) * math.nan, labelled, ModelError, "returns NaN"),
        (lambda x: Brightness()(x).argmax(1), labelled, ModelError, "wrong shape"),
    ],
)
def test_bad_sources_and_models_are_told(model, source, kind, told):
    with pytest.raises(kind, match=told):
        Estimator.fit(load_model(model), source(), shifts=SHIFTS, n=1)


def test_bad_options_are_told(demo):
    with pytest.raises(ConfigurationError, match="no method of estimation named 'act'"):
        demo(load_data("demo").take(10), method="act")
    with pytest.raises(ConfigurationError, match="second model"):
        shiftproof.estimate("demo", "demo", method="agreement")
    with pytest.raises(DataError, match="NaN"):
        atc([0.1, math.nan], [True, False], [0.2])
    with pytest.raises(DataError, match="Invalid scores"):
        average_confidence([])
    with pytest.raises(DataError, match="outputs of the two models do not match"):
        agreement([[1.0, 2.0]], [[1.0, 2.0, 3.0]])
    with pytest.raises(DataError, match="correctness flag"):
        difference_of_confidences([0.5, 0.6], [True], [0.5])


class Counting(torch.nn.Module):
    """A model that counts its calls, and is killed at one of them."""

    def __init__(self, most: int = 10**9) -> None:
        super().__init__()
        self.inner, self.calls, self.most = load_model("demo"), [0], most

    def decides_outputs(self) -> str:
        return "the demo"

    def forward(self, inputs: torch.Tensor) -> Any:
        self.calls[0] += 1
        if self.calls[0] > self.most:
            raise KeyboardInterrupt
        return self.inner(inputs)


def test_an_estimate_that_was_killed_resumes_with_the_same_answer(tmp_path):
    source = load_data("demo-source").take(60)
    settings: dict[str, Any] = {"shifts": SHIFTS[1::2], "views": 1, "images": 30, "source": source}
    whole = Counting()
    expected = shiftproof.estimate(whole, "demo", **settings)
    killed, found = 0, None
    while found is None:
        try:
            found = shiftproof.estimate(Counting(whole.calls[0] * 2 // 3), "demo", out=tmp_path, **settings)
        except KeyboardInterrupt:
            killed += 1
            assert killed < 9, "it does not get on"
    assert found == expected
    assert killed
    heard: list[tuple[int, int]] = []
    again = Counting()
    told = shiftproof.estimate(
        again, "demo", out=tmp_path, on_progress=lambda done, total, _: heard.append((done, total)), **settings
    )
    assert told == expected
    assert heard == [(5, 5)]
    assert again.calls[0] <= 6, "what it returns, the source as it is, and the probes of its behaviour"


def test_a_run_directory_of_estimates_is_of_one_model_and_one_source(tmp_path):
    settings: dict[str, Any] = {"shifts": SHIFTS[:2], "views": 1, "images": 20, "out": tmp_path}
    source = load_data("demo-source").take(60)
    shiftproof.estimate("demo", "demo", source=source, **settings)
    with pytest.raises(RunError, match="another source"):
        shiftproof.estimate("demo", "demo", source=load_data("demo-source").take(61), **settings)
    with pytest.raises(RunError, match="another model"):
        shiftproof.estimate(
            torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10)), "demo", source=source, **settings
        )


def test_the_demo_is_no_source_for_a_model_and_data_of_the_user_s_own(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), np.uint8)
    own = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10))
    with pytest.raises(ConfigurationError, match="labelled source is missing"):
        shiftproof.estimate(own, images, views=1, shifts=SHIFTS[:2])
    with pytest.raises(ConfigurationError, match="labelled source is missing"):
        shiftproof.diagnose(own, images, kinds=["fog"], out=tmp_path)
    for model, data in (("demo", images), (ModelSpec("demo"), images), ("cifar10-vit", images), (own, "demo")):
        assert source_for(model, data, None) == DataSpec("demo-source")
    assert source_for(own, DataSpec("demo", size=24), None) == DataSpec("demo-source", size=24)
    assert source_for(own, images, "mine") == "mine"
