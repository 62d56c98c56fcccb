"""What a reader in a hurry gets: which sentences and actions are chosen, in which order, and that commands exist."""

import ast
import shlex

import pytest

from shiftproof.audits.sections import section
from shiftproof.audits.sections.point_labels import Box, _boxes, place
from shiftproof.cli.commands import COMMANDS
from shiftproof.cli.derive import build
from shiftproof.reports import headlines
from shiftproof.reports.view import Action, Sentence, View
from shiftproof.training import RECIPES
from tests.audits.test_sections import results


def view(name, *sentences, actions=()):
    return View(name, name, verdict=tuple(Sentence(text, level) for text, level in sentences), actions=tuple(actions))


def test_six_sentences_the_worst_first_to_stay_and_in_their_own_order():
    views = [
        view("a", ("a1", "plain"), ("a2", "bad")),
        view("b", ("b1", "bad"), ("b2", "watch")),
        *(view(name, (f"{name}1", "good")) for name in "cde"),
        view("f", ("f1", "watch")),
        view("g", ("g1", "plain")),
    ]
    assert [sentence.text for _, sentence in headlines.verdict(views)] == ["a1", "b1", "c1", "d1", "e1", "f1"]
    assert [each.section for each, _ in headlines.verdict(views)] == ["a", "b", "c", "d", "e", "f"]


def test_few_sentences_all_stay():
    views = [view("a", ("a1", "plain"), ("a2", "plain")), view("b", ("b1", "bad"))]
    assert [sentence.text for _, sentence in headlines.verdict(views)] == ["a1", "a2", "b1"]


def test_actions_are_ranked_by_what_they_win():
    wins = {"none": None, "bound 30": 30.0, "measured 2": 2.0, "measured 9": 9.0, "bound 5": 5.0, "none too": None}
    actions = [Action(name, "", "", gain, bound="bound" in name) for name, gain in wins.items()]
    ranked = [
        action.title
        for _, action in headlines.actions([view("a", actions=actions[:3]), view("b", actions=actions[3:])])
    ]
    assert ranked == ["measured 9", "measured 2", "bound 30", "bound 5", "none"]


def test_what_corruption_costs_is_what_hardening_can_win():
    found = section("corruptions").view(results(90, {"gaussian_noise@5": 30, "fog@5": 80}))
    (action,) = found.actions
    assert "harden" in action.title
    assert "Gaussian noise costs 30.0 of the 35.0 points" in action.why
    assert action.bound
    assert action.gain == pytest.approx(35)  # 60 and 10 points, over two corruptions
    assert not section("corruptions").view(results(90, {"gaussian_noise@5": 88, "fog@5": 89})).actions


def test_what_no_hardened_network_was_measured_under_is_trained_against():
    (action,) = section("corruptions").view(results(90, {"equalize": 30, "gaussian_noise@5": 80})).actions
    assert action.code.startswith("shiftproof train")
    assert action.gain == pytest.approx(30)


def test_commands_and_code_of_actions_can_be_run():
    everything = [
        *section("corruptions").view(results(90, {"gaussian_noise@5": 30})).actions,
        *section("corruptions").view(results(90, {"fog@5": 30})).actions,
        *section("clean").view(results(60, {})).actions,
    ]
    assert len(everything) == 3
    for action in everything:
        if action.code.startswith("shiftproof "):
            _, name, *arguments = shlex.split(action.code)
            context = build(name, COMMANDS[name]).make_context(name, arguments)
            assert context.params["recipe"] in {None, *RECIPES}
        else:
            ast.parse(action.code)


class TestLabels:
    POINTS = ((0.0, 0.0), (0.1, 0.02), (0.12, 0.05), (0.1, -0.05), (3.0, 1.0), (2.9, 1.05), (-2.0, 2.0))
    NAMES = ("clean", "brightness", "pixelate", "JPEG compression", "gaussian noise", "shot noise", "contrast")

    def test_no_name_covers_another(self):
        positions = place(self.POINTS, self.NAMES)
        scale = min(900 / 5, 330 / 2.05)
        boxes = [
            dict(_boxes((x * scale, -y * scale), name))[position]
            for (x, y), name, position in zip(self.POINTS, self.NAMES, positions, strict=True)
            if position
        ]
        assert len(boxes) >= 5
        assert not any(one.meets(other) for number, one in enumerate(boxes) for other in boxes[:number])

    def test_a_name_without_room_is_left_out(self):
        crowd = [(0.0, 0.0)] * 12 + [(1.0, 1.0)]
        assert None in place(crowd, ["a long name of a corruption"] * 13)

    def test_boxes_that_touch_do_not_meet(self):
        assert not Box(0, 0, 1, 1).meets(Box(1, 0, 2, 1))
        assert Box(0, 0, 1, 1).meets(Box(0.9, 0.9, 2, 2))
