"""The start of training: one seed, one start; a run of one's own model file goes on; given weights still count."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from shiftproof.errors import RunError
from shiftproof.models import ModelSpec, load_model, load_weights
from shiftproof.training import train
from tests.training.samples import small, two_classes

SETTINGS: dict[str, Any] = {"epochs": 2, "batch_size": 40, "lr": 0.1, "log_every": 1}

# Random in every way that users' files are: PyTorch's, NumPy's and Python's generators, and a batch norm's statistics.
NET = """
import random

import numpy as np
import torch
from torch import nn


def build():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(32, 2),
    )
    with torch.no_grad():
        net[0].bias[0] = random.random()
        net[0].bias[1] = float(np.random.normal())
    return net
"""
ENTROPY = """
import torch
from tests.training.samples import Small


def build():
    torch.seed()
    return Small()
"""


@pytest.fixture(scope="module")
def data():
    return two_classes()


@pytest.fixture
def net(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    return f"{tmp_path / 'net.py'}:build"


def stop_at(last):
    """Press Ctrl-C at a step."""

    def on_progress(step, steps, row):
        if step == last:
            raise KeyboardInterrupt

    return on_progress


def values(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: nn.Module, other: nn.Module) -> bool:
    first, second = values(one), values(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_the_seed_decides_the_start_of_a_file_of_ones_own(net, data):
    once, again, other = (train(net, data, seed=seed, **SETTINGS) for seed in (0, 0, 1))
    assert once.losses() == again.losses()
    assert same(once.model, again.model)
    assert once.losses()[0] != other.losses()[0]


def test_generators_of_the_caller_are_left_alone(net, data):
    def drawn():
        return torch.rand(1).item(), np.random.rand(), random.random()  # noqa: NPY002

    def begin():
        torch.manual_seed(5), np.random.seed(5), random.seed(5)  # noqa: NPY002

    begin()
    expected = drawn()
    for model in (net, "convnet", "demo"):
        begin()
        train(model, data, **{**SETTINGS, "epochs": 1})
        assert drawn() == expected


def test_a_file_of_ones_own_resumes_and_is_read_again(net, data, tmp_path):
    whole = train(net, data, out=tmp_path / "whole", **SETTINGS)
    with pytest.raises(KeyboardInterrupt):
        train(net, data, out=tmp_path / "parts", on_progress=stop_at(8), **SETTINGS)
    assert [path.name for path in (tmp_path / "parts").glob("state-*")] == ["state-5.pt"]
    steps = list[int]()
    resumed = train(net, data, out=tmp_path / "parts", on_progress=lambda step, *_: steps.append(step), **SETTINGS)
    assert steps == [5, 6, 7, 8, 9, 10]
    assert same(resumed.model, whole.model)
    assert resumed.losses() == whole.losses()
    again = train(net, data, out=tmp_path / "whole", **SETTINGS)  # nothing is left to do
    assert same(again.model, whole.model)
    assert same(load_model(tmp_path / "whole"), whole.model)  # type: ignore[arg-type]


def test_what_no_seed_decides_resumes_too(data, tmp_path):
    (tmp_path / "net.py").write_text(ENTROPY)
    net = f"{tmp_path / 'net.py'}:build"
    first = train(net, data, out=tmp_path / "run", **SETTINGS)
    assert same(train(net, data, out=tmp_path / "run", **SETTINGS).model, first.model)


def test_another_file_or_function_is_another_model(net, data, tmp_path):
    both = f"{NET}\n\ndef wider():\n    net = build()\n    nn.init.normal_(net[-1].weight, std=9)\n    return net\n"
    (tmp_path / "net.py").write_text(both)
    train(net, data, out=tmp_path / "run", **SETTINGS)
    with pytest.raises(RunError, match="another model"):
        train(f"{tmp_path / 'net.py'}:wider", data, out=tmp_path / "run", **SETTINGS)
    (tmp_path / "net.py").write_text(both.replace("float(np", "9 * float(np"))
    with pytest.raises(RunError, match="another model"):
        train(net, data, out=tmp_path / "run", **SETTINGS)


def read_by_option(tmp_path: Path) -> Any:
    (tmp_path / "net.py").write_text(NET)
    return ModelSpec(f"{tmp_path / 'net.py'}:build", weights=tmp_path / "given.pt")


def read_by_build(tmp_path: Path) -> Any:
    reads = f"net.load_state_dict(torch.load({str(tmp_path / 'given.pt')!r}, weights_only=True))"
    lines = ("def trained():", "net = build()", reads, "net.append(nn.Linear(2, 2))", "return net")
    (tmp_path / "net.py").write_text(NET + "\n\n" + "\n    ".join(lines) + "\n")
    return f"{tmp_path / 'net.py'}:trained"


def read_before(tmp_path: Path) -> Any:
    net = given_net(0)
    load_weights(net, tmp_path / "given.pt")
    return net


def given_net(seed: int) -> nn.Module:
    space: dict[str, Any] = {}
    exec(NET, space)
    torch.manual_seed(seed)
    net: nn.Module = space["build"]()
    return net


@pytest.mark.parametrize("how", [read_by_option, read_by_build, read_before])
def test_weights_that_are_given_count(how, data, tmp_path):
    torch.save(given_net(1).state_dict(), tmp_path / "given.pt")
    first = train(how(tmp_path), data, out=tmp_path / "run", **SETTINGS)
    assert same(train(how(tmp_path), data, out=tmp_path / "run", **SETTINGS).model, first.model)
    torch.save(given_net(2).state_dict(), tmp_path / "given.pt")
    model = how(tmp_path)
    with pytest.raises(RunError, match="another model"):
        train(model, data, out=tmp_path / "run", **SETTINGS)


def test_a_folder_to_go_on_from_counts(data, tmp_path):
    for seed in (0, 1):
        train("convnet", data, out=tmp_path / f"first-{seed}", seed=seed, **SETTINGS)
    train(tmp_path / "first-0", data, out=tmp_path / "further", **SETTINGS)
    with pytest.raises(RunError, match="another model"):
        train(tmp_path / "first-1", data, out=tmp_path / "further", **SETTINGS)


def test_a_folder_says_what_it_has_and_what_was_asked(data, tmp_path):
    train(small(), data, out=tmp_path / "run", **SETTINGS)
    with pytest.raises(RunError, match="another number of epochs") as caught:
        train(small(), data, out=tmp_path / "run", **{**SETTINGS, "epochs": 1})  # more epochs would extend the run
    assert caught.value.facts["expected"] == "epochs 2, as in the folder, or more"
    assert caught.value.facts["got"] == "epochs 1"
