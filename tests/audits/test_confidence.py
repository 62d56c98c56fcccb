"""The section on confidence: what it plans and says, for models that know and models that do not."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from shiftproof import audit, load_data, load_model
from shiftproof.audits.audit_settings import make_settings
from shiftproof.audits.sections import section
from shiftproof.audits.sections.answer_scores import AnswerScores, LabelledHalf
from shiftproof.audits.sections.base import Scope
from shiftproof.audits.sections.foreign import FOREIGN
from shiftproof.audits.sections.half_sets import ForeignSet, TargetSet
from shiftproof.estimators.evidence import Evidence
from shiftproof.models import BlackBox
from shiftproof.runs import Result
from shiftproof.shifts import corruption
from shiftproof.subjects import Subject

COMMON: dict[str, Any] = {"images": 200, "viewed": 0, "views": 3, "seed": 0}
RNG = np.random.default_rng(0)


def scores(accuracy, sure, *, knows=True, size=200):
    """Answers of which a share is right, with a mean confidence; `knows` puts the right ones above the wrong ones."""
    right = (np.arange(size) < accuracy * size).astype(float)
    spread = np.linspace(0.1, -0.1, size) if knows else RNG.permutation(np.linspace(0.1, -0.1, size))
    sure = np.clip(sure + spread, 0, 1)
    holds = np.maximum(right, np.arange(size) < 0.9 * accuracy * size)
    return AnswerScores(right, sure, sure, sure, sure, holds, np.ones(size)).to_row()


def results(**shifted):
    made = [Result(TargetSet(None, **COMMON), {"scores": scores(0.9, 0.9)}, None, 1.0)]
    for name, row in shifted.items():
        made.append(Result(TargetSet(corruption(name, 3), **COMMON), {"scores": row}, None, 1.0))
    foreign = {"scores": scores(0.0, 0.5)}
    return [*made, *(Result(ForeignSet(shift, **COMMON), foreign, None, 1.0) for shift in FOREIGN["images"].values())]


def test_a_model_that_is_too_sure_is_told_so_with_the_worst_shift():
    view = section("confidence").view(results(fog=scores(0.8, 0.9), contrast=scores(0.4, 0.9, knows=False)))
    said = view.verdict[0]
    assert said.level == "bad"
    assert "Worst is contrast: accuracy 40.0%, mean confidence 90.0%" in said.text
    assert view.verdict[-1].level == "watch"
    assert view.numbers["ece.contrast"] == pytest.approx(0.5, abs=0.02)
    assert view.numbers["ece"] == pytest.approx(np.mean([view.numbers["ece.contrast"], view.numbers["ece.fog"]]))
    assert view.numbers["foreign_auroc_energy"] == 1.0
    json.dumps([block.plot for block in view.blocks if hasattr(block, "plot")], allow_nan=False)


def test_answering_less_helps_a_model_that_knows_and_no_other():
    knows = section("confidence").view(results(fog=scores(0.6, 0.6)))
    blind = section("confidence").view(results(fog=scores(0.6, 0.6, knows=False)))
    assert knows.numbers["accuracy_at_coverage_50"] == 1.0
    assert knows.numbers["error_auroc_confidence"] == 1.0
    assert blind.numbers["accuracy_at_coverage_50"] == pytest.approx(0.6, abs=0.1)
    assert blind.numbers["error_auroc_confidence"] == pytest.approx(0.5, abs=0.1)
    (abstain,) = knows.actions
    assert abstain.title == "Let it abstain where its confidence is low"
    assert "under all shifts together" in abstain.why
    assert "With a limit for each shift it would be" in abstain.why
    assert not blind.actions
    assert "on the 70% of images of highest confidence it is 85.7%" in knows.verdict[1].text  # 120 of 140


def test_severities_of_a_shift_are_one_set():
    rows = [Result(TargetSet(corruption("fog", level), **COMMON), {"scores": scores(part, 0.7)}, None, 1.0)
            for level, part in ((1, 0.9), (5, 0.5))]  # fmt: skip
    numbers = section("confidence").view([*results(), *rows]).numbers
    assert [name for name in numbers if name.startswith("ece.")] == ["ece.clean", "ece.fog"]
    assert numbers["conformal_coverage.fog"] == pytest.approx(0.7)


def test_the_passes_are_those_of_label_free_estimation():
    scope = Scope(make_settings(), images=1000, side=32)
    own, other = (set(section(name).plan(scope)) for name in ("confidence", "label_free"))
    assert {type(task) for task in own - other} == {ForeignSet}
    assert not list(section("confidence").plan(Scope(make_settings(), images=99, side=32)))


def test_scores_are_read_from_outputs_and_features():
    logits = RNG.normal(size=(60, 3)).astype(np.float32) * 3
    labels = np.where(RNG.random(60) < 0.8, logits.argmax(1), 0)
    nothing = (np.empty(0, np.int64), np.empty((0, 3)), np.empty(0))
    half = LabelledHalf.of(Evidence(logits, *nothing, labels=labels))
    found = AnswerScores.of(Evidence(logits, *nothing, labels=labels), half)
    p = torch.from_numpy(logits).softmax(1).numpy()
    assert found.confidence == pytest.approx(p.max(1), rel=1e-5)
    assert found.holds.mean() >= 0.95
    assert (found.holds >= found.right).all()  # the answer is always in its set
    given = AnswerScores.of(Evidence(p.astype(np.float32), *nothing, labels=labels), half)
    assert given.confidence == pytest.approx(found.confidence, abs=1e-5)  # probabilities are taken as such
    back = AnswerScores.from_row(json.loads(json.dumps(found.to_row())))
    assert back.energy == pytest.approx(found.energy, rel=1e-6)
    foreign = AnswerScores.of(Evidence(logits, *nothing, labels=labels), half, foreign=True)
    assert not foreign.right.any()


@pytest.mark.parametrize("what", FOREIGN["images"])
def test_foreign_images_have_the_size_of_the_data_and_depend_on_the_key_alone(what):
    shift: Any = FOREIGN["images"][what]
    for channels in (1, 3):
        images = torch.rand(4, channels, 12, 9)
        keys = torch.arange(4)
        made = shift(images, keys, seed=0)
        assert made.shape == images.shape
        assert 0 <= made.min() <= made.max() <= 1
        assert (made != images).float().mean() > 0.5
        assert torch.equal(shift(images[2:], keys[2:], seed=0), made[2:])


def test_foreign_texts_keep_their_lengths_and_no_word():
    shift: Any = FOREIGN["texts"]["words of random letters"]
    (made,) = shift(["A good film, seen 3 times."], torch.tensor([7]), seed=0)
    assert len(made) == 26
    assert [len(word) for word in made.split()] == [1, 4, 5, 4, 1, 6]
    assert "good" not in made


def test_a_black_box_without_features_has_scores_too():
    model = load_model("demo")
    subject = Subject.of(
        BlackBox(lambda x: model(x).detach().numpy()), load_data("demo").take(100), device="cpu", batch_size=64
    )
    row: Any = ForeignSet(FOREIGN["images"]["noise"], images=50, viewed=0, views=1, seed=0).measure(subject)
    assert len(AnswerScores.from_row(row["scores"])) == 50


def test_an_audit_has_the_section_and_its_numbers_can_be_required(tmp_path):
    made = audit(
        "demo", "demo", out=tmp_path, sections=["confidence"], images=100, shifts=["contrast"], severities=[5],
        require=["ece.contrast < 5%", "accuracy_at_coverage_50 > 1%"],
    )  # fmt: skip
    assert not made.failed
    assert [one.passed for one in made.checks] == [False, True]
    assert "Does it know when it is wrong?" in made.report.read_text()
    assert "scores" not in (tmp_path / "results.json").read_text()
