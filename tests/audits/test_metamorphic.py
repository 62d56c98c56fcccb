"""A table of mutations: one thing changes, and the same command runs into the same run directory.

What it gives must be what a fresh directory gives, or it must refuse, with the reason. Where the thing matters, the
fresh number is another one, or the old directory was refused: a mutation that nobody could notice tests nothing. Where
it must not matter, nothing may change and nothing be refused.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner

import shiftproof
from shiftproof import shifts
from shiftproof.cli import app
from shiftproof.comparisons.methods import compare_methods
from shiftproof.errors import ShiftproofError
from shiftproof.exports.writing import write_corrupted
from shiftproof.models.networks.text_cnn import TextCNN
from shiftproof.streams import evaluate, make_stream
from shiftproof.training import train
from tests.label_maps import ColourNet, painted, write_tree
from tests.test_plugins import METHOD, RAIN, forget, install

FEW = {"sections": ["clean"]}
SHIFTED = {"sections": ["corruptions"], "shifts": ["contrast", "brightness"], "severities": [5]}


@dataclass
class World:
    """Where a case lives: a folder for its files, and what the command is given."""

    folder: Path
    patch: pytest.MonkeyPatch
    options: dict[str, Any] = field(default_factory=dict)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))


Run = Callable[[World, Path], object]


def verb_options(world: World) -> dict[str, Any]:
    """Return the options of a verb: those of loading go into specs."""
    given = dict(world.options)
    if "weights" in given:
        given["model"] = shiftproof.ModelSpec(given["model"], weights=given.pop("weights"))
    if loading := {name: given.pop(name) for name in ("size", "labels", "classes") if name in given}:
        given["data"] = shiftproof.DataSpec(given["data"], **loading)
    return given


def audited(world: World, out: Path) -> object:
    found = shiftproof.audit(out=out, **verb_options(world))
    assert not found.failed, found.failed
    return _cells(out)


def configured(world: World, out: Path) -> object:
    result = CliRunner().invoke(app, ["audit", "--config", str(world.folder / "audit.toml"), "--out", str(out)])
    if isinstance(result.exception, ShiftproofError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return _cells(out)


def _cells(out: Path) -> object:
    content = json.loads((out / "results.json").read_text())
    return content["cells"], content["numbers"]


def certified(world: World, out: Path) -> object:
    return shiftproof.certify(n=60, n0=10, images=6, out=out, **verb_options(world)).certificates


def certified_maps(world: World, out: Path) -> object:
    found: Any = shiftproof.certify(sigma=0.1, images=2, out=out, **verb_options(world))
    return found.to_rows()


def searched(world: World, out: Path) -> object:
    options = {"length": 1, "searcher": "random", "budget": 4, "images": 12, **verb_options(world)}
    found = shiftproof.search(out=out, **options)
    return found.worst, found.trace.trials


def adapted(world: World, out: Path) -> object:
    found = compare_methods(images=12, out=out, **verb_options(world))
    return [{name: value for name, value in row.items() if name != "milliseconds"} for row in found.to_rows()]


def evaluated(world: World, out: Path) -> object:
    options = dict(world.options)
    stream = make_stream("concatenated", shiftproof.load_data(options["data"]), **options["stream"])
    trace = evaluate(options["model"], stream, out=out, chunk=1)
    return trace.right, trace.images


def copied(world: World, out: Path) -> object:
    write_corrupted(world.options["data"], out, **{"shifts": ["contrast@5"], **world.options.get("copy", {})})
    return {path.name: path.read_bytes() for path in sorted(out.rglob("*.png"))}


def trained(world: World, out: Path) -> object:
    torch.manual_seed(0)
    settings = {"recipe": "erm", "epochs": 1, "batch_size": 8, "lr": 0.1, **world.options.get("train", {})}
    train(linear(), world.options["data"], out=out, **settings)
    return (out / "model.safetensors").read_bytes()


def estimated(world: World, out: Path) -> object:
    options = {"views": 1, "shifts": [f"{name}@5" for name in ("contrast", "brightness", "saturate", "spatter")]}
    found = shiftproof.estimate(out=out, **{**options, **verb_options(world)})
    return found.accuracy, found.low, found.high, found.others


def estimated_maps(world: World, out: Path) -> object:
    found = shiftproof.estimate(out=out, shifts=["contrast@5", "speckle_noise@3"], **verb_options(world))
    return found.accuracy, found.low, found.high, found.others


@dataclass(frozen=True)
class Case:
    """What there is, what changes, and whether that matters."""

    start: Callable[[World], None]
    change: Callable[[World], None]
    matters: bool = True
    run: Run = audited


# ---------------------------------------------------------------------------------------------------------- models


def linear(inputs: int = 192, classes: int = 3) -> Any:
    torch.manual_seed(0)
    layer = nn.Linear(inputs, classes)
    with torch.no_grad():
        layer.weight.mul_(5)
    return nn.Sequential(nn.Flatten(), layer).eval()


@dataclass
class Config:
    factor: float


class Plain:
    def __init__(self, factor: float) -> None:
        self.factor = factor


class Scaled(nn.Module):
    """Multiplies its logits by what it holds, in one form or another."""

    def __init__(self, what: object) -> None:
        super().__init__()
        self.inner = linear()
        self._what = what

    def forward(self, images: Tensor) -> Any:
        return self.inner(images) * number(self._what)


def number(what: Any) -> float:  # noqa: PLR0911  (a case per kind of value)
    match what:
        case set() | list():
            return float(sum(what))
        case dict():
            return float(what["factor"])
        case torch.dtype():
            return torch.finfo(what).bits / 32
        case np.ndarray() | Tensor():
            return float(what.sum())
        case float():
            return what
        case Config() | Plain():
            return what.factor
        case _:
            return float(what())


class Attends(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, heads, batch_first=True)

    def forward(self, tokens: Tensor) -> Any:
        return self.attention(tokens, tokens, tokens)[0]


def tokens(layer: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 2, 2), nn.Flatten(2), layer(), nn.Flatten(), nn.Linear(256, 3)
    ).eval()  # 16 tokens of 16 numbers


def encoder(**options: Any) -> nn.Module:
    return tokens(
        lambda: nn.TransformerEncoderLayer(16, **{"nhead": 2, "dim_feedforward": 8, "dropout": 0.0, **options})
    )


def followed(layer: nn.Module) -> nn.Module:
    """Return a network with one layer of PyTorch's before the linear one."""
    size = layer(torch.zeros(2, 3, 8, 8)).flatten(1).shape[1]
    return nn.Sequential(layer, linear(size)).eval()


def normalised(eps: float) -> nn.Module:
    layer = nn.BatchNorm2d(3, eps=eps)
    return followed(layer.eval())


def hooked(factor: float, *, before: bool = False, kwargs: bool = False) -> Any:
    model = linear()
    if before:
        model[1].register_forward_pre_hook(lambda layer, inputs: (inputs[0] * factor,))
    elif kwargs:
        model[1].register_forward_hook(lambda layer, inputs, named, output: output * factor, with_kwargs=True)
    else:
        model[1].register_forward_hook(lambda layer, inputs, output: output * factor)
    return model


def changed_tensor(kind: str, factor: float) -> Any:
    model = linear()
    if kind == "buffer":
        layer = nn.BatchNorm2d(3)
        layer.running_mean += factor  # type: ignore[assignment, operator]
        return nn.Sequential(layer.eval(), model).eval()
    with torch.no_grad():
        model[1].bias += factor * torch.tensor([1.0, 0, 0])
    return model


def closure(factor: float) -> Callable[[Tensor], Tensor]:
    model = linear()
    return lambda images: model(images).detach() * factor


def defaulted(factor: float) -> Callable[..., Tensor]:
    model = linear()

    def call(images: Tensor, scale: float = factor) -> Any:
        return model(images).detach() * scale

    return call


def called(images: Tensor, *, factor: float) -> Any:
    return linear()(images).detach() * factor


class Method:
    def __init__(self, factor: float) -> None:
        self.factor, self.model = factor, linear()

    def answer(self, images: Tensor) -> Any:
        return self.model(images).detach() * self.factor


class Classy(nn.Module):
    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.inner = linear()

    def forward(self, images: Tensor) -> Any:
        return self.inner(images) * self.factor


def another_class() -> nn.Module:
    model = Classy()
    model.factor = 3.0
    return model


def data(seed: int = 0, count: int = 24) -> tuple[Any, list[int]]:
    return np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8), [0, 1, 2] * (count // 3)


def models(one: Callable[[], Any], other: Callable[[], Any], **options: Any) -> Case:
    """Return the case of a model that is an object in Python, and then another one."""

    def start(world: World) -> None:
        world.options = {"model": one(), "data": data(), **(options or FEW)}

    return Case(start, lambda world: world.options.update(model=other()))


# ------------------------------------------------------------------------------------------------------ model files

NET = """import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 3))

"""
FILES: dict[str, dict[str, str]] = {
    "module": {
        "model.py": NET + "from helper import prepared\n\nclass Net(nn.Module):\n    def __init__(self):\n        "
        "super().__init__()\n        self.inner = net()\n\n    def forward(self, x):\n        "
        "return self.inner(prepared(x))\n\nbuild = Net\n",
        "helper.py": "def prepared(x):\n    return x * 2\n",
    },
    "function": {
        "model.py": NET + "from helper import prepared\n\ndef build():\n    inner = net()\n    "
        "return lambda x: inner(prepared(x)).detach()\n",
        "helper.py": "def prepared(x):\n    return x * 2\n",
    },
    "deep": {
        "model.py": NET + "import helper\n\ndef build():\n    inner = net()\n    "
        "return lambda x: inner(helper.prepared(x)).detach()\n",
        "helper.py": "from parts.deeper import FACTOR\n\ndef prepared(x):\n    return x * FACTOR\n",
        "parts/__init__.py": "",
        "parts/deeper.py": "from .deepest import FACTOR\n",
        "parts/deepest.py": "FACTOR = 2\n",
    },
    "hook": {
        "model.py": NET + "def build():\n    model = net()\n    "
        "model[1].register_forward_hook(lambda layer, inputs, output: output * 2)\n    return model\n"
    },
    "library layers": {
        "model.py": NET + "def build():\n    torch.manual_seed(0)\n    layer = nn.TransformerEncoderLayer(16, 2, 8, "
        "dropout=0.0, batch_first=True)\n    return nn.Sequential(nn.Conv2d(3, 16, 2, 2), nn.Flatten(2), layer, "
        "nn.Flatten(), nn.Linear(256, 3))\n"
    },
    "reading": {
        "model.py": NET
        + "import pathlib\n\ndef build():\n    inner = net()\n    here = pathlib.Path(__file__).parent\n"
        "    return lambda x: inner(x).detach() * float((here / 'scale.txt').read_text())\n",
        "scale.txt": "1.0",
    },
    "constant": {
        "model.py": NET + "SCALE = 2\n\ndef build():\n    inner = net()\n    return lambda x: inner(x) * SCALE\n"
    },
}


def file_edit(kind: str, name: str, old: str, new: str) -> Case:
    def start(world: World) -> None:
        for file, text in FILES[kind].items():
            world.write(file, text)
        world.options = {"model": world.folder / "model.py", "data": data(), **FEW}

    return Case(start, lambda world: world.edit(name, old, new))


def _save_weights(path: Path, factor: float) -> None:
    state = {name: factor * value for name, value in linear().state_dict().items()}
    if path.suffix == ".pt":
        torch.save(state, path)
    else:
        from safetensors.torch import save_file

        save_file(state, path)


def weights_file(suffix: str) -> Case:
    def start(world: World) -> None:
        world.write("model.py", NET + "build = net\n")
        weights = world.folder / f"weights{suffix}"
        _save_weights(weights, 1.0)
        world.options = {"model": world.folder / "model.py", "weights": weights, "data": data(), **FEW}

    return Case(start, lambda world: _save_weights(world.options["weights"], -2.0))


def _onnx(world: World, *, scale: float = 1.0, external: bool = True) -> None:
    onnx: Any = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weight = np.random.default_rng(0).normal(size=(192, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weight"], ["raw"]),
        helper.make_node("Constant", [], ["scale"], value_float=scale),
        helper.make_node("Mul", ["raw", "scale"], ["scores"]),
    ]
    ends = [
        [helper.make_tensor_value_info("images", kind, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("scores", kind, ["N", 3])],
    ]
    graph = helper.make_graph(nodes, "linear", *ends, [onnx.numpy_helper.from_array(weight, "weight")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    where = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 64} if external else {}
    (world.folder / "weights.bin").unlink(missing_ok=True)
    onnx.save(model, world.folder / "m.onnx", **where)
    world.options = {"model": world.folder / "m.onnx", "data": data(), **FEW}


def _new_external_data(world: World) -> None:
    path = world.folder / "weights.bin"
    path.write_bytes((-np.frombuffer(path.read_bytes(), np.float32)).tobytes())


def _script(world: World, factor: float) -> None:
    import warnings

    model = Scaled(factor)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit")
        torch.jit.save(torch.jit.trace(model, torch.rand(2, 3, 8, 8)), world.folder / "m.ts")
    world.options = {"model": world.folder / "m.ts", "data": data(), **FEW}


def _program(world: World, factor: float) -> None:
    if torch.__version__.startswith("2.5."):
        pytest.skip("archives of PyTorch 2.5 are refused")
    batch = {0: torch.export.Dim("batch", min=1, max=4096)}
    with torch.no_grad():
        program = torch.export.export(Scaled(factor), (torch.rand(2, 3, 8, 8),), dynamic_shapes=(batch,))
    torch.export.save(program, world.folder / "m.pt2")
    world.options = {"model": world.folder / "m.pt2", "data": data(), **FEW}


def _texts(words: list[str]) -> nn.Module:
    torch.manual_seed(0)
    return TextCNN(words, embedding=8, width=8, hidden=8, dropout=0.0).eval()


WORDS = ["<pad>", "<unknown>", "<separator>", "good", "bad", "film", "fine", "dull", "plot"]


def text_start(world: World) -> None:
    rows = ["good film,1", "bad plot,0", "fine plot,1", "dull film,0", "good fine plot,1", "bad dull plot,0"]
    world.write("t.csv", "\n".join(["text,label", *rows]) + "\n")
    world.options = {"model": _texts(WORDS), "data": world.folder / "t.csv", **FEW}


def saved_text_model(world: World) -> None:
    text_start(world)
    _texts(WORDS).save(world.folder / "net")  # type: ignore[operator]
    world.options["model"] = world.folder / "net"


def swap_words(world: World) -> None:
    path = world.folder / "net" / "model.json"
    text = path.read_text()
    assert '"good"' in text
    path.write_text(text.replace('"good"', '"#"').replace('"dull"', '"good"').replace('"#"', '"dull"'))


# -------------------------------------------------------------------------------------------------------------- data


def folder_start(
    world: World, *, suffix: str = "png", side: int = 8, classes: tuple[str, ...] = ("a", "b", "c")
) -> None:
    rng = np.random.default_rng(1)
    for place, name in enumerate(classes):
        (world.folder / "photos" / name).mkdir(parents=True)
        for count in range(4):
            pixels = rng.integers(0, 256, (side, side, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(world.folder / "photos" / name / f"{4 * place + count}.{suffix}")
    world.options = {"model": linear(), "data": world.folder / "photos", "size": 8, **FEW}


def large_start(world: World) -> None:
    """Bitmaps of 27 KB, of which a digest of the ends would see a third."""
    folder_start(world, suffix="bmp", side=96)


def paint_middles(world: World) -> None:
    for path in (world.folder / "photos").rglob("*.bmp"):
        content = bytearray(path.read_bytes())
        content[4200:-4200] = bytes(len(content) - 8400)
        path.write_bytes(content)


def one_picture(world: World) -> Path:
    return world.folder / "photos" / "a" / "0.png"


def paint_one(world: World) -> None:
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(one_picture(world))


def paint_one_and_turn_back_its_time(world: World) -> None:
    path = world.folder / "photos" / "a" / "0.bmp"
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[1000:-1000] = bytes(len(content) - 2000)
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def move_one(world: World) -> None:
    one_picture(world).rename(world.folder / "photos" / "c" / "0.png")


def add_one(world: World) -> None:
    Image.fromarray(np.full((8, 8, 3), 200, np.uint8)).save(world.folder / "photos" / "b" / "new.png")


def swap_classes(world: World) -> None:
    photos = world.folder / "photos"
    (photos / "a").rename(photos / "x")
    (photos / "b").rename(photos / "a")
    (photos / "x").rename(photos / "b")


def rename_files(world: World) -> None:
    for place, path in enumerate(sorted((world.folder / "photos").rglob("*.png"), reverse=True)):
        path.rename(path.with_name(f"z{place}.png"))


def write_again_backwards(world: World) -> None:
    """Make the same files in another order of inodes and with other times."""
    found = {path: path.read_bytes() for path in sorted((world.folder / "photos").rglob("*.png"), reverse=True)}
    for path in found:
        path.unlink()
    for path, content in found.items():
        path.write_bytes(content)


def table_start(world: World) -> None:
    folder_start(world)
    flat = world.folder / "flat"
    flat.mkdir()
    rows = ["file,label"]
    for path in sorted((world.folder / "photos").rglob("*.png")):
        shutil.copy(path, flat / path.name)
        rows.append(f"{path.name},{path.parent.name}")
    world.write("flat/labels.csv", "\n".join(rows) + "\n")
    world.write("other.csv", "\n".join(rows).replace("0.png,a", "0.png,b") + "\n")
    world.options["data"] = flat


def shuffle_table(world: World) -> None:
    head, *rows = (world.folder / "flat" / "labels.csv").read_text().splitlines()
    world.write("flat/labels.csv", "\n".join([head, *reversed(rows)]) + "\n")


def arrays_start(world: World, *, archive: bool) -> None:
    images, labels = data()
    path = world.folder / ("set.npz" if archive else "set.npy")
    np.savez(path, images=images, labels=labels) if archive else np.save(path, images)
    if not archive:
        np.save(world.folder / "labels.npy", labels)
    world.options = {"model": linear(), "data": path, **FEW}


def new_pixels(world: World, *, archive: bool) -> None:
    images, labels = data()
    images[3] = 0
    path = world.options["data"]
    np.savez(path, images=images, labels=labels) if archive else np.save(path, images)


def new_labels(world: World, *, archive: bool) -> None:
    images, labels = data()
    labels = [1, *labels[1:]]
    if archive:
        np.savez(world.options["data"], images=images, labels=labels)
    else:
        np.save(world.folder / "labels.npy", labels)


def named_start(world: World) -> None:
    folder_start(world)
    world.write("names.txt", "a\nb\nc\n")
    world.options["classes"] = world.folder / "names.txt"


def edit_cells(world: World, name: str, old: str, new: str) -> None:
    world.edit(name, old, new)


# ----------------------------------------------------------------------------------------------------------- options


def options(one: dict[str, Any], other: dict[str, Any], *, run: Run = audited, matters: bool = True) -> Case:
    def start(world: World) -> None:
        world.options = {"model": linear(), "data": data(), **(SHIFTED if run is audited else {}), **one}

    return Case(start, lambda world: world.options.update(other), matters, run)


def another_pixel(value: int = 2) -> tuple[Any, Any]:
    """Return the painted images with one pixel of every label map in another class."""
    pictures, maps = painted()
    maps[:, 5, 5:9] = value
    return pictures, maps


def tree_start(world: World, names: str = "{:03d}") -> None:
    tree = write_tree(world.folder / "tree", count=8, names=names)
    world.options = {"model": ColourNet(), "data": tree, **SHIFTED}


def rename_tree(world: World) -> None:
    shutil.rmtree(world.folder / "tree")
    tree_start(world, names="other {:03d}")


def paint_map(world: World) -> None:
    path = world.folder / "tree" / "masks" / "003.png"
    labels = np.array(Image.open(path))
    labels[5, 5:9] = 2
    Image.fromarray(labels).save(path)


def plugin_start(world: World) -> None:
    """Install a package with a shift and a method of its own."""
    site = world.folder / "site"
    world.write("site/rain_and_mine.py", RAIN + METHOD)
    names = {"shiftproof.shifts": {"rain": "rain_and_mine:Rain"}, "shiftproof.adapters": {"mine": "rain_and_mine:MINE"}}
    install(site, "rain-and-mine", names)
    world.patch.syspath_prepend(site)
    _forget_package()
    world.options = {"model": batch_normed(), "data": data(), "shifts": ["rain"], "severities": [5]}
    world.options |= {"sections": ["corruptions", "adaptation"], "methods": ["mine"]}


def batch_normed() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, 3)).eval()


def _forget_package() -> None:
    forget()
    sys.modules.pop("rain_and_mine", None)
    importlib.invalidate_caches()


def edit_plugin(old: str, new: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.edit("site/rain_and_mine.py", old, new)
        shutil.rmtree(world.folder / "site" / "__pycache__", ignore_errors=True)
        _forget_package()

    return change


def config_start(world: World) -> None:
    folder_start(world)
    world.write("model.py", NET + "build = net\n")
    text = f'model = "{world.folder / "model.py"}"\ndata = "{world.folder / "photos"}"\nsections = ["corruptions"]\n'
    world.write("audit.toml", text + 'shifts = ["contrast"]\nseverities = [5]\nimages = 9\nseed = 0\n')


def another_version(world: World) -> None:
    for place in ("subjects", "streams.evaluation", "exports.writing"):
        world.patch.setattr(f"shiftproof.{place}.__version__", "999")


# ------------------------------------------------------------------------------------------------------------- table

HELD: dict[str, tuple[object, object]] = {
    "private attribute": (1.0, 2.0),
    "dataclass": (Config(1.0), Config(2.0)),
    "lambda": (lambda: 1.0, lambda: 2.0),
    "set": ({1, 2}, {1, 5}),
    "dtype": (torch.float32, torch.float64),
    "plain object": (Plain(1.0), Plain(2.0)),
    "list": ([1, 2], [1, 5]),
    "mapping": ({"factor": 1.0}, {"factor": 2.0}),
    "array": (np.ones(2), np.ones(3)),
    "tensor outside of buffers": (torch.ones(2), torch.ones(3)),
    "partial": (partial(max, 1.0, 0.5), partial(max, 2.0, 0.5)),
}

LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    "attention heads": (lambda: tokens(lambda: Attends(2)), lambda: tokens(lambda: Attends(8))),
    "encoder heads": (encoder, lambda: encoder(nhead=8)),
    "encoder norm_first": (encoder, lambda: encoder(norm_first=True)),
    "encoder activation": (encoder, lambda: encoder(activation="gelu")),
    "encoder batch_first": (lambda: encoder(batch_first=True), lambda: encoder(batch_first=False)),
    "encoder layer_norm_eps": (encoder, lambda: encoder(layer_norm_eps=0.5)),
    "Upsample align_corners": (
        lambda: followed(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)),
        lambda: followed(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)),
    ),
    "AvgPool2d count_include_pad": (
        lambda: followed(nn.AvgPool2d(3, padding=1)),
        lambda: followed(nn.AvgPool2d(3, padding=1, count_include_pad=False)),
    ),
    "AvgPool2d divisor_override": (
        lambda: followed(nn.AvgPool2d(3, divisor_override=9)),
        lambda: followed(nn.AvgPool2d(3, divisor_override=4)),
    ),
    "LeakyReLU slope": (
        lambda: nn.Sequential(linear(), nn.LeakyReLU(0.1)).eval(),
        lambda: nn.Sequential(linear(), nn.LeakyReLU(0.7)).eval(),
    ),
    "GELU approximate": (
        lambda: nn.Sequential(linear(), nn.GELU()).eval(),
        lambda: nn.Sequential(linear(), nn.GELU("tanh")).eval(),
    ),
    "BatchNorm2d eps": (lambda: normalised(1e-5), lambda: normalised(0.5)),
    "Softplus beta": (
        lambda: nn.Sequential(linear(), nn.Softplus(beta=1.0)).eval(),
        lambda: nn.Sequential(linear(), nn.Softplus(beta=0.2)).eval(),
    ),
    "buffer": (lambda: changed_tensor("buffer", 0.0), lambda: changed_tensor("buffer", 0.3)),
    "parameter": (lambda: changed_tensor("parameter", 0.0), lambda: changed_tensor("parameter", 0.3)),
    "forward hook": (lambda: hooked(1.0), lambda: hooked(2.0)),
    "forward pre-hook": (lambda: hooked(1.0, before=True), lambda: hooked(2.0, before=True)),
    "forward hook with keywords": (lambda: hooked(1.0, kwargs=True), lambda: hooked(2.0, kwargs=True)),
    "class attribute": (Classy, another_class),
}

MAPS = {"model": ColourNet(), "data": painted()}
STREAM = {"shifts": ["contrast"], "length": 24, "batch_size": 8}

CASES: dict[str, Case] = {
    **{f"F3 held {name}": models(partial(Scaled, a), partial(Scaled, b)) for name, (a, b) in HELD.items()},
    **{f"F3 layer {name}": models(one, other) for name, (one, other) in LAYERS.items()},
    "F3 closure": models(lambda: closure(1.0), lambda: closure(2.0)),
    "F3 default argument": models(lambda: defaulted(1.0), lambda: defaulted(2.0)),
    "F3 partial function": models(lambda: partial(called, factor=1.0), lambda: partial(called, factor=2.0)),
    "F3 method of an object": models(lambda: Method(1.0).answer, lambda: Method(2.0).answer),
    "F3 helper of a module": file_edit("module", "helper.py", "x * 2", "1 - x"),
    "F3 helper of a function": file_edit("function", "helper.py", "x * 2", "1 - x"),
    "F3 helper of a helper": file_edit("deep", "parts/deepest.py", "FACTOR = 2", "FACTOR = -2"),
    "F3 hook in a file": file_edit("hook", "model.py", "output * 2", "output * 0.1"),
    "F3 heads in a file of library layers": file_edit("library layers", "model.py", "(16, 2, 8", "(16, 16, 8"),
    "F3 constant in a file": file_edit("constant", "model.py", "SCALE = 2", "SCALE = -2"),
    "F3 a file that the model reads": file_edit("reading", "scale.txt", "1.0", "-1.0"),
    "F3 a little in a file that the model reads": file_edit("reading", "scale.txt", "1.0", "1.02"),
    "F3 ONNX external data": Case(_onnx, _new_external_data),
    "F3 ONNX graph": Case(
        lambda world: _onnx(world, external=False), lambda world: _onnx(world, scale=-2.0, external=False)
    ),
    "weights in safetensors": weights_file(".safetensors"),
    "weights in a state dict": weights_file(".pt"),
    "TorchScript": Case(lambda world: _script(world, 1.0), lambda world: _script(world, 2.0)),
    "exported program": Case(lambda world: _program(world, 1.0), lambda world: _program(world, 2.0)),
    "TextCNN vocabulary": Case(
        text_start, lambda world: world.options.update(model=_texts([*WORDS[:3], *reversed(WORDS[3:])]))
    ),
    "TextCNN vocabulary in its folder": Case(saved_text_model, swap_words),
    "a text": Case(text_start, lambda world: world.edit("t.csv", "bad plot,0", "good plot,0")),
    "the label of a text": Case(text_start, lambda world: world.edit("t.csv", "bad plot,0", "bad plot,1")),
    "F4 middles of files": Case(large_start, paint_middles),
    "F4 an edit whose time was turned back": Case(large_start, paint_one_and_turn_back_its_time),
    "pixels of one file": Case(folder_start, paint_one),
    "a file more": Case(folder_start, add_one),
    "a file less": Case(folder_start, lambda world: one_picture(world).unlink()),
    "a file in another class": Case(folder_start, move_one),
    "two class folders change names": Case(folder_start, swap_classes),
    "F6 class names in another order": Case(named_start, lambda world: edit_cells(world, "names.txt", "a\nb", "b\na")),
    "F6 a label in labels.csv": Case(table_start, lambda world: world.edit("flat/labels.csv", "0.png,a", "0.png,b")),
    "another table of labels": Case(table_start, lambda world: world.options.update(labels=world.folder / "other.csv")),
    "pixels in an .npz": Case(
        lambda world: arrays_start(world, archive=True), lambda world: new_pixels(world, archive=True)
    ),
    "labels in an .npz": Case(
        lambda world: arrays_start(world, archive=True), lambda world: new_labels(world, archive=True)
    ),
    "pixels in an .npy": Case(
        lambda world: arrays_start(world, archive=False), lambda world: new_pixels(world, archive=False)
    ),
    "labels.npy": Case(
        lambda world: arrays_start(world, archive=False), lambda world: new_labels(world, archive=False)
    ),
    "the size of images": Case(large_start, lambda world: world.options.update(size=16, model=linear(768))),
    "another set of images": options({}, {"data": data(7)}),
    "a set of the same images with other labels": options({}, {"data": (data()[0], [2, 1, 0] * 8)}),
    "number of images": options({"images": 9}, {"images": 15}),
    "fewer images": options({"images": 15}, {"images": 9}),
    "seed": options({"images": 9}, {"seed": 5}),
    "seed of noise": options({"shifts": ["gaussian_noise"]}, {"seed": 5}),
    "severities": options({}, {"severities": [2]}),
    "shifts": options({}, {"shifts": ["contrast", "saturate"]}),
    "sections": options({}, {"sections": ["clean"]}),
    "methods": options(
        {"model": batch_normed(), "sections": ["adaptation"], "methods": ["bn"]}, {"methods": ["bn", "tent"]}
    ),
    "reduced precision": options({}, {"amp": True}),
    "version of the library": options({}, {}, matters=True),
    "a plugin's shift": Case(plugin_start, edit_plugin("DARKEST = 1.0", "DARKEST = 0.5")),
    "a plugin's method": Case(plugin_start, edit_plugin("* o.noise", "* -o.noise")),
    "a default of a plugin's shift": Case(plugin_start, edit_plugin("density: float = 0.5", "density: float = 0.9")),
    "a default of a plugin's method": Case(plugin_start, edit_plugin('{"noise": -1.0}', '{"noise": 3.0}')),
    "a configuration file": Case(
        config_start, lambda world: world.edit("audit.toml", "images = 9", "images = 11"), run=configured
    ),
    "a seed in a configuration file": Case(
        config_start, lambda world: world.edit("audit.toml", "seed = 0", "seed = 4"), run=configured
    ),
    "a model that a configuration file names": Case(
        config_start, lambda world: world.edit("model.py", "manual_seed(0)", "manual_seed(1)"), run=configured
    ),
    "certify: sigma": options({"sigma": 0.1}, {"sigma": 0.5}, run=certified),
    "certify: weights": options({"sigma": 0.1}, {"model": changed_tensor("parameter", 5.0)}, run=certified),
    "certify: a field of a shift": options(
        {"sigma": 0.1, "shift": shifts.corruption("contrast", 5, "cifar")},
        {"shift": shifts.corruption("contrast", 5, "imagenet")},
        run=certified,
    ),
    "search: weights": options({}, {"model": changed_tensor("parameter", 5.0)}, run=searched),
    "search: space": options(
        {"space": [("brightness@", [1.0, 5.0])]}, {"space": [("contrast@", [2.0, 5.0])]}, run=searched
    ),
    "search: seed": options({"seed": 0}, {"seed": 1}, run=searched),
    "adapt: data": options(
        {"model": batch_normed(), "shifts": ["contrast@5"], "methods": ["bn"]}, {"data": data(3)}, run=adapted
    ),
    "adapt: shifts": options(
        {"model": batch_normed(), "shifts": ["contrast@5"], "methods": ["bn"]}, {"shifts": ["contrast@3"]}, run=adapted
    ),
    "stream: weights": options({"stream": STREAM}, {"model": changed_tensor("parameter", 5.0)}, run=evaluated),
    "stream: shifts": options({"stream": STREAM}, {"stream": {**STREAM, "shifts": ["saturate"]}}, run=evaluated),
    "stream: batch size": options({"stream": STREAM}, {"stream": {**STREAM, "batch_size": 6}}, run=evaluated),
    "corrupt: source": Case(folder_start, paint_one, run=copied),
    "corrupt: seed": Case(
        folder_start, lambda world: world.options.update(copy={"shifts": ["gaussian_noise@5"], "seed": 4}), run=copied
    ),
    "train: data": options({}, {"data": data(3)}, run=trained),
    "train: settings": options({}, {"train": {"lr": 0.05}}, run=trained),
    "estimate: weights": options({"source": data(5)}, {"model": changed_tensor("parameter", 5.0)}, run=estimated),
    "estimate: source": options({"source": data(5)}, {"source": data(6)}, run=estimated),
    "estimate: data": options({"source": data(5)}, {"data": data(6)}, run=estimated),
    "estimate: shifts": options(
        {"source": data(5)},
        {"shifts": [f"{name}@3" for name in ("contrast", "brightness", "saturate", "spatter")]},
        run=estimated,
    ),
    "estimate: views": options({"source": data(5)}, {"views": 3}, run=estimated),
    "estimate: neighbourhood": options({"source": data(5)}, {"neighborhood": "gaussian_noise@3"}, run=estimated),
    "estimate: temperature": options({"source": data(5)}, {"temperature": 3.0}, run=estimated),
    "estimate: method": options({"source": data(5)}, {"method": "average_confidence"}, run=estimated),
    "estimate: a second model": options({"source": data(5)}, {"other": closure(-1.0)}, run=estimated),
    "maps: labels of pixels": options(MAPS, {"data": another_pixel()}),
    "maps: pixels without a label": options(MAPS, {"data": another_pixel(255)}),
    "maps: images": options(MAPS, {"data": painted(seed=1)}),
    "maps: weights": options(MAPS, {"model": ColourNet(stride=2)}),
    "maps: a file of a label map": Case(tree_start, paint_map),
    "maps: labels of a long stream": options(
        {**MAPS, "sections": ["stability"], "methods": ["bn"]}, {"data": another_pixel()}
    ),
    "maps: certify, labels": options(MAPS, {"data": another_pixel()}, run=certified_maps),
    "maps: certify, weights": options(MAPS, {"model": ColourNet(stride=2)}, run=certified_maps),
    "maps: certify, copies": options(MAPS, {"n": 120}, run=certified_maps),
    "maps: estimate, labels of the source": options(
        {**MAPS, "source": painted(seed=2)}, {"source": (painted(seed=2)[0], another_pixel()[1])}, run=estimated_maps
    ),
    "maps: estimate, data": options(
        {**MAPS, "source": painted(seed=2)}, {"data": painted(seed=3)[0]}, run=estimated_maps
    ),
    "maps: adapt, labels": options(
        {**MAPS, "shifts": ["contrast@5"], "methods": ["bn"]}, {"data": another_pixel()}, run=adapted
    ),
    "maps: stream, labels": options(
        {**MAPS, "stream": {**STREAM, "shifts": ["elastic_transform"]}}, {"data": another_pixel()}, run=evaluated
    ),
    "same: names of files of label maps": Case(tree_start, rename_tree, matters=False),
    "same: order of label maps": options(
        MAPS, {"data": (painted()[0][::-1].copy(), painted()[1][::-1].copy())}, matters=False
    ),
    "same: batch size of label maps": options(MAPS, {"batch_size": 5}, matters=False),
    "same: names of files": Case(folder_start, rename_files, matters=False),
    "same: order and times of files": Case(folder_start, write_again_backwards, matters=False),
    "same: order of a table": Case(table_start, shuffle_table, matters=False),
    "same: batch size": options({}, {"batch_size": 5}, matters=False),
    "same: batch size of a forward pass, with adaptation": options(
        {"model": batch_normed(), "sections": ["adaptation"], "methods": ["bn"]}, {"batch_size": 5}, matters=False
    ),
    "same: nothing": options({}, {}, matters=False),
}
CASES["version of the library"] = dataclasses.replace(CASES["version of the library"], change=another_version)


@pytest.fixture(autouse=True)
def without_reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the HTML out, which takes most of the time of a small audit."""
    monkeypatch.setattr("shiftproof.audits.conclusion._write_report", lambda audit: None)
    yield
    forget()


@pytest.mark.parametrize("name", CASES)
def test_no_mutation_gives_an_old_number(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "ONNX" in name:
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    case = CASES[name]
    (tmp_path / "files").mkdir()
    world = World(tmp_path / "files", monkeypatch)
    case.start(world)
    before = case.run(world, tmp_path / "run")
    case.change(world)
    fresh = case.run(world, tmp_path / "fresh")
    refused = ""
    try:
        again = case.run(world, tmp_path / "run")
    except ShiftproofError as error:
        refused = str(error)
        assert str(tmp_path / "run") in refused, "the reason does not name the run"
    else:
        assert again == fresh, "a resumed run gives what a fresh one does not"
    if case.matters:
        assert refused or fresh != before, "this mutation changes nothing, so it tests nothing"
    else:
        assert not refused
        assert fresh == before


def test_the_table_is_long_enough() -> None:
    assert sum(case.matters for case in CASES.values()) >= 60
