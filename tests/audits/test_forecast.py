"""What an audit will take: units of work times their prices, the remainder of a run, and sizes a model can afford."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import shiftproof
from shiftproof.audits.audit_settings import LEAST_IMAGES, affordable, make_settings
from shiftproof.audits.costs import duration, peak_memory
from shiftproof.audits.forecast import Forecast, Prices, estimate
from shiftproof.audits.sections import SECTIONS, section
from shiftproof.audits.sections.base import FORWARD, Scope, Unit
from shiftproof.audits.sections.clean import CleanSlice
from shiftproof.errors import ConfigurationError
from shiftproof.models.arithmetic import PER_PIXEL, operations
from shiftproof.shifts import corruption
from shiftproof.subjects import Measurer, Subject


class Counted:
    """A clock that ticks once for every image the model sees, so that prices are exact."""

    def __init__(self, model):
        self.ticks = 0.0
        model.register_forward_hook(self.tick)

    def tick(self, module, inputs, output):
        self.ticks += len(inputs[0])

    def __call__(self):
        return self.ticks


def tiny():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()


DATA = np.random.default_rng(0).integers(0, 256, (120, 8, 8, 3), dtype=np.uint8), [0, 1] * 60
SMALL: dict[str, Any] = {"shifts": ["contrast", "fog"], "severities": [3, 5], "methods": ["bn", "tent"]}


def bench(model):
    return Measurer(Subject.of(model, DATA, device="cpu", batch_size=64))


def test_prices_are_seconds_per_image_measured_once():
    model = tiny()
    clock = Counted(model)
    prices = Prices(bench(model).subject, clock=clock)
    assert prices(FORWARD) == pytest.approx(1.0)
    assert prices(Unit("shift", corruption("fog", 5))) == 0.0
    before = clock()
    prices(FORWARD)
    assert clock() == before
    with pytest.raises(ConfigurationError, match="did you mean"):
        prices(Unit("forwards"))


def test_shifts_of_large_images_are_priced_on_few_however_fast_the_model_is(monkeypatch):
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2)).eval()
    subject = Subject.of(model, (np.zeros((40, 256, 256, 3), np.uint8), [0, 1] * 20), device="cpu", batch_size=40)
    shift, sizes = corruption("brightness", 3), []
    monkeypatch.setattr(type(shift), "__call__", lambda self, images, keys, seed: sizes.append(len(images)))
    Prices(subject)(Unit("shift", shift))
    assert set(sizes) == {6}  # of 65,536 pixels each


@pytest.mark.parametrize("name", SECTIONS.own)
def test_sections_declare_the_passes_they_make(name):
    """With a clock that counts images through the model, the plan's forecast is the number of images that go through.

    Certificates stop early where answers are wrong, so theirs is a bound from above by what is allowed.
    """
    model = tiny()
    clock = Counted(model)
    measurer = bench(model)
    scope = Scope(make_settings(sections=[name], **SMALL), images=120, side=8)
    cells = list(dict.fromkeys(section(name).plan(scope)))
    own = [cell for cell in cells if cell.section == name][:: 1 if name in ("label_free", "confidence") else 5]
    prices = Prices(measurer.subject, clock=clock)
    expected = sum(
        images * (1.0 if unit.kind in ("forward", "statistics") else prices(unit))
        for cell in own
        for unit, images in cell.work()
        if unit.kind != "adapter"
    )
    before = clock()
    for cell in own:
        measurer.measure(cell)
    assert clock() - before == pytest.approx(expected, rel=0.5)


def test_what_is_done_is_not_among_what_remains():
    cells = {"a": CleanSlice(0, 10), "b": CleanSlice(10, 30)}
    found = estimate(cells, {"a"}, lambda unit: 2.0 if unit == FORWARD else 0.0, at_a_time=4)
    assert found == Forecast({"clean": 60.0}, {"clean": 40.0}, 4)
    assert found.seconds == 10.0


def test_an_audit_announces_before_it_measures_and_a_resumed_one_only_what_is_left(tmp_path):
    heard: list[Any] = []
    options: dict[str, Any] = {**SMALL, "sections": ["clean", "corruptions"], "out": tmp_path}
    news: dict[str, Any] = {"on_plan": heard.append, "on_progress": lambda done, *_: heard.append(done)}
    shiftproof.audit(tiny(), DATA, **{**options, "shifts": ["fog"]}, **news)
    assert isinstance(heard[0], Forecast)
    assert set(heard[0].remaining) == {"clean", "corruptions"}
    heard.clear()
    result = shiftproof.audit(tiny(), DATA, **options, **news)
    assert set(heard[0].remaining) == {"corruptions"}
    assert heard[0].remaining["corruptions"] < heard[0].planned["corruptions"]
    heard.clear()
    shiftproof.audit(tiny(), DATA, **options, **news)
    assert not [one for one in heard if isinstance(one, Forecast)]
    timing = json.loads((tmp_path / "results.json").read_text())["timing"]
    assert set(timing["sections"]) == {"clean", "corruptions"}
    assert timing["sections"]["corruptions"]["planned"] is not None
    assert timing["peak_memory_bytes"]["process"] > 2**20
    assert result.masthead.facts["peak memory"].endswith("GiB")
    assert result.masthead.times["clean"][1] > 0


def test_operations_are_counted_not_timed():
    model, images = nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), torch.zeros(3, 3, 2, 2)
    assert operations(model, images) == 2 * 12 * 5
    assert operations(lambda given: given.flatten(1)[:, :2].clone(), images) == PER_PIXEL * 4  # it shows no arithmetic


def test_quick_shrinks_for_costly_models_and_others_never():
    assert affordable("quick", "cpu", 1e8) == 1.0
    assert affordable("quick", "cpu", 1e10) == pytest.approx(0.042)
    assert affordable("quick", "cuda:1", 1e10) == 1.0
    assert affordable("standard", "cpu", 1e12) == affordable("full", "cpu", 1e12) == 1.0
    settings = make_settings(scale=0.025)
    assert (settings.images, settings.per_image(469)) == (469, 4)
    assert make_settings(scale=0.001).images == LEAST_IMAGES
    assert make_settings(scale=0.025, images=700, severities=[2]).images == 700
    assert make_settings(scale=0.025, severities=[2]).severities == (2.0,)


@pytest.mark.parametrize("name", SECTIONS.own)
def test_a_costly_model_gets_a_shorter_plan(name):
    def forwards(scale):
        settings = make_settings(sections=[name], scale=scale)
        images = settings.images or 0
        scope = Scope(settings, images=images, side=224, per_image=settings.per_image(images))
        work = [task.work() for task in section(name).plan(scope)]
        return sum(number for one in work for unit, number in one if unit.kind in ("forward", "adapt"))

    assert 0 < forwards(0.025) <= 0.5 * forwards(1.0)


def test_the_report_says_what_was_cut(tmp_path):
    class Costly(nn.Module):
        """Does much to little effect."""

        def __init__(self):
            super().__init__()
            self.wide = nn.Linear(192, 40_000)
            self.head = nn.Linear(40_000, 2)

        def forward(self, images):
            return self.head(self.wide(images.flatten(1)).repeat(1, 1))

    model = Costly()
    from shiftproof.audits import audit_settings

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(audit_settings.ALLOWED, "cpu", 1e6)
        result = shiftproof.audit(model, DATA, out=tmp_path, sections=["clean"])
    assert "usual sizes" in result.masthead.method["what was cut"]
    assert json.loads((tmp_path / "results.json").read_text())["settings"]["scale"] < 1
    assert "usual sizes" in result.report.read_text()


def test_memory_and_durations_are_told_as_a_person_would():
    assert peak_memory()["process"] > 2**20
    assert [duration(seconds) for seconds in (0.4, 89, 600, 7200)] == ["0 s", "89 s", "10 min", "2.0 hours"]
