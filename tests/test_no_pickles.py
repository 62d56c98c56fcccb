"""No code path loads arbitrary pickles: the source has no call that could, and what reopens a user's states refuses.

Every loader of models and data meets a pickle with code in `tests/test_bad_inputs.py`; exported programs do in
`tests/models/test_archives.py`.
"""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import shiftproof
from shiftproof import evaluate, load_model
from shiftproof.adapters import adapt
from shiftproof.data import load_data
from shiftproof.errors import ShiftproofError
from shiftproof.streams import Ccc
from shiftproof.training import train
from tests.fuzz.test_files import monitor, of_script
from tests.hostile import SPRUNG, Trap, arrays, torch_file

SOURCE = Path(shiftproof.__file__).parent

SAFE_WITH = {
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
    ".from_pretrained": ("trust_remote_code", False),
}
"""Calls that must say, in so many words, that nothing is to be run."""

ONLY_IN = {
    "pickle.Unpickler": "data/images/cifar.py",  # as the base of a reader that calls nothing
    "torch.jit.load": "models/archives.py",  # programs, which a user names to have them run
    "torch.export.load": "models/archives.py",
    ".exec_module": "models/python_file.py",
    "pickle.loads": "runs/hosting.py",  # what a driver sends through a pipe to workers of its own
}
"""What may be done in one place alone."""

NEVER = {
    *("pickle.load", "_pickle.load", "_pickle.loads", "marshal.load", "marshal.loads"),
    *(
        f"{module}.{call}"
        for module in ("dill", "cloudpickle", "joblib", "shelve")
        for call in ("load", "loads", "open")
    ),
    *("yaml.load", "yaml.unsafe_load", "yaml.full_load", "pandas.read_pickle", "pd.read_pickle"),
    *("eval", "exec", "compile", "os.system", "os.popen", "runpy.run_path", "torch.hub.load"),
}


def names(node: ast.expr) -> Iterator[str]:
    """Yield the whole name of what is called, and of a method its own."""
    if isinstance(node, ast.Attribute):
        yield ast.unparse(node)
        yield f".{node.attr}"
    elif isinstance(node, ast.Name):
        yield node.id


def faults(text: str, file: str = "") -> list[str]:
    """Return what in a source could run what a file holds."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module in ("pickle", "marshal", "joblib", "dill", "cloudpickle"):
            found.append(f"{node.lineno}: from {node.module} import ...")
        if isinstance(node, ast.ClassDef):
            found += [f"{node.lineno}: {name}" for base in node.bases for name in names(base) if _misplaced(name, file)]
        if not isinstance(node, ast.Call):
            continue
        said = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
        for name in names(node.func):
            unsaid = name in SAFE_WITH and said.get(SAFE_WITH[name][0]) is not SAFE_WITH[name][1]
            if unsaid or name in NEVER or _misplaced(name, file):
                found.append(f"{node.lineno}: {name}")
    return found


def _misplaced(name: str, file: str) -> bool:
    return name in ONLY_IN and file != ONLY_IN[name]


@pytest.mark.parametrize(
    "text",
    [
        "pickle.load(file)",
        "pickle.loads(text)",
        "from pickle import loads",
        "class Reader(pickle.Unpickler): pass",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=trusted)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "joblib.load(path)",
        "yaml.load(text)",
        "kind.from_pretrained(folder)",
        "eval(text)",
        "torch.jit.load(path)",
    ],
)
def test_the_scan_finds(text):
    assert faults(text)


def test_no_source_can_run_what_a_file_holds():
    files = {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    assert len(files) > 100
    assert {file: found for file, text in files.items() if (found := faults(text, file))} == {}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Stand in an empty folder, in which no trap may have sprung in the end."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / SPRUNG).exists()


def test_the_trap_works(place):
    torch_file(Trap(), "m.pt")
    torch.load("m.pt", weights_only=False)
    assert (place / SPRUNG).is_dir()
    (place / SPRUNG).rmdir()


def test_a_checkpoint_of_training(place):
    images = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    data = load_data((images, torch.arange(8) % 2))
    train("convnet", data, epochs=1, batch_size=4, out=place / "run")
    (state,) = (place / "run").glob("state-*.pt")
    torch_file({"step": Trap()}, str(state))
    with pytest.raises(ShiftproofError, match="cannot be read"):
        train("convnet", data, epochs=1, batch_size=4, out=place / "run")


def test_the_state_of_an_adapter_along_a_stream(place):
    def stop(done, total, result):
        if done == 1:
            raise KeyboardInterrupt

    def go(on_progress=None):
        stream = Ccc(load_data("demo").take(4), shifts=["contrast", "fog"], speed=2, length=16, batch_size=4)
        model = load_model("demo")
        assert isinstance(model, torch.nn.Module)
        evaluate(adapt(model, "bn"), stream, out=place / "run", chunk=1, on_progress=on_progress)

    with pytest.raises(KeyboardInterrupt):
        go(stop)
    for state in (place / "run").glob("state-*.pt"):
        torch_file({"method": Trap()}, str(state))
    with pytest.raises(ShiftproofError, match="cannot be read"):
        go()


def test_the_state_of_a_monitor(place):
    arrays("state.npz", counts=np.array([Trap(), 1, 2]))
    with pytest.raises(ShiftproofError, match="Cannot read the monitor state"):
        monitor().load("state.npz")


def test_a_torchscript_program(place):
    payload = io.BytesIO()
    torch.save(Trap(), payload)
    with zipfile.ZipFile(io.BytesIO(payload.getvalue())) as archive:
        (held,) = (archive.read(name) for name in archive.namelist() if name.endswith("data.pkl"))
    with zipfile.ZipFile(io.BytesIO(of_script())) as source, zipfile.ZipFile("m.ts", "w") as copy:
        for name in source.namelist():
            copy.writestr(name, held if name.endswith((".pkl",)) else source.read(name))
    with pytest.raises(ShiftproofError, match="Cannot load the TorchScript file"):
        load_model("m.ts")


def test_a_text_classifier_of_transformers(place):
    pytest.importorskip("transformers", reason="needs the package transformers (the extra `text`)")
    Path("model").mkdir()
    settings = '{"architectures": ["BertForSequenceClassification"], "model_type": "bert", "hidden_size": 12}'
    Path("model/config.json").write_text(settings)
    torch_file({"weight": Trap()}, "model/pytorch_model.bin")
    with pytest.raises(ShiftproofError, match="Cannot load the model"):
        load_model("model")
