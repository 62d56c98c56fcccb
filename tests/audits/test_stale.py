"""What is measured changes between two calls into one run directory: no old number is given for a new one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import shiftproof
from shiftproof.comparisons.methods import compare_methods
from shiftproof.errors import RunError
from shiftproof.models import fingerprint, load_model, logits

HELPED = "import shiftproof\nfrom helper import prepared\nfrom torch import nn\n"
MODULE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = shiftproof.load_model("demo")

    def forward(self, images):
        return self.inner(prepared(images))

build = Net
"""
FUNCTION = """
def build():
    inner = shiftproof.load_model("demo")
    return lambda images: inner(prepared(images)).detach()
"""
HOOKED = """
import shiftproof

def build():
    model = shiftproof.load_model("demo")
    layer = [each for each in model.modules() if each.__class__.__name__ == "Conv2d"][0]
    layer.register_forward_hook(lambda layer, inputs, output: output * 1.0)
    return model
"""
TRANSFORMER = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Conv2d(3, 16, 8, 8), nn.Flatten(2), layer, nn.Flatten(), nn.Linear(256, 10))
"""
READING = """
import pathlib
import shiftproof

def build():
    inner = shiftproof.load_model("demo")
    folder = pathlib.Path(__file__).parent
    return lambda images: inner(images).detach() * float((folder / "scale.txt").read_text())
"""


def audited(model: Path, out: Path) -> float:
    found = shiftproof.audit(model, "demo", out=out, images=60, sections=["clean"])
    assert not found.failed
    return found.numbers["clean_accuracy"]


@pytest.mark.parametrize(
    ("texts", "edited", "edit"),
    [
        pytest.param(
            {"model.py": HELPED + MODULE, "helper.py": "def prepared(x):\n    return x\n"},
            "helper.py",
            ("return x", "return 1 - x"),
            id="a file beside it",
        ),
        pytest.param(
            {"model.py": HELPED + FUNCTION, "helper.py": "def prepared(x):\n    return x\n"},
            "helper.py",
            ("return x", "return 1 - x"),
            id="a file beside a function",
        ),
        pytest.param({"model.py": HOOKED}, "model.py", ("* 1.0", "* 0.1"), id="a hook"),
        pytest.param({"model.py": TRANSFORMER}, "model.py", ("(16, 2,", "(16, 16,"), id="heads of attention"),
        pytest.param({"model.py": READING, "scale.txt": "1.0"}, "scale.txt", ("1.0", "-1.0"), id="a file it reads"),
    ],
)
def test_an_edited_model_is_refused(texts: dict[str, str], edited: str, edit: tuple[str, str], tmp_path: Path) -> None:
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    before = audited(tmp_path / "model.py", tmp_path / "out")
    assert audited(tmp_path / "model.py", tmp_path / "out") == before  # unchanged, it goes on
    images = torch.rand(4, 3, 32, 32)
    answers = logits(load_model(tmp_path / "model.py"), images)
    (tmp_path / edited).write_text(texts[edited].replace(*edit))
    with pytest.raises(RunError, match="is about another model"):
        audited(tmp_path / "model.py", tmp_path / "out")
    assert not torch.allclose(logits(load_model(tmp_path / "model.py"), images), answers, atol=1e-3)


def test_replaced_weights_of_an_onnx_file_are_refused(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    import numpy as np

    helper, number = onnx.helper, onnx.TensorProto.FLOAT
    weight = np.random.default_rng(0).normal(size=(3072, 10)).astype(np.float32)
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weight"], ["scores"]),
    ]
    ends = [
        [helper.make_tensor_value_info("images", number, ["N", 3, 32, 32])],
        [helper.make_tensor_value_info("scores", number, ["N", 10])],
    ]
    graph = helper.make_graph(nodes, "linear", *ends, [onnx.numpy_helper.from_array(weight, "weight")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=64)
    audited(tmp_path / "m.onnx", tmp_path / "out")
    (tmp_path / "weights.bin").write_bytes((-weight).tobytes())
    with pytest.raises(RunError, match="is about another model"):
        audited(tmp_path / "m.onnx", tmp_path / "out")


class Drifting:
    """Answers as the demo does, with logits that a caller can disturb."""

    def __init__(self) -> None:
        self.inner = load_model("demo")

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        return self.inner(images).detach() + DISTURBED * torch.tensor([1.0, -1.0] * 5)


DISTURBED = torch.zeros(())


@pytest.mark.parametrize("verb", ["audit", "certify", "adapt", "search"])
def test_answers_that_changed_are_refused_and_rounding_is_not(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same fingerprint: logits are nearly the same here, and less so on another machine."""

    def run() -> None:
        model = shiftproof.models.BlackBox(Drifting(), fingerprint="fixed")
        if verb == "audit":
            shiftproof.audit(model, "demo", out=tmp_path, images=20, sections=["clean"])
        elif verb == "certify":
            shiftproof.certify(model, "demo", sigma=0.25, n=50, n0=10, images=4, out=tmp_path)
        elif verb == "adapt":
            compare_methods(model, "demo", shifts=["contrast@5"], methods=["source"], images=20, out=tmp_path)
        else:
            shiftproof.search(model, "demo", images=20, length=1, searcher="random", budget=2, out=tmp_path)

    try:
        run()
        DISTURBED.fill_(1e-3)
        run()
        DISTURBED.fill_(0.2)
        with pytest.raises(RunError, match="whose outputs differ"):
            run()
        monkeypatch.setattr("platform.machine", lambda: "another")
        run()
        DISTURBED.fill_(5.0)
        with pytest.raises(RunError, match="whose outputs differ"):
            run()
    finally:
        DISTURBED.fill_(0.0)


def test_a_fingerprint_is_taken_before_a_model_is_run(tmp_path: Path) -> None:
    """One that counts its calls is the same model in every run."""
    text = "class Net(nn.Module):\n    calls = 0\n\n    def forward(self, x):\n        self.calls += 1\n"
    text += "        return x.flatten(1)[:, :10]\n\nbuild = Net\n"
    (tmp_path / "model.py").write_text("from torch import nn\n\n" + text)
    audited(tmp_path / "model.py", tmp_path / "out")
    before = fingerprint(load_model(tmp_path / "model.py"))
    audited(tmp_path / "model.py", tmp_path / "out")
    assert f'"model": "{before}"' in (tmp_path / "out" / "results.json").read_text()
