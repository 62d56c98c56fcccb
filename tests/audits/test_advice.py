"""What the report advises: the cheapest method within noise of the best, as code that makes what was measured."""

from typing import Any

import numpy as np
import pytest
import torch

import shiftproof
from shiftproof import shifts
from shiftproof.adapters import method as find
from shiftproof.audits.audit_settings import make_settings
from shiftproof.audits.sections import section
from shiftproof.audits.sections.adaptation import AdaptedStream, _action
from shiftproof.audits.sections.adaptation_words import adaptation_verdict
from shiftproof.audits.sections.advice import Grounds, adapting_code, advised, advised_over, steps_that_tell
from shiftproof.audits.sections.base import Scope
from shiftproof.audits.sections.measuring import preset_for
from shiftproof.audits.sections.stability import LongStream, long_gains
from shiftproof.comparisons.methods import compare_methods
from shiftproof.data import load_data
from shiftproof.reports.view import Table
from shiftproof.runs import Result
from shiftproof.subjects import Subject
from tests.adapters.networks import convolutional, transformer


def gains(**means):
    """Return gains of 400 images with the same noise, and a little of each method's own."""
    draws = np.random.default_rng(0)
    shared = draws.normal(0, 0.3, 400)
    own = {name: draws.normal(0, 0.05, 400) for name in means}
    return {name: value + shared + own[name] - own[name].mean() for name, value in means.items()}


def test_the_cheapest_within_noise_of_the_best():
    assert advised(gains(bn=0.2, tent=0.203, rdumb=0.201), long=False) == "bn"
    assert advised(gains(bn=0.2, tent=0.203, rdumb=0.201), long=True) == "bn"
    assert advised(gains(bn=0.2, rdumb=0.25, sar=0.252), long=False) == "rdumb"
    assert advised(gains(bn=0.2, rdumb=0.25, sar=0.3), long=False) == "sar"


@pytest.mark.parametrize(
    ("best", "told", "reason"),
    [
        ("rdumb", "bn", "within noise, at a higher cost."),
        ("bn", "rdumb", "within noise, but less along the long stream."),  # and not at a higher cost
        ("sar", "bn", "points more, but less along the long stream."),  # and not within noise
    ],
)
def test_why_the_best_on_short_streams_is_not_advised(best, told, reason):
    means = {told: 0.2, best: 0.3 if best == "sar" else 0.201}
    per_image = {name: each.clip(-1, 1) for name, each in gains(**means).items()}
    said = adaptation_verdict(best, told, means, per_image, {}, updates=0)
    assert said.text.endswith(reason)


def test_what_never_resets_needs_a_long_stream():
    found = gains(bn=0.2, tent=0.3, eta=0.29, rdumb=0.25)
    assert advised(found, long=False) == "rdumb"
    assert advised(found, long=True) == "tent"
    assert advised(gains(tent=0.3), long=False) is None
    assert advised({}, long=True) is None


@pytest.mark.parametrize("name", ["bn", "tent", "rdumb", "eata", "lame"])
def test_the_code_makes_what_was_measured(name):
    model = shiftproof.load_model("demo")
    assert isinstance(model, torch.nn.Module)
    preset = preset_for(Subject.of(model, load_data("demo").take(2), device="cpu", batch_size=64))
    assert preset == "cifar"
    made: dict[str, object] = {"shiftproof": shiftproof, "model": model}
    exec(adapting_code(name, preset), made)
    assert made["adapted"].options == shiftproof.adapt(model, name, preset=preset).options  # type: ignore[attr-defined]


def measured(method, gained, batches=4, **more):
    """Return the result of one stream in which a method is right on so many of 256 images."""
    right = np.zeros(256, bool)
    right[:gained] = True
    hits = np.packbits(right).tobytes().hex()
    row = {"images": 256, "right": gained, "confidence": 0.5, "hits": hits, "milliseconds": 1.0, "preset": "cifar"}
    row |= {"batches": batches, "updates": batches, "resets": 0, **more}
    return Result(AdaptedStream(find(method), shifts.corruption("fog", 5), images=256, seed=0), row, None, 1.0)


def test_the_report_advises_bn_where_tent_is_hardly_better():
    view = section("adaptation").view(
        [measured("source", 100), measured("bn", 150, updates=0), measured("tent", 151), measured("rdumb", 150)]
    )
    (said,) = view.verdict
    assert said.text.startswith("Test-time adaptation (bn) improves accuracy by 19.5 points")
    assert "tent gains 0.4 points more, but never resets" in said.text
    (action,) = view.actions
    assert "(bn)" in action.title
    assert action.code.startswith('adapted = shiftproof.adapt(model, "bn")\n')
    assert "batches of 64" in action.code
    assert view.numbers["best_adaptation_gain"] == pytest.approx(51 / 256)


def test_a_gain_that_may_be_chance_is_neither_called_good_nor_advised():
    right = np.zeros(256, bool)
    right[40:148] = True  # wins 48 images and loses 40
    bn = measured("bn", 108, updates=0, hits=np.packbits(right).tobytes().hex())
    view = section("adaptation").view([measured("source", 100), bn])
    (said,) = view.verdict
    assert said.text.startswith("Test-time adaptation (bn) is not shown to improve accuracy: it gains 3.1 points (-")
    assert said.level == "plain"
    assert view.tiles[0].level == "watch"
    assert view.actions == ()
    surely = section("adaptation").view([measured("source", 100), measured("bn", 108, updates=0)])
    assert surely.tiles[0].level == surely.verdict[0].level == "good"


def test_the_report_advises_rdumb_with_its_preset_where_learning_wins():
    view = section("adaptation").view(
        [measured("source", 100), measured("bn", 150, updates=0), measured("tent", 190), measured("rdumb", 185)]
    )
    (action,) = view.actions
    assert action.code.startswith('adapted = shiftproof.adapt(model, "rdumb", preset="cifar")\n')
    alone = section("adaptation").view([measured("source", 100), measured("tent", 190)])
    assert alone.actions == ()
    assert "tent never resets" in alone.verdict[0].text


def test_methods_that_hardly_learn_or_do_not_apply_are_told():
    refused = Result(
        AdaptedStream(find("bn"), shifts.corruption("fog", 5), images=256, seed=0),
        {"applies": False, "reason": "Method 'bn' does not apply."},
        None,
        1.0,
    )
    view = section("adaptation").view([measured("source", 100), refused, measured("rdumb", 120, updates=1)])
    assert "rdumb updated in 1 of 4 batches" in " ".join(view.notes)
    assert "Method 'bn' does not apply." in view.notes
    (costs,) = [block for block in view.blocks if isinstance(block, Table) and block.title == "What it costs"]
    assert ("bn", "does not apply", None, None, None, None) in costs.rows
    assert ("rdumb", 7.8, 1.0, 4, 1, 0) in costs.rows


def test_a_transformer_is_audited_without_bn():
    subject = Subject.of(transformer(10), load_data("demo").take(24), device="cpu", batch_size=64)
    settings = make_settings(shifts=["contrast"], severities=[5], images=24, methods=["bn", "tent"])
    one = section("adaptation")
    results = [Result(task, task.measure(subject), None, 1.0) for task in one.plan(Scope(settings, 24, 32))]
    assert {result.row["preset"] for result in results if result.row and "preset" in result.row} == {"cifar_vit"}
    view = one.view(results)
    assert any("no batch normalisation" in note for note in view.notes)
    assert "gain.bn" not in view.numbers


def test_the_preset_does_not_go_by_pixels():
    ten, thousand = convolutional(classes=10), convolutional(classes=1000)
    for side in (32, 96):
        data = load_data(torch.rand(2, 3, side, side))
        assert preset_for(Subject.of(ten, data, device="cpu", batch_size=64)) == "cifar"
        assert preset_for(Subject.of(thousand, data, device="cpu", batch_size=64)) == "imagenet"


def test_the_table_of_methods_counts_updates_and_resets(tmp_path):
    found = compare_methods(
        shifts=["fog@3"], methods=["sar"], images=512, options={"recover_below": 0.2}, out=tmp_path, device="cpu"
    )
    (row,) = [row for row in found.to_rows() if row["method"] == "sar"]
    assert (row["batches"], row["updates"]) == (8, 8)
    assert row["resets"] > 4
    assert "sar went back to its start" in found.notes[0]


def along(method, *right):
    images = [100] * len(right)
    batches = {"images": images, "right": list(right), "shifts": [["fog@3", sum(images)]]}
    row: dict[str, Any] = {
        "resets": 0,
        "updates": len(right),
        "preset": "cifar",
        "batches": batches,
        "milliseconds": [1.0] * len(right),
    }
    return Result(LongStream(find(method), 100, 64, (), 0), row, None, 1.0)


def test_a_stream_in_which_rdumb_cannot_reset_twice_is_too_short_to_tell():
    assert steps_that_tell() == 2000
    short, long = (
        section("stability").view([along("source", *[50] * steps), along("tent", *[60, 58] * (steps // 2))])
        for steps in (1998, 2000)
    )
    assert short.verdict[0].text.startswith("1,998 batches are too short to tell whether gains last")
    assert "too short" not in long.verdict[0].text
    assert "for good" in long.verdict[0].text


def test_a_few_worse_batches_are_no_collapse():
    """As with ResNet-50: four batches under one corruption, 1.6 points lost, and 12 gained along 40,000 images."""
    few = [along("source", 34, 36, 34, 33), along("bn", 33, 33, 35, 32), along("rdumb", 33, 33, 35, 32)]
    view = section("stability").view(few)
    assert view.numbers["stability.collapsed"] == 0
    assert view.verdict[0].text.startswith("4 batches are too short to tell whether gains last")
    assert "the best, bn, is at -1.0 points (interval: too few to say)" in view.verdict[0].text
    assert set(long_gains(few)[0]) == {"bn", "rdumb"}
    many = [along("source", *[34, 36] * 20), along("tent", *[60] * 10, *[10, 12] * 15)]
    assert section("stability").view(many).numbers["stability.collapsed"] == 1
    assert not long_gains(many)[0]


def test_endurance_advises_what_was_measured_and_what_resets():
    right = [58, 60] * 50
    view = section("stability").view(
        [
            along("source", *[50] * 100),
            along("cpl", *[70] * 30, *[10] * 70),
            along("tent", *[each + 9 for each in right]),
            along("rdumb", *[each + 8 for each in right]),
            along("bn", *right),
        ]
    )
    assert "too short to tell whether that lasts" in view.verdict[0].text
    (action,) = view.actions
    assert action.code == 'adapted = shiftproof.adapt(model, "rdumb", preset="cifar")'


@pytest.mark.parametrize(("name", "words"), [("rdumb", "lr=0.001"), ("rdumb", "reset=every(1000)"), ("bn", "prior=0")])
def test_advice_says_what_was_measured(name: str, words: str) -> None:
    action = _action(name, 0.2, "cifar", 64, Grounds())
    assert words in action.why
    assert "on short streams" in action.why


def batches(**means: float) -> dict[str, Any]:
    """Return gains on 100 batches with the same noise, and a little of each method's own."""
    return {name: each[:100] for name, each in gains(**means).items()}


def test_advice_asks_the_long_stream_too() -> None:
    short = gains(bn=0.2, rdumb=0.202, tent=0.203)
    assert advised_over(short, {}, long=False) == "bn"
    assert advised_over(short, batches(bn=0.1, rdumb=0.25, tent=0.1), long=True) == "rdumb"
    assert advised_over(short, batches(rdumb=0.2), long=False) == "rdumb"  # bn fell below the model
    assert advised_over(short, batches(tent=0.2), long=False) is None
    assert advised_over(short, batches(tent=0.2), long=True) == "tent"


def test_advice_not_to_learn_says_how_little_learning_was_tried() -> None:
    assert "at most 16 updates, too few to tell" in Grounds(16, updates=16).told("bn")
    assert "updates" not in Grounds(16, updates=16).told("rdumb")
    assert "updates" not in Grounds(157, updates=157).told("bn")
    assert "updates" not in Grounds(16).told("bn")


def test_advice_says_where_it_does_not_hold() -> None:
    told = Grounds(together=np.full(300, -0.2) + gains(bn=0.0)["bn"][:300] * 0.1, among=3).told("bn")
    assert "Only for streams of mixed classes" in told
    assert "costs 20." in told
    assert "no loss is shown" in Grounds(steps=16, together=np.zeros(300), among=3).told("bn")
    few = Grounds(together=np.array([-1.0, 0, 0, 0, -1, 0, 1, 0, 0, -1, 0, 0]), among=3).told("bn")
    assert "bn lost 16.7 points, which may be chance" in few
    assert "no loss is shown" not in few
    assert "16 batches, too short to tell" in Grounds(steps=16).told("bn")
    assert "too short" not in Grounds(steps=3000, long=True).told("bn")


def test_errors_with_batch_statistics_stand_beside_the_plain_ones() -> None:
    subject = Subject.of("demo", load_data("demo").take(32), device="cpu", batch_size=64)
    settings = make_settings(shifts=["contrast", "fog"], severities=[5], images=32, methods=["bn"])
    one = section("adaptation")
    results = [Result(task, task.measure(subject), None, 1.0) for task in one.plan(Scope(settings, 32, 32))]
    view = one.view(results)
    (table,) = [block for block in view.blocks if isinstance(block, Table) and "partial" in block.title]
    errors = {str(row[0]): [float(str(cell)) for cell in row[1:]] for row in table.rows}
    assert set(errors) == {"mean", "contrast", "fog"}
    plain, _, full = errors["mean"]
    assert plain == pytest.approx((errors["contrast"][0] + errors["fog"][0]) / 2)
    assert full == pytest.approx(view.numbers["adapted_error.full"])
    assert full < plain  # batch statistics undo contrast
    (accuracies,) = [block for block in view.blocks if isinstance(block, Table) and "each method" in block.title]
    assert accuracies.rows[-1][0] == "sorted by class"
    source, adapted = (float(str(cell)) for cell in accuracies.rows[-1][1:])
    assert view.numbers["correlated_gain.bn"] == pytest.approx(adapted - source)


def test_few_updates_do_not_tell_what_learning_brings() -> None:
    few, none = (
        section("adaptation").view([measured("source", 100, updates=0), measured(name, 100, updates=updates)])
        for name, updates in (("rdumb", 4), ("bn", 0))
    )
    assert "methods that learn made at most 4 updates, too few to tell what they add" in few.verdict[0].text
    assert "updates" not in none.verdict[0].text
