"""Endurance: the run over methods, and what the audit's section says of traces."""

import json
from typing import Any

import pytest

from shiftproof.adapters import SafeAdapter, make_adapter
from shiftproof.adapters import method as find
from shiftproof.audits.audit_settings import make_settings
from shiftproof.audits.sections import section
from shiftproof.audits.sections.base import Scope
from shiftproof.audits.sections.stability import LongStream
from shiftproof.audits.sections.trace_figures import trace_figure
from shiftproof.cli.showing_comparisons import show_stream_comparison
from shiftproof.comparisons.along_streams import compare_on_stream
from shiftproof.data import load_data
from shiftproof.errors import ConfigurationError
from shiftproof.models import BlackBox, load_model
from shiftproof.runs import Result
from shiftproof.runs.task import canonical
from shiftproof.shifts import corruption
from shiftproof.streams import Trace
from shiftproof.subjects import Subject

RUN: dict[str, Any] = {
    "stream": "gradual",
    "shifts": ["contrast"],
    "images": 96,
    "speed": 30,
    "batch_size": 32,
    "device": "cpu",
}


def trace(*right, images=100):
    return Trace((images,) * len(right), right, (0.1,) * len(right), (("fog@3", images * len(right)),))


def result(method, *right):
    row = {
        "images": 100 * len(right),
        "right": sum(right),
        "resets": 0,
        "batches": {"images": [100] * len(right), "right": list(right), "shifts": [["fog@3", 100 * len(right)]]},
        "milliseconds": [10.0] * len(right),
    }
    return Result(LongStream(find(method), 100, 64, (), 0), row, None, 1.0)


def test_methods_run_beside_the_source_and_resume(tmp_path, capsys):
    first = compare_on_stream("demo", "demo", out=tmp_path, methods=["tent", "guard"], **RUN)
    assert list(first.traces) == ["source", "tent", "guard"]
    again = compare_on_stream("demo", "demo", out=tmp_path, methods=["tent", "guard"], **RUN)
    assert again.traces == first.traces
    rows = json.loads((tmp_path / "stream.json").read_text())["rows"]
    assert rows == first.to_rows()
    assert rows[0]["area_against_source"] == 0
    show_stream_comparison(first, {})
    said = capsys.readouterr().out
    assert "guard" in said
    assert "against source" in said


@pytest.mark.slow
def test_batches_of_one_image_and_short_streams_are_told(tmp_path):
    short: dict[str, Any] = {**RUN, "images": 12, "batch_size": 1, "methods": ["bn", "lame", "note"]}
    alone = compare_on_stream("demo", "demo", out=tmp_path / "alone", **short)
    assert any(note.startswith("bn: every batch is one image") for note in alone.notes)
    assert any(note.endswith("windows of 2,000 images; with 12, none is told.") for note in alone.notes)
    joined = compare_on_stream("demo", "demo", out=tmp_path / "joined", options={"window": 16}, **short)
    assert not any("one image" in note for note in joined.notes)
    assert joined.traces["source"].right == alone.traces["source"].right
    assert joined.traces["bn"].accuracy > alone.traces["bn"].accuracy + 0.3


def test_two_processes_give_the_same_traces(tmp_path):
    one = compare_on_stream("demo", "demo", out=tmp_path / "one", methods=["tent"], **RUN)
    two = compare_on_stream("demo", "demo", out=tmp_path / "two", methods=["tent"], executor="processes:2", **RUN)
    assert [found.right for found in one.traces.values()] == [found.right for found in two.traces.values()]


@pytest.mark.slow
def test_a_method_that_fails_in_its_process_gives_its_reason(tmp_path):
    (tmp_path / "plain.py").write_text(
        "import torch\n\n\ndef plain():\n    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10))\n"
    )
    model = f"{tmp_path / 'plain.py'}:plain"
    found = compare_on_stream(model, "demo", out=tmp_path / "out", methods=["bn", "t3a"], executor="processes:2", **RUN)
    assert list(found.traces) == ["source", "t3a"]
    assert "bn" in found.reasons["bn"]


def rate(adapter: Any) -> float:
    return float(adapter.options.lr)


def test_learning_rates_scale():
    model = load_model("demo")
    plain, fast = (make_adapter(model, "tent", preset="cifar", lr_scale=scale) for scale in (1.0, 10.0))
    assert rate(fast) == pytest.approx(10 * rate(plain))
    assert "lr" not in make_adapter(model, "bn", preset="cifar", lr_scale=10.0).options.to_dict()
    safe = make_adapter(model, "safe", preset="cifar", lr_scale=10.0)
    assert isinstance(safe, SafeAdapter)
    assert rate(safe.candidates["rdumb"]) == pytest.approx(10 * rate(make_adapter(model, "rdumb", preset="cifar")))


def test_a_black_box_is_helped_by_its_outputs(tmp_path):
    box = BlackBox(lambda images: images.mean((2, 3)).repeat(1, 4)[:, :10])
    found = compare_on_stream(
        box, "demo", stream="correlated", methods=["prior", "tent"], images=128, out=tmp_path, device="cpu"
    )
    assert list(found.traces) == ["source", "prior"]
    assert "black box" in found.reasons["tent"]


def test_a_black_box_can_only_be_itself(tmp_path):
    box = BlackBox(lambda images: images.mean((2, 3)).repeat(1, 4)[:, :10])
    found = compare_on_stream(box, "demo", out=tmp_path, methods=["tent"], **RUN)
    assert list(found.traces) == ["source"]
    assert "black box" in found.reasons["tent"]


@pytest.mark.parametrize(
    "options",
    [
        {"methods": ["tnet"]},
        {"stream": "cc"},
        {"images": 0},
        {"executor": "processes:0"},
        {"lr_scale": 0.0},
        {"shifts": ["fgo"]},
    ],
)
def test_wrong_options_are_refused(tmp_path, options):
    with pytest.raises(ConfigurationError):
        compare_on_stream("demo", "demo", out=tmp_path, **{**RUN, **options})


def test_the_section_measures_every_method_on_one_stream():
    scope = Scope(make_settings(shifts=["contrast", "fog"], methods=["bn"], images=40), images=40, side=32)
    cells: list[Any] = list(section("stability").plan(scope))
    assert [cell.method.name for cell in cells] == ["source", "bn"]
    assert cells[0].images == 400
    subject = Subject.of(load_model("demo"), load_data("demo").take(40), device="cpu", batch_size=64)
    rows = [json.loads(canonical(cell.measure(subject))) for cell in cells]
    view = section("stability").view([Result(cell, row, None, 1.0) for cell, row in zip(cells, rows, strict=True)])
    assert view.numbers["stability.bn"] == pytest.approx((rows[1]["right"] - rows[0]["right"]) / 400)


def test_longer_streams_are_also_for_the_guard():
    scope = Scope(make_settings(budget="standard", methods=["bn"], images=40), images=40, side=32)
    cells: list[Any] = list(section("stability").plan(scope))
    assert [cell.method.name for cell in cells] == ["source", "bn", "guard"]


def test_a_black_box_gets_a_note():
    cell = LongStream(find("tent"), 64, 64, (corruption("fog", 1), corruption("contrast", 1)), seed=0)
    subject = Subject.of(
        BlackBox(lambda images: images.mean((2, 3))), load_data("demo").take(40), device="cpu", batch_size=64
    )
    row = cell.measure(subject)
    assert row == {"applies": False, "reason": "The model is a black box: it has no layers that can adapt."}
    view = section("stability").view([Result(cell, row, None, 1.0)])
    assert "black box" in view.notes[0]


def test_the_verdict_names_who_falls_and_who_stays():
    view = section("stability").view(
        [
            result("source", *[50] * 100),
            result("tent", *[70] * 30, *[10] * 70),
            result("rdumb", *[58] * 100),
        ]
    )
    (said,) = view.verdict
    assert "tent falls below the unadapted model after" in said.text
    assert "rdumb stays 8.0 points (7.9 to 8.1) above it" in said.text  # the best of two, of 100 batches
    assert said.level == "watch"
    assert view.numbers["stability.collapsed"] == 1
    assert view.numbers["stability.rdumb"] == pytest.approx(0.08)
    (action,) = view.actions
    assert action.code == 'adapted = shiftproof.adapt(model, "rdumb")'
    steady = section("stability").view([result("source", *[50] * 100), result("rdumb", *[58] * 100)])
    assert steady.verdict[0].level == "plain"


def test_few_batches_are_too_few_to_say():
    view = section("stability").view([result("source", *[50] * 9), result("rdumb", *[58] * 9)])
    assert "rdumb stays 8.0 points (interval: too few to say) above it" in view.verdict[0].text


def test_the_figure_has_a_line_per_method_and_a_cross_per_collapse():
    traces = {"source": trace(*[50] * 60), "tent": trace(*[70] * 20, *[5] * 40), "rdumb": trace(*[60] * 60)}
    figure = trace_figure(traces, 1000)
    lines = [entry for entry in figure.plot["data"] if entry["mode"] == "lines"]
    crosses = [entry for entry in figure.plot["data"] if entry["mode"] == "markers"]
    assert [line["name"] for line in lines] == ["source", "tent", "rdumb"]
    assert [cross["name"] for cross in crosses] == ["tent falls"]
    assert "tent falls below the unadapted model" in figure.title
    assert figure.table.rows[1][5] == traces["tent"].collapse(traces["source"], 1000)
    assert "no method falls" in trace_figure({"source": traces["source"], "rdumb": traces["rdumb"]}, 1000).title
