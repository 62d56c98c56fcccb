from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from shiftproof.errors import ModelError
from shiftproof.models import BlackBox, load_model, logits
from shiftproof.runs import Cell, Processes, Row

IMAGES = torch.rand(2, 3, 8, 8)

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, images):
        return self.linear(images.mean((2, 3)))
"""


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_calls_build_by_default(tmp_path: Path) -> None:
    model = load_model(write(tmp_path / "model.py", NET + "\ndef build():\n    return Net()\n"))
    assert isinstance(model, nn.Module)
    assert not model.training
    assert logits(model, IMAGES).shape == (2, 2)


@pytest.mark.parametrize("function", ["other", "Net", "made"])
def test_calls_what_is_named(function: str, tmp_path: Path) -> None:
    """A function, a class, or a module already made."""
    text = NET + "\ndef other():\n    return Net()\n\nmade = Net()\n"
    assert isinstance(load_model(write(tmp_path / "model.py", text) + f":{function}"), nn.Module)


def test_a_function_becomes_a_black_box(tmp_path: Path) -> None:
    text = "def build():\n    return lambda images: images.mean((2, 3))\n"
    model = load_model(write(tmp_path / "model.py", text))
    assert isinstance(model, BlackBox)
    torch.testing.assert_close(logits(model, IMAGES), IMAGES.mean((2, 3)))


def test_may_import_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path / "net_of_mine.py", NET)
    path = list(sys.path)
    try:
        model = load_model(write(tmp_path / "model.py", "from net_of_mine import Net as build\n"))
    finally:
        sys.modules.pop("net_of_mine", None)
    assert isinstance(model, nn.Module)
    assert sys.path == path


def test_two_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    models = []
    for folder, scale in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        text = f"SCALE = {scale}\n\ndef build():\n    return lambda images: SCALE * images.mean((2, 3))\n"
        models.append(load_model(write(tmp_path / folder / "json.py", text)))
    torch.testing.assert_close(2 * logits(models[0], IMAGES), logits(models[1], IMAGES))


def test_weights_go_into_what_it_builds(tmp_path: Path) -> None:
    state = {"linear.weight": torch.rand(2, 3), "linear.bias": torch.rand(2)}
    torch.save(state, tmp_path / "weights.pt")
    spec = write(tmp_path / "model.py", NET) + ":Net"
    model = load_model(spec, weights=tmp_path / "weights.pt")
    expected = IMAGES.mean((2, 3)) @ state["linear.weight"].T + state["linear.bias"]
    torch.testing.assert_close(logits(model, IMAGES), expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def build(:\n", "SyntaxError while running it"),
        ("import a_package_nobody_has\n", "ModuleNotFoundError while running it"),
        ("def build():\n    raise KeyError('weights')\n", r"KeyError while calling build\(\)"),
        ("def build(path):\n    return None\n", r"TypeError while calling build\(\)"),
        ("import sys\nsys.exit(3)\n", "SystemExit while running it"),
        ("def build():\n    raise GeneratorExit\n", r"GeneratorExit while calling build\(\)"),
        (
            "def build():\n    raise ValueError('Weights:\\n\\tMissing key(s): a.weight')\n",
            r"Weights: Missing key\(s\): a.weight",
        ),
        ("def build():\n    return 7\n", "does not return a model"),
        ("def buildd():\n    return None\n", r"(?s)no function 'build'.*did you mean\s+\S*:buildd"),
    ],
)
def test_what_goes_wrong_is_told_in_one_paragraph(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(write(tmp_path / "model.py", text))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ModelError, match=r"nowhere/model.py"):
        load_model("nowhere/model.py:build")


class Asking:
    """A setup that is sent with a model, and the worker that asks it."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self) -> Asking:
        return self

    def measure(self, task: Cell) -> Row:
        return {"answer": self.model(torch.ones(1, 3, 4, 4)).tolist()}


def test_what_it_built_can_be_sent_to_worker_processes(tmp_path: Path) -> None:
    """Neither the file nor what it imports is on the path of a worker process."""
    write(tmp_path / "net_of_mine_too.py", NET)
    text = "import net_of_mine_too\n\nclass Own(net_of_mine_too.Net):\n    pass\n\ndef build():\n    return Own()\n"
    try:
        model = load_model(write(tmp_path / "model.py", text))
        assert isinstance(model, nn.Module)
        with Processes(1).open(Asking(model)) as pool:
            (result,) = pool.run([Cell("ask", n=1)])
    finally:
        sys.modules.pop("net_of_mine_too", None)
    assert result.row == {"answer": model(torch.ones(1, 3, 4, 4)).tolist()}, result.error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.py", "net_of_mine_too.py"]
