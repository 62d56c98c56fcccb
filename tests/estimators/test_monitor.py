import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from shiftproof import adapt, load_data, load_model
from shiftproof.errors import ConfigurationError, DataError, ModelError
from shiftproof.estimators import Calibration, Monitor
from shiftproof.estimators.detectors import Detector, mean_bets
from shiftproof.estimators.drift import Drift, pooled
from shiftproof.estimators.evidence import as_batches, observe
from shiftproof.estimators.fitting import begin, finish
from shiftproof.estimators.from_outputs import calibrate_outputs
from shiftproof.estimators.hysteresis import Hysteresis
from shiftproof.estimators.references import Reference, summarize, values_of
from shiftproof.estimators.source_copies import Copy, remixed_places
from shiftproof.estimators.status import Status
from shiftproof.models import collect_statistics
from shiftproof.shifts import parse
from tests.estimators.networks import Brightness, constant, images

REFERENCE = Reference(accuracy=0.9, confidence=0.9, confidence_threshold=0.5, entropy_threshold=-1.0)


def calibration(**views):
    """Return copies in which accuracy is 2 c - 1 for a mean confidence of c, which a window must find again."""
    made = [Copy("clean", 0.9, 100, {"confidence": 0.95, "drift": 0.5})]
    made += [
        Copy(f"kind{kind}@{k}", 2 * sure - 1, 100, {"confidence": sure, "drift": 0.5 + k})
        for kind in range(5)
        for k, sure in enumerate((0.9, 0.8 - 0.01 * kind, 0.6 + 0.01 * kind))
    ]
    return Calibration(REFERENCE, tuple(made), **views)


def sure(level):
    """Return a model that gives every image the same confidence in class 1 of 2."""
    logit = float(np.log(level / (1 - level)))
    return lambda x: torch.tensor([[0.0, logit]]).repeat(len(x), 1)


def monitor(model, **options):
    return Monitor(model, calibration(), **{"window": 100, "share": 0.0, **options})


def test_answers_are_the_models_own():
    model = Brightness()
    watched = Monitor(model, calibration(), window=100)
    set_ = images(30)
    torch.testing.assert_close(watched(set_), model(set_), rtol=0, atol=0)
    assert watched.seen == 30


def test_the_window_estimates_what_is_in_it():
    watched = monitor(sure(0.9))
    for _ in range(10):
        watched(images(20))
    status = watched.status()
    assert status.method == "calibrated_confidence"
    assert status.accuracy == pytest.approx(0.8, abs=1e-6)
    assert status.low <= status.accuracy <= status.high
    assert (status.seen, status.window) == (200, 100)
    assert status.classes == (0.0, 1.0)
    assert status.entropy == pytest.approx(-(0.9 * np.log(0.9) + 0.1 * np.log(0.1)), abs=1e-6)
    watched.model = sure(0.8)
    for _ in range(5):
        watched(images(20))
    assert watched.status().accuracy == pytest.approx(0.6, abs=1e-6)  # nothing of before is left in it


def test_the_alarm_rises_with_trouble_stays_and_falls_after_it():
    watched = monitor(sure(0.9))

    def serve(level, batches=10):
        watched.model = sure(level)
        raised = []
        for _ in range(batches):
            watched(images(20))
            raised.append(watched.status().alarms["accuracy"])
        return raised

    assert not any(serve(0.9))
    assert not any(serve(0.86))  # less than is tolerated
    fog = serve(0.7)
    assert not fog[0]
    assert fog[-1]
    assert fog == sorted(fog)  # it rises once
    assert watched.status().changed_at == {"accuracy": 400}
    assert all(serve(0.75))  # still below what is tolerated
    clear = serve(0.9)
    assert clear[0]
    assert not clear[-1]


@given(st.lists(st.floats(0, 1), max_size=60), st.integers(1, 4))
def test_hysteresis_needs_patience_both_ways(signals, patience):
    alarm, history = Hysteresis(high=0.6, low=0.3, patience=patience), []
    for signal in signals:
        before, alarm = alarm, alarm.step(signal)
        history.append(signal)
        last = history[-patience:]
        if alarm.raised and not before.raised:
            assert len(last) == patience
            assert min(last) > 0.6
        if before.raised and not alarm.raised:
            assert max(last) < 0.3
            assert len(last) == patience
    if len(signals) >= patience and all(signal > 0.6 for signal in signals):
        assert alarm.raised


def test_a_monitor_is_calibrated_on_any_labelled_data():
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 3), np.uint8)
    labels = (pixels.mean((1, 2, 3)) > 127).astype(int)
    options: dict[str, Any] = {"shifts": ["contrast@3", "fog@3"], "n": 2}
    one = Monitor.fit(Brightness(), (pixels, labels), sets=[(255 - pixels, labels)], **options)
    same = load_data((pixels, labels)), load_data((255 - pixels, labels))
    other = Monitor.fit(Brightness(), same[0], sets=[same[1]], **options)
    assert [copy.statistics for copy in one.calibration.copies] == [
        copy.statistics for copy in other.calibration.copies
    ]


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(3), nn.Sequential(nn.Dropout(0.5))])
def test_a_model_in_training_mode_is_refused_unless_it_adapts(layer):
    model = nn.Sequential(layer, Brightness())
    with pytest.raises(ModelError, match=r"model\.eval\(\)"):
        Monitor(model.train(), calibration())
    with pytest.raises(ModelError, match="in training mode"):
        Monitor.fit(model, (images(60), torch.arange(60) % 3))
    Monitor(model.eval(), calibration())
    Monitor(adapt(Brightness(), "bn"), calibration())


def test_an_empty_batch_is_answered_and_not_counted():
    watched = monitor(sure(0.9))
    for count in (0, 60, 0):
        watched(images(count))
    assert watched.status().failures == 0
    assert watched.seen == 60


def test_sampled_inputs_are_looked_at_through_views():
    watched = Monitor(Brightness(), calibration(n=4, neighborhood="brightness"), window=200, share=0.5)
    for seed in range(4):
        watched(images(50, seed))
    status: Any = watched.status()
    looked = len(watched._held["invariance"])
    assert 70 < looked < 130
    assert 1 / 3 <= status.invariance < 1
    assert monitor(constant).status().invariance is None


def test_drift_is_that_of_the_statistics_of_the_batches():
    model, set_ = Brightness(), images(60)
    drift = Drift(model)
    for part in set_.split([10, 30, 20]):
        with drift.taking(len(part)), torch.no_grad():
            model(part)
    for found, expected in zip(pooled(drift._recent), collect_statistics(model, [set_]), strict=True):
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-5)
        np.testing.assert_allclose(found.var, expected.var, rtol=1e-4)
        assert found.images == expected.images == 60
    evidence = observe(model, as_batches(set_), drift=True)
    assert drift.mean() == pytest.approx(evidence.drift, rel=1e-4)
    darker = Drift(model)
    with darker.taking(60), torch.no_grad():
        model(set_ * 0.3)
    assert darker.by_layer()["norm"] > 2 * drift.by_layer()["norm"]


def test_the_drift_alarm_rises_when_statistics_move():
    watched = monitor(Brightness(), drift_every=1, patience=1)
    for seed in range(3):
        watched(images(60, seed))
    assert not watched.alarms["drift"].raised
    for seed in range(8):
        watched(images(60, seed) * 0.2)
    assert watched.alarms["drift"].raised
    assert set(watched.status().drift) == {"norm"}


def test_a_restored_monitor_goes_on_as_if_nothing_had_happened(tmp_path):
    model = Brightness()
    options: dict[str, Any] = {"window": 100, "share": 0.2, "drift_every": 2, "patience": 1}
    whole, first, second = (Monitor(model, calibration(n=2), **options) for _ in range(3))
    batches = [images(25, seed) * (1 - 0.1 * seed) for seed in range(8)]
    for number, batch in enumerate(batches):
        whole(batch)
        (first if number < 5 else second)(batch)
        if number == 4:
            whole.state_dict()  # so that both have looked at the inputs that wait
            first.save(tmp_path / "state.npz")
            second.load(tmp_path / "state.npz")
            assert second.status() == first.status()
    assert second.status() == whole.status()
    with pytest.raises(DataError, match="Cannot read the monitor state"):
        whole.load(tmp_path / "none.npz")


def test_a_model_that_gives_one_answer_raises_an_alarm_however_sure_it_is():
    watched = monitor(sure(0.95), patience=1)
    for _ in range(5):
        watched(images(20))
    assert watched.status().alarms == {"accuracy": False, "one_class": True}
    assert "same answer to 100%" in watched.status().warnings[-1]


def test_exports_are_readable(tmp_path):
    status = Status(
        seen=120, window=100, accuracy=0.8, low=0.7, high=0.9, entropy=0.5, classes=(0.25, 0.75),
        drift={'a"b\\c': 1.5}, alarms={"accuracy": True},
    )  # fmt: skip
    text = status.prometheus()
    assert "shiftproof_estimated_accuracy 0.8" in text
    assert 'shiftproof_normalization_drift{layer="a\\"b\\\\c"} 1.5' in text
    assert 'shiftproof_alarm{alarm="accuracy"} 1' in text
    assert "invariance" not in text  # nothing is told of what is not known
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+(\{\w+=\".*\"\})? [0-9.e+-]+", line)
    assert "\n" not in status.json_line()
    assert json.loads(status.json_line())["classes"] == [0.25, 0.75]


def test_empty_windows_and_bad_options_are_told():
    watched = monitor(constant)
    status = watched.status()
    assert status.accuracy is None
    assert status.warnings == ("No inputs have come yet.",)
    json.loads(status.json_line())
    assert "estimated_accuracy" not in status.prometheus()
    with pytest.raises(ConfigurationError, match="Invalid monitor settings"):
        monitor(constant, window=3)


def test_what_fails_in_watching_never_reaches_who_asked(caplog):
    flat = monitor(lambda x: x)  # answers of a shape that cannot be watched are answers all the same
    assert flat(images(4)).shape == images(4).shape
    assert "returns the wrong shape" in flat.status().warnings[0]
    watched = monitor(constant)
    watched(images(4))
    for _ in range(2):
        watched.observe(images(4), torch.zeros(4, 7))
    status = watched.status()
    assert "failed 2 times" in status.warnings[0]
    assert "number of classes has changed" in status.warnings[0]
    assert (status.seen, status.failures) == (4, 2)
    assert "shiftproof_watching_failures_total 2" in status.prometheus()
    assert [record.getMessage() for record in caplog.records].count("Watching failed; the model goes on serving.") == 2
    watched(images(4))
    assert watched.seen == 8  # it goes on


def test_a_model_that_fails_says_so_itself():
    def broken(x):
        raise RuntimeError("out of order")

    watched = monitor(broken)
    with pytest.raises(RuntimeError, match="out of order"):
        watched(images(4))
    assert watched.failures == 0


def test_views_and_taps_that_fail_leave_the_answer_alone(monkeypatch):
    def no_views(*_):
        raise ValueError("no views today")

    model = Brightness()
    watched = Monitor(model, calibration(neighborhood=no_views), window=100, share=1.0)
    torch.testing.assert_close(watched(images(20)), model(images(20)), rtol=0, atol=0)
    assert "no views today" in watched.status().warnings[0]
    assert watched.seen == 20
    monkeypatch.setattr("shiftproof.models.statistics.moments", no_views)
    tapped = Monitor(model, calibration(), window=100, share=0.0, drift_every=1)
    torch.testing.assert_close(tapped(images(20)), model(images(20)), rtol=0, atol=0)
    assert (tapped.failures, tapped.seen) == (1, 20)


def test_a_window_unlike_every_copy_says_so():
    copies = [
        Copy(c.shift, c.accuracy, 100, {**c.statistics, "certain": c.accuracy + 0.05}) for c in calibration().copies
    ]
    watched = Monitor(lambda x: torch.eye(10)[:1].repeat(len(x), 1) * 1e-3, Calibration(REFERENCE, tuple(copies)))
    watched(images(60))
    status = watched.status()
    assert status.method == "calibrated_confidence"
    assert status.accuracy == 0.0
    assert "unlike every shifted copy" in " ".join(status.warnings)


def test_a_monitor_looks_as_its_calibration_did():
    model = Brightness()
    source = load_data((images(60, side=32), torch.arange(60) % 3))
    shifts = [f"{name}@5" for name in ("saturate", "spatter", "gaussian_blur", "speckle_noise")]
    watched = Monitor.fit(model, source, shifts=shifts, neighborhood="brightness", n=3, share=1.0, window=60)
    assert (watched.calibration.neighborhood, watched.calibration.n) == ("brightness", 3)
    watched(images(60, side=32))
    (clean,) = (copy for copy in watched.calibration.copies if copy.shift == "clean")
    assert watched.status().invariance == pytest.approx(clean.statistics["invariance"], abs=0.1)


def test_few_inputs_are_not_trusted_and_raise_no_alarm_on_the_window():
    watched = monitor(sure(0.9), patience=1)
    watched(images(20))
    status = watched.status()
    assert "Only 20 inputs" in status.warnings[0]
    assert not any(status.alarms.values())


def test_statistics_of_a_window_are_those_of_the_set():
    model, set_ = load_model("demo"), next(iter(load_data("demo").take(100).batches(100))).inputs
    watched = Monitor(model, calibration(), window=100, share=0.0)
    for part in parse("fog@3")(set_, torch.arange(100)).split(30):
        watched(part)
    found = observe(model, as_batches(parse("fog@3")(set_, torch.arange(100))))
    expected = summarize(values_of(found, REFERENCE))
    held = summarize(watched._found()[1])
    for name in ("confidence", "confident", "certain", "balance"):
        assert held[name] == pytest.approx(expected[name], abs=1e-6)


def drawn(count, mix, seed, spread=1.0):
    rng = np.random.default_rng(seed)
    labels = rng.choice(len(mix), count, p=np.array(mix) / sum(mix))
    return (np.eye(len(mix))[labels] * 4 + spread * 1.5 * rng.normal(size=(count, len(mix)))).astype(np.float32), labels


def learnt():
    return calibrate_outputs(drawn(800, [1, 1, 1, 1], 0))


def test_stored_outputs_are_watched_without_a_model_and_alarms_are_told_apart():
    usual = Monitor(None, learnt(), window=400)
    usual.observe(outputs=drawn(6000, [1, 1, 1, 1], 1)[0])
    assert not any(usual.status().alarms.values())
    assert usual.status().alarm_every == 400_000  # 20,000 / 0.05, over three alarms that share it

    mixed = Monitor(None, learnt(), window=400)
    mixed.observe(outputs=drawn(2000, [1, 1, 1, 1], 2)[0])
    mixed.observe(outputs=drawn(2000, [7, 1, 1, 1], 3)[0].tolist())  # lists are as good as arrays
    status = mixed.status()
    assert [name for name, on in status.alarms.items() if on] == ["class_mix"]
    assert status.changed_at["class_mix"] == pytest.approx(2000, abs=150)
    assert "Class mix changed: more class 0 2" in status.notes[0]
    assert status.mix[0] == pytest.approx(0.7, abs=0.06)
    text = status.prometheus()
    assert 'shiftproof_alarm{alarm="class_mix"} 1' in text
    assert 'shiftproof_alarm{alarm="unfamiliar"} 0' in text
    assert 'shiftproof_alarm_changed_at_input{alarm="class_mix"}' in text
    assert 'shiftproof_estimated_class_share{class="0"}' in text

    worse = Monitor(None, learnt(), window=400)
    worse.observe(outputs=drawn(2000, [1, 1, 1, 1], 4)[0])
    worse.observe(outputs=drawn(1000, [1, 1, 1, 1], 5)[0] / 3)  # as right as ever, and much less sure
    assert worse.status().alarms["accuracy"]
    assert worse.status().changed_at["accuracy"] == pytest.approx(2000, abs=100)
    with pytest.raises(ConfigurationError, match="no model"):
        worse(images(4))


def test_arrays_are_watched_and_answered_as_the_model_answers():
    def model(x):
        return np.asarray(x).reshape(len(x), -1)[:, :4] * 10

    watched = Monitor(model, learnt(), window=60, share=0.0)
    given = np.random.default_rng(0).random((30, 3, 8, 8)).astype(np.float32)
    answer = watched(given)
    assert isinstance(answer, np.ndarray)
    np.testing.assert_array_equal(answer, model(given))
    assert (watched.seen, watched.failures) == (30, 0)


def test_inputs_far_out_in_feature_space_are_told_as_unfamiliar():
    model = load_model("demo")
    clean: Any = observe(model, load_data("demo-source").take(200).batches(100))
    watched = Monitor(model, finish(begin(clean, clean.labels), ()), window=100, share=0.0)
    batch: Any = next(iter(load_data("demo").take(200).batches(200)))
    for _ in range(2):
        watched(batch.inputs)
    detector = watched.watch.detectors["unfamiliar"]
    assert not detector.raised
    for seed in range(4):
        watched(images(50, seed, side=32))
    assert detector.raised
    assert detector.changed_at == pytest.approx(400, abs=20)


def test_a_watch_goes_on_from_its_state(tmp_path):
    stream = np.concatenate([drawn(700, [1, 1, 1, 1], 1)[0], drawn(500, [9, 1, 1, 1], 2)[0]])
    whole, first, second = (Monitor(None, learnt(), window=100) for _ in range(3))
    for start in range(0, 1200, 100):
        part = stream[start : start + 100]
        whole.observe(outputs=part)
        (first if start < 900 else second).observe(outputs=part)
        if start == 800:
            first.save(tmp_path / "state.npz")
            second.load(tmp_path / "state.npz")
    assert second.status() == whole.status()


@pytest.mark.parametrize("least", [0.9, 0.35])
def test_false_alarms_are_as_rare_as_stated_and_changes_are_found(least):
    """A quick look at what the slow test simulates in full."""
    rng, false = np.random.default_rng(1), 0
    places: list[int | None] = []
    for _ in range(40):
        detector = Detector(alpha=0.1)
        detector.step(mean_bets((rng.random(20_000) < least).astype(float), least))
        false += detector.raised
        detector = Detector(alpha=0.1)
        detector.step(mean_bets((rng.random(5_000) < least).astype(float), least))
        if not detector.raised:
            detector.step(mean_bets((rng.random(3_000) < least - 0.1).astype(float), least))
            assert detector.raised
            places.append(detector.changed_at)
    assert false <= 9  # 4 are to be expected at most, more than 9 have a probability of 1%
    assert np.median(np.array(places, float)) == pytest.approx(5_000, abs=60)


@pytest.mark.slow
@pytest.mark.parametrize("least", [0.9, 0.7])
def test_at_most_alpha_of_500_streams_alarm_at_the_boundary_and_a_fall_of_ten_points_is_found_within_500(least):
    rng, alpha, streams = np.random.default_rng(2), 0.05, 500
    false = 0
    for _ in range(streams):
        detector = Detector(alpha)
        detector.step(mean_bets((rng.random(20_000) < least).astype(float), least))
        false += detector.raised
    assert false <= alpha * streams
    delays = []
    for _ in range(60):
        detector = Detector(alpha)
        detector.step(mean_bets((rng.random(10_000) < least).astype(float), least))
        while not detector.raised and detector.seen < 14_000:
            detector.step(mean_bets((rng.random(10) < least - 0.1).astype(float), least))
        delays.append(max(0, detector.seen - 10_000))
    assert np.median(delays) <= 500


@pytest.mark.slow
def test_mixes_of_the_demos_clean_images_raise_no_alarm_of_accuracy():
    model: Any = load_model("demo")
    clean: Any = observe(model, load_data("demo-source").batches(250))
    calibration_ = finish(begin(clean, clean.labels), ())
    target: Any = observe(model, load_data("demo").batches(250))
    rng, alarms = np.random.default_rng(3), 0
    for _ in range(60):
        watched = Monitor(None, calibration_, window=400)
        places = remixed_places(target, rng.dirichlet(np.ones(10)), rng)
        watched.observe(outputs=target.logits[places[:400]])
        alarms += watched.watch.detectors["accuracy"].raised
    assert alarms <= 3
