"""Spaces: what comes with the library, one's own, files, and how tuples are drawn from them."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from shiftproof import shifts
from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.searchers import Space, make_space, spaces
from shiftproof.shifts.operations.operation import operation_set


def test_published_spaces_have_their_sizes():
    assert {name: len(make_space(name)) for name in spaces()} == {
        "mnist": 211,
        "cifar": 190,
        "camvid": 190,
        "faces": 191,
        "geometric": 120,
        "small_geometric": 46,
        "occlusion": 48,
        "corruptions": 45,
    }
    assert make_space("cifar").size(5) == 190**5


@pytest.mark.parametrize("name", ["mnist", "cifar", "camvid", "faces", "geometric"])
def test_published_spaces_are_the_operations_of_the_table(name):
    assert make_space(name).steps == operation_set(name)


@pytest.mark.parametrize("name", spaces())
def test_a_file_reads_back(name, tmp_path):
    space = make_space(name)
    space.save(tmp_path / "space.json")
    assert make_space(str(tmp_path / "space.json")) == space


def test_a_space_of_ones_own():
    space = make_space([("contrast", [0.8, 1.2]), "grayscale", ("fog@", [1, 2.5]), ("rotate[fill=reflect]", [15])])
    labels = ["contrast=0.8", "contrast=1.2", "grayscale", "fog@1", "fog@2.5", "rotate=15[fill=reflect]"]
    assert [step.label for step in space.steps] == labels
    assert space.counts == (2, 1, 2, 1)
    assert space.chain((0, 4)) == shifts.parse("contrast=0.8 + fog@2.5")
    assert space.words((0, 2, 4)) == "contrast 0.8, grayscale, fog 2.5"
    assert make_space(space) is space


@given(st.lists(st.integers(0, 189), min_size=1, max_size=6))
def test_labels_are_read_back_as_the_same_shift(genes):
    space = make_space("cifar")
    parsed = shifts.parse(space.label(tuple(genes)))
    steps = parsed.steps if isinstance(parsed, shifts.ImageChain) else (parsed,)
    assert steps == tuple(space.steps[gene] for gene in genes)


def test_steps_are_drawn_uniformly():
    space = make_space("cifar")
    drawn = space.draw(Keyed(0, range(4000)), 5)
    assert drawn.shape == (4000, 5)
    assert chisquare(np.bincount(drawn.ravel(), minlength=190)).pvalue > 1e-4


def test_the_release_draws_the_operation_first():
    space = make_space("faces")  # 20 levels, 30 levels and, for grayscale, one step
    drawn = space.draw(Keyed(0, range(4000)), 5, "operation")
    names = [space.steps[gene].name for gene in drawn.ravel()]
    counts = [names.count(name) for name, _ in space.operations]
    assert len(counts) == 9
    assert chisquare(counts).pvalue > 1e-4
    levels = [gene for gene in drawn.ravel() if space.steps[gene].name == "red_shift"]
    assert chisquare(np.unique(levels, return_counts=True)[1]).pvalue > 1e-4
    assert len(set(levels)) == 30


BAD = {
    "empty": ([], "no operations"),
    "unknown operation": ([("contrst", [1])], "no shift named 'contrst'"),
    "no level": ([("contrast", [])], "contrast"),
    "level out of range": ([("posterize", [9])], "no such level"),
    "not a pair": ([3], "list of operations"),
    "unknown name": ("cifar10", "did you mean  cifar"),
    "no such file": ("nowhere.json", "Cannot read the space"),
}


@pytest.mark.parametrize(("space", "says"), BAD.values(), ids=BAD.keys())
def test_what_is_no_space(space, says):
    with pytest.raises(ConfigurationError, match=says):
        make_space(space)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"operations": 3}', '{"operations": {"contrast": ["x"]}}'])
def test_what_is_no_file_of_a_space(text, tmp_path):
    path = tmp_path / "space.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="Cannot read the space"):
        make_space(str(path))


def test_the_file_is_meant_to_be_edited(tmp_path):
    Space("mine", (("contrast", (0.5,)), ("grayscale", ()))).save(tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text()) == {
        "name": "mine",
        "operations": {"contrast": [0.5], "grayscale": []},
    }
