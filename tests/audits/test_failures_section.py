"""The section `failures`: weak slices of an audit's own answers, and what is wrong with the data."""

import numpy as np
import pytest
import torch

import shiftproof
from shiftproof.audits.audit_settings import make_settings
from shiftproof.audits.sections import section
from shiftproof.audits.sections.base import Scope
from shiftproof.audits.sections.failures import ImageFacts
from shiftproof.slices.data_quality import doubtful_labels, find_label_errors, in_several_classes


class Tells(torch.nn.Module):
    """Reads the label in the first pixel, but for dark images, which it takes for the other class."""

    def forward(self, images):
        dark = images.mean((1, 2, 3)) < 0.2
        label = (images[:, 0, 0, 0] > 0.5) ^ dark
        return torch.stack([~label, label], 1).float() * 5


def images(count=400):
    rng = np.random.default_rng(0)
    pixels = rng.integers(100, 255, (count, 3, 16, 16)).astype(np.uint8)
    pixels[: count // 8] //= 8
    labels = np.arange(count) % 2
    pixels[:, 0, 0, 0] = 255 * labels
    pixels[10], labels[11] = pixels[12], 1  # a copy of 12, with the same label
    pixels[13] = pixels[12]  # and one under the other
    pixels[201] = 200
    labels[201] = 1
    return pixels.transpose(0, 2, 3, 1), labels


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    result = shiftproof.audit(
        Tells(), images(), shifts=["contrast"], severities=[1], sections=["failures", "corruptions"], out=out
    )
    assert not result.failed
    return next(each for each in result.views if each.section == "failures")


def test_a_planted_slice_is_told(view):
    assert view.numbers["weak_slices"] >= 1
    (table,) = view.blocks
    assert any("dark (brightness up to" in row[0] for row in table.rows)
    assert "100% on the other images" in view.verdict[0].text
    assert any("groups were tested" in note for note in view.notes)


def test_faults_of_the_data_are_told(view):
    said = " ".join(view.notes)
    assert "1 image occurs under several labels" in said
    assert "1 image shows one colour" in said
    assert view.numbers["label_doubts"] > 0


def test_nothing_is_asked_of_the_model_that_other_sections_do_not():
    scope = Scope(make_settings(), 1000, 32)
    others = {task for name in ("clean", "corruptions") for task in section(name).plan(scope)}
    assert all(task in others or isinstance(task, ImageFacts) for task in section("failures").plan(scope))


def test_labels_are_doubted_as_with_all_probabilities_where_two_classes_are_all():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet([0.5, 0.5], 300)
    labels = np.where(rng.random(300) < 0.9, shares.argmax(1), 1 - shares.argmax(1))
    whole = find_label_errors(shares, labels)
    assert whole
    found = doubtful_labels(shares.argmax(1), shares.max(1), labels)
    assert [each.index for each in found] == [each.index for each in whole]


def test_copies_are_counted_across_classes_alone():
    assert in_several_classes(torch.tensor([1, 1, 2, 2, 3]), torch.tensor([0, 0, 0, 1, 1])) == 2
    assert in_several_classes([1, 1], None) == 0
