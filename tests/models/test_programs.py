"""Exported programs from strangers: nothing in them is run as Python."""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from shiftproof.errors import ModelError
from shiftproof.models import load_model, logits
from shiftproof.models.programs import is_expression

IMAGES = torch.rand(6, 3, 12, 8)
LENGTH = 200_000  # of every program that is written here: archives of one layout
Program = dict[str, Any]


class Network(nn.Module):
    """Sizes that are computed, a subgraph, a constant, a text argument, and guards on the size of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        height, width = images.shape[2] // 2, images.shape[3] // 2
        with torch.no_grad():
            small = nn.functional.interpolate(images, size=(height, width), mode="bilinear")
        pairs = images.reshape(-1, 2, *images.shape[1:]).flatten(0, 1)
        scores: torch.Tensor = self.linear(pairs.mean((2, 3))) * height**0.5
        return scores + torch.einsum("ncij->n", small)[:, None] * torch.tensor([2.0])


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return Network().eval()


@pytest.fixture(scope="module")
def archive(network: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if torch.__version__.startswith("2.5."):
        pytest.skip("PyTorch 2.5 cannot export it, and writes archives that are refused")
    path = tmp_path_factory.mktemp("exported") / "model.pt2"
    auto = torch.export.Dim.AUTO
    program = torch.export.export(network, (IMAGES,), dynamic_shapes=({0: auto, 2: auto, 3: auto},))
    torch.export.save(program, path)
    return path


def hostile(archive: Path, target: Path, change: Callable[[Program], object]) -> Path:
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(target, "w") as copy:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("models/model.json"):
                program = json.loads(content)
                change(program)
                content = json.dumps(program).encode().ljust(LENGTH)
            copy.writestr(name, content)
    return target


def graph(program: Program) -> Any:
    return program["graph_module"]["graph"]


def text(value: str) -> Any:
    return {"name": "", "arg": {"as_string": value}, "kind": 1}


def call(program: Program, target: str, *inputs: Any) -> None:
    """Put a call that returns nothing in front of the program."""
    node: Program = {
        "target": target,
        "inputs": inputs,
        "outputs": [],
        "metadata": {},
        "is_hop_single_tensor_return": None,
    }
    graph(program)["nodes"].insert(0, node)


def rename_input(program: Program, name: str) -> None:
    """Rename the images, wherever they are."""

    def renamed(value: Any) -> Any:
        match value:
            case dict():
                return {name if key == "images" else key: renamed(part) for key, part in value.items()}
            case list():
                return [renamed(part) for part in value]
        return name if value == "images" else value

    program["graph_module"] = renamed(program["graph_module"])


def sizes(program: Program) -> Any:
    return graph(program)["tensor_values"]["images"]["sizes"][0]["as_expr"]


def test_programs_with_computed_sizes_and_guards_load(network: nn.Module, archive: Path) -> None:
    model = load_model(archive)
    for images in (IMAGES, torch.rand(4, 3, 8, 10)):
        torch.testing.assert_close(logits(model, images), logits(network, images))
    with pytest.raises(ModelError, match="Guard failed"):  # batches of odd size, which the program cannot take
        logits(model, IMAGES[:5])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda code: lambda it: sizes(it).update(expr_str=code), id="size"),
        pytest.param(lambda code: lambda it: it["guards_code"].insert(0, code), id="guard"),
        pytest.param(lambda code: lambda it: rename_input(it, f"images=({code})"), id="name of an input"),
        pytest.param(lambda code: lambda it: call(it, "torch.os.system", text(f"python3 -c {code!r}")), id="system"),
        pytest.param(lambda code: lambda it: call(it, "torch.jit.os.mkdir", text("MARKER")), id="operation"),
    ],
)
def test_text_is_not_run(change: Any, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = hostile(archive, tmp_path / "hostile.pt2", change("__import__('os').mkdir('MARKER')"))
    with pytest.raises(ModelError, match="arbitrary code"):
        logits(load_model(path), IMAGES)
    assert not (tmp_path / "MARKER").exists()


def test_operations_on_files_are_refused(archive: Path, tmp_path: Path) -> None:
    path = hostile(archive, tmp_path / "f.pt2", lambda it: call(it, "torch.ops.aten.from_file.default", text("key")))
    with pytest.raises(ModelError, match="from_file"):
        load_model(path)


def test_modules_that_a_program_names_are_not_imported(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "comes_along.py").write_text(f"import os; os.mkdir({str(tmp_path / 'MARKER')!r})")
    member = {"__enum__": True, "fqn": "comes_along:Kind", "name": "one"}
    spec = {"type": "builtins.dict", "context": json.dumps([member]), "children_spec": []}

    def change(program: Program) -> None:
        program["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = json.dumps([1, spec])

    with pytest.raises(ModelError, match="arbitrary code"):
        load_model(hostile(archive, tmp_path / "hostile.pt2", change))
    assert not (tmp_path / "MARKER").exists()


def test_what_only_another_reader_of_zip_files_sees_is_not_run(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With bytes in front, Python reads the second archive, and a reader that goes by offsets the first."""
    monkeypatch.chdir(tmp_path)
    code = "__import__('os').mkdir('MARKER')"
    first = hostile(archive, tmp_path / "first.pt2", lambda it: sizes(it).update(expr_str=code))
    second = hostile(archive, tmp_path / "second.pt2", lambda it: None)
    (tmp_path / "both.pt2").write_bytes(first.read_bytes() + second.read_bytes())
    load_model(tmp_path / "both.pt2")
    assert not (tmp_path / "MARKER").exists()


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("kind", ["exported", "TorchScript"])
def test_a_folder_of_weights_brings_no_program(
    kind: str, absolute: bool, archive: Path, network: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = tmp_path / "given"
    given.mkdir()
    program = given / "net.bin"
    if kind == "exported":
        program.write_bytes(archive.read_bytes())
    else:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.jit")
            torch.jit.save(torch.jit.trace(nn.Linear(3, 4), torch.rand(2, 3)), program)
    (given / "model.json").write_text(json.dumps({"model": str(program) if absolute else "given/net.bin"}))
    save_file(network.state_dict(), given / "model.safetensors")
    with pytest.raises(ModelError, match="not opened"):
        load_model("given")


@pytest.mark.parametrize(
    "good",
    [
        "Mul(Integer(2), Symbol('s77', positive=True, integer=True))",
        "FloatPow(ToFloat(Symbol('s3')), Float('0.5', precision=53))",
        "2*s39",
        "((3*L['x'].size()[3]) % (6*L['x'].size()[2])) == 0 and min(s0, 4) != -1",
        "math.floor(L['x'].stride()[0] / 2) >= 2",
    ],
)
def test_arithmetic_is_an_expression(good: str) -> None:
    assert is_expression(good)


@pytest.mark.parametrize(
    "bad",
    [
        "__import__('os')",
        "eval(s0)",
        "sympify('s0')",
        "Symbol('a', b=preview(s0))",
        "Symbol('print(1)')",
        "Symbol('s0').__class__",
        "L['x'].size.__globals__",
        "math.__loader__.load_module('os')",
        "Symbol('f')(1)",
        "[s0 for s0 in L]",
        "(lambda: s0)()",
        "f'{s0}'",
        "s0 # comment",
        "s0\n",
        "(s0 := 1)",
        "Max(*L)",
        "torch.load('s0')",
        "",
    ],
)
def test_other_python_is_none(bad: str) -> None:
    assert not is_expression(bad)


def test_the_former_layout_is_named(tmp_path):
    path = tmp_path / "old.pt2"
    with zipfile.ZipFile(path, "w") as archive:  # as torch.export.save of PyTorch 2.5 writes it
        for name in ("serialized_exported_program.json", "serialized_state_dict.pt", "version"):
            archive.writestr(name, "{}")
    with pytest.raises(ModelError, match="older PyTorch") as caught:
        load_model(path)
    assert "newer PyTorch" in str(caught.value)
