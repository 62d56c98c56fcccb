"""Evaluate: the trace against a plain loop, and a killed run that goes on bit for bit."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
import torch

from shiftproof import evaluate
from shiftproof.adapters import adapt
from shiftproof.data import load_data
from shiftproof.errors import ConfigurationError, DataError, RunError
from shiftproof.models import BlackBox, load_model
from shiftproof.runs import Store
from shiftproof.streams import Ccc, Trace, make_stream

LENGTH = 128


def stream(**options):
    given: dict[str, Any] = {"shifts": ["contrast", "fog"], "speed": 20, "length": LENGTH, "batch_size": 16, **options}
    return Ccc(load_data("demo").take(50), **given)


@pytest.fixture(scope="module")
def model():
    return load_model("demo")


def test_a_trace_is_what_a_plain_loop_counts(model):
    right, images = [], []
    with torch.no_grad():
        for batch in stream():
            right.append(int((model(batch.inputs).argmax(1) == batch.labels).sum()))
            images.append(len(batch))
    trace = evaluate(model, stream())
    assert (list(trace.right), list(trace.images)) == (right, images)
    assert trace.accuracy == sum(right) / LENGTH
    assert sum(count for _, count in trace.shifts) == LENGTH
    assert len(trace.seconds) == len(right)
    assert trace.to_row()["images"] == LENGTH


def test_a_safe_choice_gets_the_labels_it_asks_for_and_resumes(model, tmp_path):
    def safe():
        return adapt(model, "safe", candidates="bn", label_share=0.5, horizon=50)

    whole = safe()
    expected = evaluate(whole, stream(length=640))
    assert 10 < whole.audit.labels < 320
    assert whole.wanted == ()
    assert whole.serving == "bn"  # under contrast and fog it is far ahead
    evaluate(safe(), stream(length=640), out=tmp_path, stop=320, chunk=10)
    resumed = safe()
    trace = evaluate(resumed, stream(length=640), out=tmp_path, chunk=10)
    assert trace.right == expected.right
    assert resumed.switches == whole.switches
    assert resumed.gain() == whole.gain()


def test_an_adapter_learns_along_the_stream_and_hears_of_shifts(model):
    adapted = adapt(model, "tent", preset="cifar", reset="each_shift")
    trace = evaluate(adapted, stream())
    assert adapted.steps == LENGTH // 16
    assert trace.resets == adapted.resets > 0
    again = adapt(model, "tent", preset="cifar", reset="each_shift")
    for batch in stream():
        again.announce(batch.shift)
        again(batch.inputs)
    state = again.state_dict()
    assert all(
        torch.equal(value, state[name]) for name, value in adapted.state_dict().items() if torch.is_tensor(value)
    )


def test_functions_are_models_too(model):
    box = BlackBox(lambda images: images.mean((2, 3)).repeat(1, 4)[:, :10])
    assert evaluate(box, stream(length=20)).images == (16, 4)


def test_labels_the_model_cannot_give_are_refused():
    with pytest.raises(DataError, match="do not fit"):
        evaluate(BlackBox(lambda images: images.mean((2, 3))), stream(length=20))


@pytest.mark.parametrize("method", ["eta", "eata", "bn"])
def test_an_interrupted_run_goes_on_bit_for_bit(model, tmp_path, method):
    def fresh():
        return adapt(model, method, preset="cifar", lr=0.01) if method != "bn" else adapt(model, method)

    def on_progress(done, total, result):
        if done == 2:
            raise KeyboardInterrupt

    whole = evaluate(fresh(), stream())
    with pytest.raises(KeyboardInterrupt):
        evaluate(fresh(), stream(), out=tmp_path, chunk=2, on_progress=on_progress)
    adapted, steps = fresh(), []
    resumed = evaluate(adapted, stream(), out=tmp_path, chunk=2, on_progress=lambda *heard: steps.append(heard[0]))
    assert steps[0] == 2
    assert (resumed.right, resumed.images, resumed.shifts) == (whole.right, whole.images, whole.shifts)
    assert adapted.steps == LENGTH // 16
    assert len(list(tmp_path.glob("state-*.pt"))) <= 2
    assert evaluate(fresh(), stream(), out=tmp_path, chunk=2) == resumed


def test_a_run_directory_of_another_model_options_or_stream_is_refused(model, tmp_path):
    evaluate(adapt(model, "tent", preset="cifar"), stream(length=16), out=tmp_path)
    for other, along in (
        (adapt(model, "tent", preset="cifar", lr=0.5), stream(length=16)),
        (model, stream(length=16)),
        (adapt(model, "tent", preset="cifar"), stream(length=16, seed=1)),
    ):
        with pytest.raises(RunError, match="about another"):
            evaluate(other, along, out=tmp_path)


def test_a_lost_state_is_told(model, tmp_path):
    def on_progress(done, total, result):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(adapt(model, "bn"), stream(), out=tmp_path, chunk=2, on_progress=on_progress)
    for state in tmp_path.glob("state-*.pt"):
        state.unlink()
    with pytest.raises(RunError, match="is gone"):
        evaluate(adapt(model, "bn"), stream(), out=tmp_path, chunk=2)


def test_streams_without_labels_or_images_left_are_refused(model):
    unlabelled = make_stream("mixed", load_data(torch.rand(20, 3, 32, 32)), shifts=["contrast"], length=20)
    with pytest.raises(DataError, match="no labels"):
        evaluate(model, unlabelled)
    ended = stream()
    ended.seek(LENGTH)
    with pytest.raises(DataError, match="at its end"):
        evaluate(model, ended)


def test_a_part_of_a_stream_has_its_own_trace(model):
    whole = evaluate(model, stream())
    late = stream()
    late.seek(32)
    part = evaluate(model, late, stop=96)
    assert part.right == whole.right[2:6]
    assert part.start == 32
    assert part.rolling(window=16)[0][0] == 48
    with pytest.raises(ConfigurationError, match="not of the same stream"):
        part.area(whole)


def test_traces_compare(model):
    source = Trace((10,) * 40, (5,) * 40, (0.1,) * 40, (("fog@3", 400),))
    fallen = Trace((10,) * 40, (8,) * 20 + (1,) * 20, (0.1,) * 40, (("fog@3", 400),))
    assert fallen.area(source) == pytest.approx((20 * 3 - 20 * 4) / 400)
    assert fallen.collapse(source, window=20) == 200
    assert source.collapse(fallen, window=20) is None
    assert source.seconds_per_batch == 0.1


SCRIPT = """
import sys
from shiftproof.comparisons.along_streams import compare_on_stream
compare_on_stream("demo", "demo", out=sys.argv[1], stream="gradual", methods=["tent"], images=1000, speed=200,
       shifts=["contrast"], batch_size=2, device="cpu")
"""


@pytest.mark.slow
def test_kill_9_in_mid_run_loses_nothing(tmp_path):
    """Kill a run twice, each time after another state of the adapter; the third call ends as a run nobody killed."""
    command = [sys.executable, "-c", SCRIPT]
    seen: set[str] = set()
    for _ in range(2):
        process = subprocess.Popen([*command, str(tmp_path / "killed")])
        while not (new := {path.name for path in (tmp_path / "killed").glob("tent/state-*.pt")} - seen):
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        seen |= new
        assert not (tmp_path / "killed" / "stream.json").exists()
    for name in ("killed", "whole"):
        subprocess.run([*command, str(tmp_path / name)], check=True)
    assert answers(tmp_path / "killed" / "tent") == answers(tmp_path / "whole" / "tent")


def answers(folder):
    """Return the right answers of every batch, by where its chunk starts."""
    with Store(folder) as store:
        rows = [result.row for result in store if result.row is not None]
    return {row["start"]: row["right"] for row in rows}
