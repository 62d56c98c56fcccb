"""Fuzz targets for every parser of a user's file: whatever is in it, there is a result, or an error that says more.

A target is a sound file, the files beside it, and what reads them. The file is damaged; the others are as they were.
"""

from __future__ import annotations

import io
import json
import pickle
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import typer
from hypothesis import given

from shiftproof import load_data, load_model
from shiftproof.audits import audit, gate
from shiftproof.certificates import load_certificate
from shiftproof.cli import config
from shiftproof.cli.commands import COMMANDS
from shiftproof.cli.derive import build
from shiftproof.data import ImageSet, file_digests, load_images
from shiftproof.data.contents import digests
from shiftproof.data.labels import number_classes
from shiftproof.estimators import Monitor, estimate_outputs
from shiftproof.estimators.calibration import Calibration
from shiftproof.estimators.from_outputs import calibrate_outputs, stored
from shiftproof.estimators.references import Reference
from shiftproof.estimators.source_copies import Copy
from shiftproof.exports.text_copies import write_texts
from shiftproof.models import BlackBox, build_network, read_weights
from shiftproof.models.networks.text_cnn import TextCNN
from shiftproof.runs.files import cache_folder
from shiftproof.searchers import make_space
from shiftproof.searchers.search_result import read as read_search
from shiftproof.searchers.search_trace import Score, SearchTrace, Trial
from shiftproof.shifts.text.lexicon import common_words, synonyms
from shiftproof.slices import read_columns
from shiftproof.streams import Ccc, StreamCalibration
from shiftproof.streams.ccc.schedule import straight
from shiftproof.training.state import load_state
from tests.fuzz.mutating import altered, attack, damaged, keep, kept, survive
from tests.hostile import picture, put


class Target(NamedTuple):
    """The file to damage, what it holds, what reads it, the files beside it, whether it is JSON, and what it is in."""

    file: str
    sound: Callable[[], bytes]
    read: Callable[[Path], object]
    beside: Mapping[str, Callable[[], bytes]] = {}
    is_json: bool = False
    wrapped: Callable[[bytes], bytes] = bytes


def of_json(content: object) -> Callable[[], bytes]:
    return lambda: json.dumps(content).encode()


def of_numpy(**held: Any) -> Callable[[], bytes]:
    def write() -> bytes:
        file = io.BytesIO()
        np.savez(file, **held) if len(held) > 1 else np.save(file, next(iter(held.values())))
        return file.getvalue()

    return write


def of_torch(content: Callable[[], object], *, legacy: bool = False) -> Callable[[], bytes]:
    def write() -> bytes:
        file = io.BytesIO()
        torch.save(content(), file, _use_new_zipfile_serialization=not legacy)
        return file.getvalue()

    return write


@cache
def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return build_network("convnet", classes=3)


def of_safetensors() -> bytes:
    from safetensors.torch import save

    return save(network().state_dict(), {"mean": "[0.5, 0.5, 0.5]", "std": "[1, 1, 1]"})


def of_text_network(part: str) -> Callable[[], bytes]:
    def write() -> bytes:
        torch.manual_seed(0)
        made = TextCNN(["good", "bad"], embedding=4, width=4, hidden=4)
        folder = FOLDER / "text"
        made.save(folder)
        return (folder / part).read_bytes()

    return write


def of_script() -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit")
        torch.jit.save(torch.jit.trace(torch.nn.Flatten(), torch.rand(2, 3, 4, 4)), file)
    return file.getvalue()


@cache
def of_program() -> bytes:
    """Return a `torch.export` program with a size that is computed."""
    model = torch.nn.Sequential(torch.nn.Upsample(scale_factor=2), torch.nn.Flatten(), torch.nn.Linear(192, 3)).eval()
    batch = {0: torch.export.Dim("batch", min=1, max=1024)}
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, (torch.rand(2, 3, 4, 4),), dynamic_shapes=(batch,)), file)
    return file.getvalue()


def text_of_program() -> bytes:
    """Return the description of its operations, in JSON, of which PyTorch would evaluate parts as Python."""
    with zipfile.ZipFile(io.BytesIO(of_program())) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("models/model.json"))
        return archive.read(name)


def with_text(content: bytes) -> bytes:
    """Return the program with another description, in an archive that is whole."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(of_program())) as source, zipfile.ZipFile(file, "w") as copy:
        for name in source.namelist():
            copy.writestr(name, content if name.endswith("models/model.json") else source.read(name))
    return file.getvalue()


def of_digests() -> bytes:
    """Return the cache of the digests of files."""
    with patched(file_digests, SETTLED_NS=-(10**12)):
        file_digests.file_digests([put(str(FOLDER / "remembered.bin"), b"content")])
    return (cache_folder() / file_digests.FILE).read_bytes()  # type: ignore[operator]


@contextmanager
def patched(thing: object, **values: object) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(thing, name, value)
        yield


def remembered(path: Path) -> object:
    """Digest a file with a cache that may be anything: the digest is that of its content."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(path.parents[1]))
        (found,) = file_digests.file_digests([FOLDER / "remembered.bin"]).tolist()
    assert found == int(digests([b"content"]))
    return found


def resumed(path: Path) -> object:
    """Go on with a run whose store may be anything: its numbers are those of a sound one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that damaged rows are measured again
        found = audit("demo", "demo", out=path.parent, images=4, sections=["clean"])
    assert found.numbers["clean_accuracy"] == json.loads(results())["numbers"]["clean_accuracy"]
    return found


@cache
def results() -> bytes:
    of_run()
    return (FOLDER / "audit" / "results.json").read_bytes()


def of_onnx() -> bytes:
    import onnx
    from onnx import TensorProto, helper

    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, 4, 4])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 48])
    graph = helper.make_graph([helper.make_node("Flatten", ["images"], ["logits"])], "g", [images], [logits])
    made: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    assert onnx.__version__
    return made


def of_run() -> bytes:
    """Return the store of a small audit."""
    folder = FOLDER / "audit"
    audit("demo", "demo", out=folder, images=4, sections=["clean"])
    return (folder / "run.sqlite").read_bytes()


def of_calibration() -> bytes:
    noises = ("fog", "contrast")
    path = FOLDER / "calibration.json"
    pairs = (noises, noises[::-1])
    StreamCalibration(
        model="model",
        data="data",
        target=0.5,
        clean=0.9,
        classes=10,
        images=60,
        seed=0,
        crop=0.5,
        variant="exact",
        noises=noises,
        paths={pair: straight(0.5) for pair in pairs},
        expected=dict.fromkeys(pairs, (0.5,) * 5),
        errors=dict.fromkeys(pairs, 0.01),
    ).save(path)
    return path.read_bytes()


@cache
def outputs() -> tuple[np.ndarray, np.ndarray]:
    """Return logits of three classes, and labels that most of them are right about."""
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    return (2 * np.eye(3)[labels] + rng.normal(size=(120, 3))).astype(np.float32), labels


def of_estimates() -> bytes:
    """Return a calibration of estimates, with copies of five kinds of shift."""
    logits, labels = outputs()
    made = calibrate_outputs((logits, labels))
    found = stored(logits * 0.5)
    copies = [
        replace(begun, shift=f"{name}@3", family=name)
        for name in ("fog", "snow", "blur", "noise", "frost")
        for begun in [made.copy_of(name, name, replace(found, labels=labels))]
    ]
    path = FOLDER / "estimates.json"
    replace(made, copies=(*made.copies, *copies)).save(path)
    return path.read_bytes()


def of_search() -> bytes:
    space = make_space([("contrast", [0.8, 1.2]), "grayscale"])
    trace = SearchTrace(space, 2, "random", 0, [Trial((0, 2), Score(0.5)), Trial((1, 2), Score(0.25))]).to_json()
    trials = trace.pop("trials")
    return json.dumps({"trace": trace, "clean": 0.9, "trials": trials}).encode()


@cache
def monitor() -> Monitor:
    reference = Reference(**dict.fromkeys((each for each in Reference.__dataclass_fields__), 0.5))
    statistics = dict.fromkeys(("confidence", "confident", "certain", "balance"), 0.5)
    copies = tuple(Copy(f"{name}@3", 0.5, 100, statistics) for name in ("fog", "snow", "frost", "contrast"))
    return Monitor(BlackBox(lambda images: images.mean((2, 3))), Calibration(reference, copies))


def of_monitor() -> bytes:
    path = FOLDER / "monitor"
    monitor().save(path)
    return path.read_bytes()


def images(path: Path) -> object:
    """Read a folder of classes to the last pixel."""
    return [len(batch) for batch in load_data(path.parents[1], size=8).batches(8)]


def whole(path: Path) -> object:
    return load_data(path).fingerprint


def its_folder(path: Path) -> object:
    return load_data(path.parent).fingerprint


@cache
def some_images() -> ImageSet:
    return load_images("demo").take(4)


def courses(path: Path) -> object:
    """Follow a calibration's course for some images."""
    stream = Ccc(some_images(), calibration=StreamCalibration.load(path), length=8, speed=2, batch_size=4)
    return stream.notes, [batch.shift for batch in stream]


def corrupted(path: Path) -> object:
    """Write copies of texts into a folder whose manifest may be anything."""
    return write_texts(load_data(["a b c", "d e f"]), path.parent, [])  # type: ignore[arg-type]


@cache
def audit_command() -> Any:
    return build("audit", COMMANDS["audit"])


def configured(path: Path) -> object:
    """Read the options of `shiftproof audit` from a file, as its command line does."""
    context = typer.Context(audit_command())
    config.read(context, path)
    return context.default_map


CLASSES = {f"photos/{name}/1.png": lambda: picture((8, 8)) for name in ("cat", "dog")}
FLAT = {f"{name}.png": lambda: picture((8, 8)) for name in "ab"}
BATCH = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 1]}
NAMES = {b"label_names": [b"one", b"two"]}
WORDS = {f"data.{part}": lambda: b"0 00 n 02 film 0 movie 0 000 | x\n" for part in ("noun", "verb", "adj", "adv")}
TEXTS = [("good film", "yes"), ("bad film", "no")]
KINDS = ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP", "PPM")

TARGETS: dict[str, Target] = {
    **{kind: Target("photos/cat/0.png", partial(picture, (12, 9), kind=kind), images, CLASSES) for kind in KINDS},
    "labels.csv": Target("labels.csv", lambda: b"file,label\na.png,x\nb.png,y\n", its_folder, FLAT),
    "class names": Target("n.txt", lambda: b"cat\ndog\n", lambda path: number_classes(["cat", "dog"], path)),
    "npz": Target("i.npz", of_numpy(images=np.zeros((2, 8, 8, 3), np.uint8), labels=np.arange(2)), whole),
    "npy": Target("i.npy", of_numpy(images=np.zeros((2, 8, 8, 3), np.uint8)), whole),
    "labels.npy": Target(
        "labels.npy",
        of_numpy(labels=np.arange(2)),
        lambda path: whole(path.with_name("i.npy")),
        {"i.npy": of_numpy(images=np.zeros((2, 8, 8, 3), np.uint8))},
    ),
    "CIFAR batch": Target(
        "test_batch", lambda: pickle.dumps(BATCH, 2), its_folder, {"batches.meta": lambda: pickle.dumps(NAMES, 2)}
    ),
    "CIFAR names": Target(
        "batches.meta", lambda: pickle.dumps(NAMES, 2), its_folder, {"test_batch": lambda: pickle.dumps(BATCH, 2)}
    ),
    "CIFAR binary": Target(
        "test_batch.bin", lambda: bytes(3073 * 2), its_folder, {"batches.meta.txt": lambda: b"one\ntwo"}
    ),
    "csv": Target("t.csv", lambda: b'text,label\n"good, film",yes\nbad,no\n', whole),
    "tsv": Target("t.tsv", lambda: b"text\tlabel\ngood\tyes\nbad\tno\n", whole),
    "jsonl": Target("t.jsonl", lambda: b'{"text": "good", "label": 1}\n{"text": "bad", "label": 0}\n', whole),
    "json": Target("t.json", of_json([{"text": text, "label": label} for text, label in TEXTS]), whole, is_json=True),
    "txt": Target("t.txt", lambda: b"one\ntwo\n", whole),
    "folder of texts": Target(
        "x/1.txt", lambda: b"good", lambda path: whole(path.parents[1]), {"y/1.txt": lambda: b"bad"}
    ),
    "safetensors": Target("w.safetensors", of_safetensors, lambda path: load_model("convnet", weights=path)),
    "state dict": Target(
        "w.pt", of_torch(lambda: network().state_dict()), lambda path: load_model("convnet", weights=path)
    ),
    "old state dict": Target("w.pth", of_torch(lambda: {"a": torch.ones(3)}, legacy=True), read_weights),
    "TorchScript": Target("m.ts", of_script, load_model),
    "exported program": Target("m.pt2", of_program, load_model),
    "text of an exported program": Target("m.pt2", text_of_program, load_model, is_json=True, wrapped=with_text),
    "ONNX": Target("m.onnx", of_onnx, load_model),
    "any model file": Target("m.bin", of_torch(lambda: {"a": torch.ones(3)}), load_model),
    "trained folder": Target(
        "model.json",
        of_json({"model": "convnet", "recipe": "erm"}),
        lambda path: load_model(path.parent),
        {"model.safetensors": of_safetensors},
        is_json=True,
    ),
    "text network": Target(
        "model.json",
        of_text_network("model.json"),
        lambda path: load_model(path.parent),
        {"model.safetensors": of_text_network("model.safetensors")},
        is_json=True,
    ),
    "checkpoint": Target(
        "state-3.pt",
        of_torch(lambda: {"step": 3, "w": torch.ones(3)}),
        lambda path: load_state(path, torch.device("cpu")),
    ),
    "search space": Target(
        "s.json",
        of_json({"name": "mine", "operations": {"contrast": [0.8, 1.2], "grayscale": []}}),
        lambda path: [make_space(str(path)).label((0,)), len(make_space(str(path)))],
        is_json=True,
    ),
    "search": Target("search.json", of_search, lambda path: read_search(path.parent), is_json=True),
    "calibration": Target("c.json", of_calibration, courses, is_json=True),
    "calibration of estimates": Target(
        "e.json", of_estimates, lambda path: estimate_outputs(outputs(), outputs()[0], calibration=path), is_json=True
    ),
    "stored outputs": Target(
        "o.npz",
        of_numpy(logits=outputs()[0][:60], labels=outputs()[1][:60]),
        lambda path: (estimate_outputs(path, outputs()[0]), estimate_outputs(outputs(), path)),
    ),
    "table of metadata": Target(
        "m.csv",
        lambda: b"file,camera,hour\na.png,A,3\nb.png,B,14\n",
        lambda path: read_columns(path, ["a.png", "b.png"]),
    ),
    "certificate": Target("c.json", of_json({"format": "shiftproof-certificate/1"}), load_certificate, is_json=True),
    "monitor": Target("m.npz", of_monitor, lambda path: monitor().load(path)),
    "run directory": Target("run.sqlite", of_run, lambda path: gate(path.parent)),
    "resumed run": Target("run.sqlite", of_run, resumed),
    "cache of digests": Target(f"shiftproof/{file_digests.FILE}", of_digests, remembered),
    "manifest": Target("manifest.json", of_json({"seed": 0}), corrupted, is_json=True),
    "configuration": Target("audit.toml", lambda: b'model = "demo"\nshifts = ["fog"]\nimages = 3\n', configured),
    "WordNet": Target("data.noun", WORDS["data.noun"], lambda path: synonyms.__wrapped__(str(path.parent)), WORDS),
    "vocabulary": Target("words.txt", lambda: b"one two", lambda path: common_words.__wrapped__(str(path))),
}

FOLDER = Path()


@pytest.fixture(scope="module", autouse=True)
def scratch(tmp_path_factory):
    """Keep what sound files are made in, for as long as the module runs."""
    global FOLDER  # noqa: PLW0603
    FOLDER = tmp_path_factory.mktemp("sound")


@cache
def sound(name: str) -> tuple[bytes, dict[str, bytes]]:
    target = TARGETS[name]
    return target.sound(), {file: make() for file, make in target.beside.items()}


def read(name: str, place: Path, content: bytes) -> None:
    """Let a target read its file with this content."""
    target, (_, beside) = TARGETS[name], sound(name)
    shutil.rmtree(place / "in", ignore_errors=True)
    for file, held in {**beside, target.file: target.wrapped(content)}.items():
        put(str(place / "in" / file), held)
    target.read(place / "in" / target.file)


def fuzz(name: str, place: Path, examples: int) -> None:
    content, _ = sound(name)
    last = [b""]

    @given(altered(content) if TARGETS[name].is_json else damaged(content))
    def once(harmed: bytes) -> None:
        last[0] = harmed
        survive(lambda: read(name, place, harmed))

    try:
        attack(once, examples)
    except BaseException:
        keep(name, last[0])  # as small as hypothesis could make it
        raise


@pytest.mark.parametrize("name", TARGETS)
def test_sound_files_are_read(name, tmp_path):
    content, _ = sound(name)
    if name not in ("any model file", "manifest"):
        read(name, tmp_path, content)


@pytest.mark.parametrize(("name", "content"), [(name, content) for name in TARGETS for content in kept(name)])
def test_what_was_too_much_once_is_an_error_or_a_result(name, content, tmp_path):
    survive(lambda: read(name, tmp_path, content))


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_files_are_an_error_or_a_result(name, tmp_path):
    fuzz(name, tmp_path, 25)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_many_damaged_files(name, tmp_path):
    fuzz(name, tmp_path, 500)
