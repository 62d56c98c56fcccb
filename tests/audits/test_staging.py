"""Audits in stages: few shifts for each image of a costly model, early reports, an end when it is precise enough."""

import json
import re
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shiftproof
from shiftproof.audits import audit_settings
from shiftproof.audits.audit_record import AuditRecord
from shiftproof.audits.audit_settings import make_settings
from shiftproof.audits.sections import planned, section
from shiftproof.audits.sections.allotment import allot
from shiftproof.audits.sections.base import Scope
from shiftproof.audits.sections.clean import CleanSlice
from shiftproof.audits.sections.corrupted_images import CorruptedShare, CorruptedSlice, means_by_image, parts_of
from shiftproof.audits.staging import AuditStep, measure, steps_of
from shiftproof.errors import ConfigurationError
from shiftproof.measures.intervals import mean_interval, mean_intervals
from shiftproof.runs import Inline, Result, Store
from shiftproof.subjects import Measurer, Subject

EIGHT = ["fog", "contrast", "brightness", "jpeg_compression", "pixelate", "gaussian_noise", "defocus_blur", "frost"]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=15), st.integers(1, 200), st.data())
def test_every_kind_and_severity_is_met_equally_often(levels, images, data):
    per_image = data.draw(st.integers(1, len(levels)))
    found = allot(levels, images, per_image, seed=data.draw(st.integers(0, 5)))
    met = Counter(place for kind in found for level in kind for place in level)
    assert set(met.values()) == {per_image}
    assert set(met) == set(range(images))
    for kind in found:
        places = [place for level in kind for place in level]
        assert len(places) == len(set(places)), "an image meets a kind of shift once"
        counts = [len(level) for level in kind]
        assert max(counts) - min(counts) <= 1 + images % len(levels)
    if images % len(levels) == 0:
        assert {sum(map(len, kind)) for kind in found} == {images * per_image // len(levels)}


def test_what_the_first_images_meet_does_not_depend_on_those_that_follow():
    few, many = allot([5] * 15, 75, 5, seed=3), allot([5] * 15, 900, 5, seed=3)
    assert {len(level) for kind in many for level in kind} == {60}
    assert [[tuple(place for place in level if place < 75) for level in kind] for kind in many] == few
    assert allot([5] * 15, 75, 5, seed=4) != few


def test_pairs_of_kinds_meet_on_images():
    found = allot([5] * 15, 900, 5, seed=0)
    met = np.zeros((900, 15))
    for kind, level in enumerate(found):
        met[[place for some in level for place in some], kind] = 1
    together = (met.T @ met)[~np.eye(15, dtype=bool)]
    assert together.min() > 40  # 86 expected


def scope_at(scale, images, **options):
    made = make_settings(sections=["clean", "corruptions"], scale=scale, **options)
    return Scope(made, images, 32, per_image=made.per_image(images))


def test_a_costly_model_has_many_images_and_few_shifts_for_each():
    made = make_settings(scale=0.06)
    assert made.images == 1000
    assert made.per_image(1000) == 4
    assert made.per_image(900) == 5
    assert made.per_image(100) == 15  # all kinds, one severity each
    assert make_settings().per_image(1000) is None
    assert make_settings(scale=0.06, shifts=["fog"]).per_image(900) is None  # 5 cells are affordable
    scope = scope_at(0.06, 900)
    assert scope.stages == (90, 180, 360, 720, 900)
    tasks = planned("corruptions", scope)
    assert sum(len(task.places) for task in tasks if isinstance(task, CorruptedShare)) == 900 * 5
    assert not any(isinstance(task, CorruptedSlice) for task in tasks)


def test_a_first_stage_comes_first_and_then_the_other_sections():
    made = make_settings(sections=["clean", "corruptions", "spectrum"])
    scope = Scope(made, 1000, 32)
    tasks = {name: planned(name, scope) for name in made.sections}
    steps = steps_of(tasks, scope)
    assert [step.measured for step in steps] == [100, 100, 200, 400, 800, 1000]
    assert {task.section for task in steps[1].tasks} == {"spectrum"}
    assert {task for step in steps for task in step.tasks} == {task for some in tasks.values() for task in some}
    assert sum(len(step.tasks) for step in steps) == len({task for some in tasks.values() for task in some})


def test_sections_that_have_no_stages_are_steps_of_their_own():
    made = make_settings(sections=["clean", "corruptions", "spectrum", "certified"])
    scope = Scope(made, 1000, 32)
    steps = steps_of({name: planned(name, scope) for name in made.sections}, scope)
    assert [{task.section for task in step.tasks} for step in steps[1:3]] == [{"spectrum"}, {"certified"}]


@pytest.mark.parametrize(
    ("seconds", "reporting", "when"),
    [
        (6, 0.1, [1, 5]),  # the first as soon as it is worth it, the next after 20 s
        (2, 0.1, [3]),  # 6 s in; the end comes before another 20
        (6, 1.5, [1]),  # a report that takes 1.5 s is not made again within 30
    ],
)
def test_reports_come_early_and_take_little_of_the_time(tmp_path, seconds, reporting, when):
    """By a clock that only steps and reports move: every step takes so many seconds."""
    subject = Subject.of("demo", "demo", images=60, device="cpu")
    made = make_settings(sections=["clean"], images=60)
    scope = Scope(made, 60, 32)
    steps = [AuditStep((CleanSlice(start, start + 10),), 60) for start in range(0, 60, 10)]
    now, reported = [0.0], []

    def progress(done, total, result):
        now[0] += seconds if result is not None else 0

    def report():
        reported.append(round(now[0] // seconds))
        now[0] += reporting

    with Store(tmp_path, subject.identity) as store, Inline().open(partial(Measurer, subject)) as pool:
        measure(steps, scope, store, pool, subject.fingerprints, report, progress, clock=lambda: now[0])
    assert reported == when


@pytest.fixture
def costly(monkeypatch):
    """Let the demo count as a model of which `quick` can afford half a percent."""
    monkeypatch.setattr(audit_settings, "ALLOWED", {"cpu": 82e6 * 0.005})


def test_an_audit_of_a_costly_model_says_what_it_did(costly, tmp_path):
    options: Any = {"shifts": EIGHT, "images": 80, "device": "cpu", "sections": ["corruptions"]}
    found = shiftproof.audit(out=tmp_path, **options)
    view, _ = found.views  # and the most confident mistakes
    assert "80 images, each under 4 of the 8 corruptions at one severity each; 8 per cell." in view.notes[0]
    with Store(tmp_path) as store:
        record = AuditRecord.of(store)
    parts = parts_of(record.results["corruptions"])
    assert sum(len(task.places) for task, _ in parts) == 320
    rows: list[tuple[str, Any]] = [(task.shift.name, row) for task, row in parts]
    rights = [(name, row["right"] / row["images"]) for name, row in rows]
    by_name = {name: float(np.mean([right for other, right in rights if other == name])) for name in EIGHT}
    assert found.numbers["corruption_accuracy"] == pytest.approx(np.mean(list(by_name.values())))
    means = means_by_image(parts)
    assert means is not None
    assert found.numbers["corruption_accuracy"] == pytest.approx(means.mean())
    again = shiftproof.audit(out=tmp_path / "processes", executor="processes:2", **options)
    assert again.numbers == found.numbers
    compared = shiftproof.compare(tmp_path, tmp_path / "processes", out=tmp_path / "compared")
    assert {one.verdict for some in compared.differences.values() for one in some} == {"equal"}


def test_it_ends_when_it_is_precise_and_ends_there_again(tmp_path):
    options: Any = {"sections": ["corruptions"], "shifts": ["fog", "contrast"], "severities": [3], "images": 300}
    found = shiftproof.audit(out=tmp_path, precision=20, device="cpu", **options)
    assert found.masthead.facts["images"] == "100"
    assert not found.missing
    counted: list[object] = []
    again = shiftproof.audit(
        out=tmp_path, precision=20, device="cpu", on_progress=lambda *heard: counted.append(heard[2]), **options
    )
    assert again.numbers == found.numbers
    assert not any(counted), "nothing is measured again"
    assert shiftproof.gate(tmp_path).numbers == found.numbers
    # what is asked for cannot be had with 300 images: all are used, and the interval is that of three looks
    rest = shiftproof.audit(out=tmp_path, precision=0.5, device="cpu", **options)
    assert rest.masthead.facts["images"] == "300"
    with Store(tmp_path) as store:
        record = AuditRecord.of(store)
        means = means_by_image(parts_of(record.results["corruptions"]))
    assert record.scope.looks == 3
    assert means is not None
    interval = mean_interval(means, among=3)
    assert interval is not None
    low, high = map(float, re.findall(r"[\d.]+", rest.views[0].tiles[0].interval)[:2])
    assert low <= 100 * interval.low < low + 0.11
    assert high - 0.11 < 100 * interval.high <= high


def test_an_interrupted_audit_tells_the_stage_that_is_whole(tmp_path):
    def stop(done, _, result):
        if result is not None and getattr(result.task, "start", 0) >= 100:
            raise KeyboardInterrupt

    options: Any = {"sections": ["clean", "corruptions"], "shifts": ["fog"], "severities": [3], "images": 300}
    with pytest.raises(KeyboardInterrupt):
        shiftproof.audit(out=tmp_path, device="cpu", on_progress=stop, **options)
    assert "100 of 300 so far" in (tmp_path / "report.html").read_text()
    found = shiftproof.gate(tmp_path)
    assert found.missing
    assert not found.passed
    assert "corruption_accuracy" in found.numbers
    assert json.loads((tmp_path / "results.json").read_text())["numbers"] == found.numbers
    whole = shiftproof.audit(out=tmp_path, device="cpu", **options)
    assert not whole.missing
    assert whole.masthead.facts["images"] == "300"


def test_a_time_cuts_the_sizes_and_is_kept(tmp_path):
    options: Any = {"sections": ["clean", "corruptions"], "shifts": EIGHT, "device": "cpu", "minutes": 0.03}
    found = shiftproof.audit(out=tmp_path, **options)
    with Store(tmp_path) as store:
        about = json.loads(store.about()["audit"])
    assert about["settings"]["scale"] < 1
    assert "In 0.03 minutes quick has" in found.masthead.method["what was cut"]
    again = shiftproof.audit(out=tmp_path, **options)
    with Store(tmp_path) as store:
        assert json.loads(store.about()["audit"])["settings"]["scale"] == about["settings"]["scale"]
    assert again.numbers.keys() == found.numbers.keys()


def test_all_that_is_said_of_clean_accuracy_holds_at_every_look():
    right: Any = {
        "images": 100,
        "right": 90,
        "confidence": 0.9,
        "hits": "",
        "classes": {},
        "answers": {},
        "confused": {},
    }
    results = [Result(CleanSlice(0, 100), right, None, 1.0)]
    once, often = (section("clean", looks=looks).view(results).tiles[0].interval for looks in (1, 5))
    assert once == "82.3 to 95.1%"
    assert often == "79.8 to 96.2%"  # proportion_intervals(90, 100, among=5)


@pytest.mark.parametrize("option", ["minutes", "precision"])
def test_no_time_and_no_width_are_refused(option, tmp_path):
    with pytest.raises(ConfigurationError, match=option):
        shiftproof.audit(out=tmp_path, **{option: 0})  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("easy", [0.5, 0.9, 0.99])
def test_intervals_cover_where_precision_decides_when_to_end(easy):
    """2,000 audits in stages: images differ in how often they are right, each meets 5 of 75 cells."""
    rng = np.random.default_rng(0)
    ease = rng.normal(np.log(easy / (1 - easy)), 1.5, 100_000)
    truth = float((1 / (1 + np.exp(-ease))).mean())
    covered = 0
    for _ in range(2_000):
        chance = 1 / (1 + np.exp(-rng.choice(ease, 900)))
        values = (rng.random((900, 5)) < chance[:, None]).mean(1)
        for bound in (75, 150, 300, 600, 900):
            low, high = mean_intervals(values[:bound, None], among=5)[0]
            if high - low <= 2 * 0.04:
                break
        covered += low <= truth <= high
    assert covered >= 0.93 * 2_000
