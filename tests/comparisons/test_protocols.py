"""Protocols: every stream they are made of, means over them, resumed, and nothing cut in silence."""

import json
from typing import Any

import numpy as np
import pytest

from shiftproof.cli.showing_comparisons import show_protocol
from shiftproof.comparisons.protocols import PROTOCOLS, run_protocol
from shiftproof.data import load_data
from shiftproof.errors import ConfigurationError

SMALL: dict[str, Any] = {"methods": ["bn"], "shifts": ["contrast", "fog"], "batch_size": 10, "device": "cpu"}


@pytest.fixture(scope="module")
def data():
    return load_data("demo").take(20)


def test_the_plans_are_the_published_ones():
    orders = PROTOCOLS["cin-c"].plan("cin-c", 10, 0, 64, None)
    assert [(each.stream, each.seed, each.severity) for each in orders] == [("concatenated", n, 5.0) for n in range(10)]
    ccc = PROTOCOLS["ccc"].plan("ccc", 3, 0, 64, None)
    assert len({(each.target, each.speed, each.seed) for each in ccc}) == len({each.folder for each in ccc}) == 27
    assert {each.speed for each in ccc} == {1000, 2000, 5000}
    assert {each.seed for each in ccc} == {43, 44, 45}
    sizes = PROTOCOLS["batch-sizes"].plan("batch-sizes", 3, 0, 64, None)
    assert {each.batch_size for each in sizes} == {1, 8, 64}


def test_ten_orders_in_one_call(data, tmp_path, capsys):
    found = run_protocol("demo", data, protocol="cin-c", out=tmp_path, **SMALL)
    assert len(found.runs) == 10
    assert {run.shifts for run in found.runs} == {("contrast@5", "fog@5"), ("fog@5", "contrast@5")}
    assert {sum(run.traces["bn"].images) for run in found.runs} == {40}
    source, bn = found.to_rows()
    values = np.array([run.traces["bn"].accuracy for run in found.runs])
    assert bn["accuracy"] == pytest.approx(values.mean())
    assert bn["accuracy_low"] < values.mean() < bn["accuracy_high"]
    assert bn["worst"] == pytest.approx(values.min())
    assert source["against_source"] == 0
    again = run_protocol("demo", data, protocol="cin-c", out=tmp_path, **SMALL)
    assert [run.traces for run in again.runs] == [run.traces for run in found.runs]
    written = json.loads((tmp_path / "protocol.json").read_text())
    assert written["rows"] == found.to_rows()
    assert written["streams"][0]["shifts"] == list(found.runs[0].shifts)
    show_protocol(found, {})
    assert "cin-c (10)" in capsys.readouterr().out


def test_recurring_streams_tell_every_visit(data, tmp_path):
    found = run_protocol("demo", data, protocol="recurring", runs=1, out=tmp_path, **SMALL)
    (run,) = found.runs
    assert sum(run.traces["bn"].images) == 20 * 2 * 20
    shifts = [shift for shift, _ in run.traces["bn"].shifts]
    assert shifts == [*run.shifts] * 20  # one order, visited over and over
    visits = json.loads((tmp_path / "protocol.json").read_text())["visits"]["bn"]
    assert len(visits) == 20
    assert np.mean(visits) == pytest.approx(run.traces["bn"].accuracy)
    assert found.to_rows()[0]["accuracy_low"] is None
    assert "1 of the 3 streams of recurring were run." in found.notes


@pytest.mark.filterwarnings("error")
def test_visits_in_which_no_batch_begins_have_no_accuracy(data, tmp_path):
    run_protocol("demo", data, protocol="recurring", runs=1, out=tmp_path, images=100, **SMALL)
    text = (tmp_path / "protocol.json").read_text()
    visits = json.loads(text, parse_constant=pytest.fail)["visits"]["bn"]
    assert [visit is None for visit in visits] == [False, True] * 10  # a batch is two visits long


@pytest.mark.parametrize(("protocol", "streams"), [("correlated", 1), ("batch-sizes", 3), ("mixed", 1)])
def test_other_protocols_run(protocol, streams, data, tmp_path):
    found = run_protocol("demo", data, protocol=protocol, runs=1, images=16, out=tmp_path, **SMALL)
    assert len(found.runs) == streams
    if protocol == "mixed":
        assert found.runs[0].shifts == ("contrast", "fog")
    if protocol == "batch-sizes":
        assert [len(run.traces["bn"].images) for run in found.runs] == [16, 2, 1]


@pytest.mark.slow
def test_ccc_calibrates_once_for_all_streams(data, tmp_path):
    found = run_protocol("demo", data, protocol="ccc", runs=1, images=40, calibration_images=10, out=tmp_path, **SMALL)
    assert len(found.runs) == 9
    assert [row["group"] for row in found.to_rows()[::2]] == ["easy", "medium", "hard"]
    assert "Streams have 40 images; the published ones have 7,500,000." in found.notes


@pytest.mark.parametrize("given", [{"protocol": "cinc"}, {"runs": 0}, {"protocol": "ccc", "data": "suite:none"}])
def test_refusals(given, tmp_path):
    with pytest.raises(ConfigurationError):
        run_protocol("demo", out=tmp_path, **given)
