"""What makes an audit's numbers mean less is told, again by `report`, and nothing is then called good."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import shiftproof
from shiftproof.audits import gate
from shiftproof.audits.caveats import caveats, with_caveats
from shiftproof.audits.sections import section
from shiftproof.audits.sections.chance import Standing
from shiftproof.audits.sections.clean import CleanSlice
from shiftproof.audits.sections.mixups import cycles, reordered
from shiftproof.errors import DataError
from shiftproof.reports import headlines
from shiftproof.reports.notebook import text
from shiftproof.reports.view import Action, Sentence, Tile, View
from shiftproof.runs import Result


class Odd(nn.Module):
    """The demo with something wrong."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.network: Any = shiftproof.load_model("demo")
        self.kind = kind

    def forward(self, images: Tensor) -> Tensor:
        if self.kind == "training":
            self.network.train()
        if self.kind == "weights":
            with torch.no_grad():
                self.network.linear.bias.add_(0.01)
        scores: Tensor = self.network(images)
        return WRONG[self.kind](scores) if self.kind in WRONG else scores


WRONG: dict[str, Callable[[Tensor], Tensor]] = {
    "probabilities": lambda scores: scores.softmax(1),
    "sigmoid": torch.sigmoid,
    "rounded": lambda scores: (20 * scores.softmax(1)).floor() / 20,
    "random": lambda scores: scores + torch.randn_like(scores),
    "dropout": nn.Dropout(0.5),
    "batch": lambda scores: scores - scores.mean(0),
    "constant": lambda scores: scores * 0 + torch.arange(10.0),
    "shuffled": lambda scores: scores.roll(1, 1),
}


OPTIONS: dict[str, Any] = {"images": 40, "shifts": ["brightness"], "severities": [1]}


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("probabilities", "probabilities, not logits"),
        ("sigmoid", "as after a sigmoid"),
        ("rounded", "declare rounded probabilities with load_model(..., probabilities=True)"),
        ("random", "The model is random"),
        ("dropout", "The model is random"),
        ("batch", "depend on the other images of its batch"),
        ("weights", "changes its weights"),
        ("training", "into training mode"),
        ("constant", "It predicts truck for all 40 images"),
        ("shuffled", "no better than chance"),
    ],
)
def test_what_is_wrong_is_told_everywhere_and_again(kind, says, tmp_path):
    made = shiftproof.audit(Odd(kind), "demo", out=tmp_path, sections=["clean", "corruptions"], **OPTIONS)
    for found in (made, gate(tmp_path)):
        assert says in " ".join(sentence.text for _, sentence in headlines.verdict(found.views))
        assert says in text(found)
        assert says in found.report.read_text("utf-8")
        assert says in json.dumps(json.loads((tmp_path / "results.json").read_text())["caveats"])
        rated = [sentence.level for view in found.views for sentence in view.verdict]
        rated += [tile.level for view in found.views for tile in view.tiles]
        assert kind == "probabilities" or "good" not in rated
    if kind in ("constant", "shuffled"):
        assert "probably do not match" in text(made)
        assert [action.title for _, action in headlines.actions(made.views)] == ["Check that labels and outputs match"]
    if kind == "probabilities":  # their logarithms are logits of the same confidences
        plain = shiftproof.audit("demo", "demo", out=tmp_path / "plain", sections=["clean", "corruptions"], **OPTIONS)
        assert made.numbers == pytest.approx(plain.numbers, abs=1e-5)
        assert made.views[1].tiles[0].level == "good"


def test_a_sound_model_has_no_caveats_and_is_called_good(tmp_path):
    made = shiftproof.audit("demo", "demo", out=tmp_path, sections=["clean", "corruptions"], **OPTIONS)
    assert [view.section for view in made.views] == ["clean", "corruptions", "mistakes"]
    assert made.views[0].tiles[0].level == "good"
    assert json.loads((tmp_path / "results.json").read_text())["caveats"] == []


def test_chance_is_known_where_only_another_section_was_asked_for(tmp_path):
    made = shiftproof.audit(Odd("shuffled"), "demo", out=tmp_path, sections=["spectrum"], **{**OPTIONS, "images": 16})
    assert [view.section for view in made.views] == ["caveats", "spectrum", "mistakes"]
    assert "clean_accuracy" not in made.numbers


def clean(answers, **classes):
    """Rows of a clean section: class -> (right, images)."""
    images, right = (sum(pair[place] for pair in classes.values()) for place in (1, 0))
    row = {"images": images, "right": right, "confidence": 0.1, "hits": "", "classes": classes, "answers": answers}
    return [Result(CleanSlice(0, images), row, None, 1.0)]


@pytest.mark.parametrize(
    ("results", "level", "kind"),
    [
        (clean({"b": 5, "c": 5}, a=[0, 5], b=[0, 5]), "bad", "chance"),  # 0 of 10
        (clean({"a": 50, "b": 50}, a=[25, 50], b=[25, 50]), "bad", "chance"),  # a coin
        (clean({"a": 27, "b": 33}, a=[15, 32], b=[16, 28]), "bad", "chance"),  # hardly above what guesses get
        (clean({"a": 510, "b": 490}, a=[266, 500], b=[256, 500]), "watch", "chance"),  # 52% of 1,000 at 50%
        (clean({"a": 40}, a=[20, 20], b=[0, 20]), "bad", "one_answer"),
        (clean({"a": 85, "b": 15}, a=[83, 95], b=[3, 5]), "bad", "baseline"),  # sees b, and one class is most of all
        (clean({"a": 12, "b": 8}, a=[7, 10], b=[5, 10]), "watch", "unproven"),  # 12 of 20
        (
            clean(dict.fromkeys("abcdefghij", 60), a=[13, 69], **{name: [8, 59] for name in "bcdefghij"}),
            "watch",
            "chance",
        ),
        (clean({"a": 210, "b": 190}, a=[149, 240], b=[99, 160]), "watch", "unproven"),  # sees both, a is 60% of all
        (clean({"a": 500, "b": 500}, a=[320, 500], b=[320, 500]), "watch", None),  # 64% of two classes
        (clean({"a": 50, "b": 50}, a=[48, 50], b=[48, 50]), "good", None),
    ],
)
def test_accuracy_is_rated_against_chance(results, level, kind):
    view = section("clean").view(results)
    assert view.tiles[0].level == level
    assert "most frequent class" in view.tiles[0].rule
    assert [caveat.kind for caveat in caveats((), results)] == ([] if kind is None else [kind])


def test_the_spread_of_guesses_is_that_of_answers_dealt_at_random():
    classes: dict[str, Any] = {"a": [9, 30], "b": [7, 20], "c": [2, 10]}
    (result,) = clean({"a": 24, "b": 21, "x": 15}, **classes)
    found = Standing.of([result.row])
    assert found is not None
    rng, labels = np.random.default_rng(0), np.repeat([0, 1, 2], [30, 20, 10])
    answers = np.repeat([0, 1, 3], [24, 21, 15])
    right = [(rng.permutation(answers) == labels).mean() for _ in range(20_000)]
    assert found.expected == pytest.approx(np.mean(right), abs=0.002)
    assert found.spread == pytest.approx(np.std(right), rel=0.02)


def test_one_class_is_no_measure_of_chance():
    results = clean({"a": 9, "b": 1}, a=[9, 10])
    assert Standing.of([result.row for result in results]) is None
    assert caveats((), results) == ()


def test_caveats_come_first_and_all_of_them_stay():
    rows = [{"kind": "random", "text": f"odd {number}", "level": "bad"} for number in range(3)]
    views = [View(name, name, "", verdict=(Sentence(name, "bad"),)) for name in "abcdefg"]
    said = [sentence.text for _, sentence in headlines.verdict(with_caveats(views, caveats(rows, ())))]
    assert said == ["odd 0", "odd 1", "odd 2", "a", "b", "c"]


def test_a_caveat_that_spoils_nothing_leaves_the_rest_as_it_is():
    parts: dict[str, Any] = {"verdict": (Sentence("s", "good"),), "tiles": (Tile("t", "1", level="good"),)}
    view = View("corruptions", "", "", actions=(Action("a", "", ""),), **parts)
    _, same = with_caveats([view], caveats([{"kind": "probabilities", "text": "p", "level": "plain"}], ()))
    assert same == view
    _, hedged = with_caveats([view], caveats([{"kind": "duplicates", "text": "d", "level": "watch"}], ()))
    assert hedged.verdict[0].level == hedged.tiles[0].level == "plain"
    assert hedged.actions == view.actions


@pytest.mark.parametrize(
    ("confused", "expected"),
    [
        ({"a": {"b": 8}, "b": {"a": 7}}, [("a", "b")]),
        ({"a": {"b": 8}, "b": {"c": 7}, "c": {"a": 6}}, [("a", "b", "c")]),
        ({"a": {"b": 8}, "b": {"c": 7}}, []),  # a line of hard classes is no ring
        ({"a": {"b": 4, "c": 4}, "b": {"a": 9}}, []),  # not most of them
        ({"d": {"a": 1}, "a": {"d": 9}}, []),  # one image says nothing
        ({"x": {"a": 9}, "a": {"b": 9}, "b": {"a": 9}}, [("a", "b")]),
    ],
)
def test_classes_that_get_each_others_answers(confused, expected):
    counts: dict[str, Any] = {name: [0, 10] for name in "abcx"} | {"d": [0, 1]}
    assert cycles([{"classes": counts, "confused": confused}]) == expected


@pytest.mark.parametrize(("classes", "images"), [(2, 16), (2, 40), (3, 20)])
def test_guesses_are_not_taken_for_swapped_classes(classes, images):
    rng = np.random.default_rng(0)
    for _ in range(100):
        assert cycles(slices(*rng.integers(0, classes, (2, images)))) == []


@pytest.mark.parametrize(("classes", "per_class", "pairs"), [(10, 10, 1), (100, 5, 5), (1000, 5, 10)])
def test_classes_that_are_not_told_apart_are_not_taken_for_swapped(classes, per_class, pairs):
    rng = np.random.default_rng(0)
    for _ in range(10):
        labels = rng.permutation(np.repeat(np.arange(classes), per_class))
        partners = np.where((labels < 2 * pairs) & (rng.random(len(labels)) < 0.5), labels ^ 1, labels)
        assert cycles(slices(labels, partners)) == []


def test_two_classes_may_be_swapped():
    labels = np.repeat([0, 1], [12, 8])
    assert cycles(slices(labels, np.where(np.arange(20) % 10 < 9, 1 - labels, labels))) == [("0", "1")]


def slices(labels, answers, of=100):
    """Return rows of the section clean, one for each hundred images."""
    made = []
    for start in range(0, len(labels), of):
        given, said = labels[start : start + of], answers[start : start + of]
        confused: dict[str, Any] = {}
        for label, answer in zip(given.tolist(), said.tolist(), strict=True):
            if label != answer:
                row = confused.setdefault(str(label), {})
                row[str(answer)] = row.get(str(answer), 0) + 1
        names = sorted(set(given.tolist()))
        classes = {str(name): [int((said[given == name] == name).sum()), int((given == name).sum())] for name in names}
        made.append({"classes": classes, "confused": confused})
    return made


def test_outputs_in_another_order_are_found_in_images_that_did_not_choose_it():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 600)
    order = rng.permutation(10)
    seen = np.where(rng.random(600) < 0.45, labels, rng.integers(0, 10, 600))  # right about half of the time
    found = reordered(slices(labels, order[seen]))
    assert found is not None
    assert found.images == 600
    assert found.right == (order[seen] == labels).sum()
    assert found.reordered == (seen == labels).sum()
    theirs = {(str(name), str(answer)) for name, answer in enumerate(order) if name != answer}
    assert set(found.pairs) == theirs


@pytest.mark.parametrize("kind", ["right", "guesses", "one image a class", "one slice", "two swapped", "mostly one"])
def test_no_other_order_is_found_where_there_is_none(kind):
    rng = np.random.default_rng(0)
    labels = rng.permutation(600) if kind == "one image a class" else rng.integers(0, 10, 600)
    answers = np.where(rng.random(600) < 0.45, labels, rng.integers(0, 10, 600))
    if kind == "two swapped":  # which costs less than would be sure
        answers = np.array([1, 0, *range(2, 10)])[answers]
    elif kind == "guesses":
        answers = rng.integers(0, 10, 600)
    elif kind == "mostly one":  # taking the usual answer for the frequent class is no knowledge
        labels, answers = (np.where(rng.random(600) < 0.9, one, drawn) for one, drawn in ((2, labels), (3, answers)))
    elif kind in ("one image a class", "one slice"):
        answers = rng.permutation(labels.max() + 1)[labels]
    assert reordered(slices(labels, answers, of=600 if kind == "one slice" else 100)) is None


@pytest.mark.parametrize(("classes", "images"), [(2, 16), (2, 50), (3, 20), (10, 16), (10, 1000)])
@pytest.mark.parametrize("skill", [0.0, 0.15, 0.9])
@pytest.mark.parametrize("usual", [0.0, 0.9], ids=["any answer", "mostly one answer"])
@pytest.mark.parametrize("frequent", [0.0, 0.8], ids=["balanced", "one frequent class"])
def test_no_other_order_is_found_by_chance(classes, images, skill, usual, frequent):
    rng = np.random.default_rng(0)
    for _ in range(40):
        labels, guesses = rng.integers(0, classes, (2, images))
        labels[rng.random(images) < frequent] = 0
        guesses[rng.random(images) < usual] = classes - 1
        answers = np.where(rng.random(images) < skill, labels, guesses)
        assert reordered(slices(labels, answers, of=min(100, images // 2))) is None


@pytest.mark.parametrize("seed", [2357, 2375, 3021, 3657])
def test_halves_that_agree_by_chance_are_not_taken_for_two_witnesses(seed):
    """Those of guesses that seemed to be in another order, of the first thousands, where halves counted as apart."""
    labels, guesses = np.random.default_rng(seed).integers(0, 10, (2, 40))
    assert reordered(slices(labels, guesses, of=20)) is None


@pytest.mark.parametrize("frequent", [0.0, 0.8], ids=["balanced", "one frequent class"])
def test_another_order_is_found_of_two_classes(frequent):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    labels[rng.random(200) < frequent] = 0
    answers = np.where(rng.random(200) < 0.9, 1 - labels, labels)
    found = reordered(slices(labels, answers))
    assert found is not None
    assert set(found.pairs) == {("0", "1"), ("1", "0")}


def test_another_order_is_looked_for_among_a_thousand_classes_but_not_among_many_more():
    rng = np.random.default_rng(0)
    for classes, told in ((1_000, True), (2_500, False)):
        labels = rng.permutation(np.tile(np.arange(classes), 4))
        found = reordered(slices(labels, (labels + 1) % classes, of=classes))
        assert (found is not None) == told


def test_another_order_of_outputs_is_told_and_nothing_else_is_advised(tmp_path):
    class Turned(nn.Module):
        class_names = ("a", *(f"{letter}" for letter in "cdefghijb"))

        def __init__(self):
            super().__init__()
            self.network: Any = shiftproof.load_model("demo")

        def forward(self, images):
            return self.network(images)[:, [0, 2, 3, 4, 5, 6, 7, 8, 9, 1]]

    images, labels = stored(300)
    made = shiftproof.audit(Turned(), (images, labels), out=tmp_path, sections=["clean"], images=300)
    assert "probably in another order than the model's outputs" in text(made)
    assert [action.title for _, action in headlines.actions(made.views)] == ["Check that labels and outputs match"]


def stored(count):
    """Return images of the demo and their labels."""
    (batch,) = shiftproof.load_data("demo").subset(range(count)).batches(count)
    return batch.inputs, batch.labels


@pytest.mark.parametrize(("copies", "told"), [(1, False), (3, True)])
def test_copies_within_a_class_are_no_evidence_of_their_own(copies, told, tmp_path):
    images, labels = stored(20)
    given = images.repeat(copies, 1, 1, 1), labels.repeat(copies)
    made = shiftproof.audit("demo", given, out=tmp_path, sections=["clean"], images=20 * copies)
    said = json.loads((tmp_path / "results.json").read_text())["caveats"]
    assert bool(said) is told
    if told:  # the standard error of a mean of threes is the square root of 3 times that of as many alone
        assert "40 of 60 images are copies of others" in said[0]
        assert "as much as 20 images" in said[0]
        assert "1.7 times as wide" in said[0]
        assert said[0] in made.report.read_text("utf-8")
        assert "good" not in [tile.level for view in made.views for tile in view.tiles]


def test_labels_counted_from_one_are_told(tmp_path):
    images, labels = stored(40)
    assert set(labels.tolist()) == set(range(10))
    with pytest.raises(DataError, match="subtract 1 from every label"):
        shiftproof.audit("demo", (images, labels + 1), out=tmp_path)


def test_a_text_classifier_has_no_input_size(tmp_path):
    texts = ([f"a text of {number} words" for number in range(40)], [number % 2 for number in range(40)])
    made = shiftproof.audit(
        lambda texts: torch.tensor([[0.0, 1.0]] * len(texts)), texts, out=tmp_path, sections=["clean"]
    )
    said = text(made)
    assert "It predicts 1 for all 40 texts" in said
    assert "its weights or tokenizer are not its own" in said
    assert "input size" not in said
