"""One table of bad inputs: what is given, what is asked for, and what a user is told.

Every row is run in an empty folder, as the command line would be. Whatever was given, there is no traceback, the
message says what was expected or what to do, nothing that was there is changed, and nothing new is left behind. Rows
with status 0 are odd inputs whose treatment is documented.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shiftproof import load_data
from shiftproof.cli import main
from shiftproof.runs import Store
from tests.hostile import (
    Trap,
    array,
    arrays,
    cifar,
    folder,
    images,
    link,
    npy,
    onnx_with_weights_at,
    ordinary_rights,
    photos,
    picture,
    pipe,
    png_of,
    put,
    snapshot,
    table,
    torch_file,
    trained,
)
from tests.label_maps import write_tree

AUDIT = ("audit", "--sections", "clean", "--images", "4", "--out", "out")
CORRUPT = ("write-corrupted", "photos", "out", "--shifts", "contrast@5")
FAR = "x" * 5000
HIDDEN = "a\x1b[31m\x07\u202eb"
READ = "run/run.sqlite-"  # what SQLite itself puts beside a store that it reads


@dataclass(frozen=True)
class Row:
    """How to make an input, the command or call that meets it, what must be said, and the exit status."""

    make: Callable[[], object]
    run: Sequence[str] | Callable[[], object]
    says: Sequence[str]
    status: int = 1
    leaves: str = "\0"
    """What new files may be left under: a run directory that had been begun before the fault was met."""
    needs: str = ""
    """An optional package without which nothing is read."""


def audit(*options: str) -> tuple[str, ...]:
    return (*AUDIT, *options)


def data(path: str, *options: str) -> tuple[str, ...]:
    return audit("--data", path, *options)


def model(path: str, *options: str) -> tuple[str, ...]:
    return audit("--model", path, *options)


def call(what: Callable[..., Any], *given: Any, **options: Any) -> Callable[[], object]:
    return lambda: what(*given, **options)


def nothing() -> None:
    """Need no input."""


IMAGES: dict[str, Row] = {
    "image that is empty": Row(lambda: photos(bad_png=b""), data("photos"), ["bad.png", "--on-bad-file skip"]),
    "image that is text": Row(lambda: photos(bad_png=b"hello"), data("photos"), ["bad.png", "cannot identify"]),
    "image cut short": Row(
        lambda: photos(bad_png=picture()[:90]), data("photos"), ["bad.png", "repair or remove the file"]
    ),
    "JPEG cut short": Row(lambda: photos(bad_jpg=picture(kind="JPEG")[:400]), data("photos"), ["bad.jpg", "Truncated"]),
    "image of 60000 x 60000": Row(lambda: photos(bad_png=png_of(60000, 60000)), data("photos"), ["bad.png", "pixels"]),
    "gigantic image, with a size": Row(
        lambda: photos(bad_png=png_of(60000, 60000)), data("photos", "--size", "32"), ["bad.png", "pixels"]
    ),
    "gigantic image to corrupt": Row(lambda: photos(bad_png=png_of(60000, 60000)), CORRUPT, ["bad.png", "pixels"]),
    "gigantic image to preview": Row(
        lambda: put("bad.png", png_of(60000, 60000)), ("preview", "bad.png", "--out", "out.png"), ["bad.png", "pixels"]
    ),
    "image of 15000 x 10000, which Pillow would only warn of": Row(
        lambda: photos(bad_png=png_of(15000, 10000)), data("photos", "--size", "32"), ["bad.png", "pixels"]
    ),
    "long thin image, which resizing would make gigantic": Row(
        lambda: photos(bad_png=picture((60_000, 1))), data("photos", "--size", "224"), ["bad.png", "when resized"]
    ),
    "program for a printer named .png": Row(
        lambda: photos(bad_png=b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n%%EndComments\nshowpage\n"),
        data("photos"),
        ["bad.png", "cannot identify"],
    ),
    "image of no pixels": Row(lambda: photos(bad_png=png_of(0, 0)), data("photos", "--size", "32"), ["bad.png"]),
    "image of no width": Row(lambda: photos(bad_png=png_of(0, 32)), CORRUPT, ["bad.png"]),
    "image of floats": Row(
        lambda: photos(bad_tif=picture(mode="F", kind="TIFF")), data("photos"), ["bad.tif", "floats", "range"]
    ),
    "images of two sizes": Row(
        lambda: photos(bad_png=picture((40, 32))), data("photos"), ["different sizes", "40 x 32", "--size"]
    ),
    "image that is a broken link": Row(
        lambda: (photos(), link("photos/cat/bad.png", "nowhere")), data("photos"), ["bad.png"]
    ),
    "image that is a pipe": Row(
        lambda: (photos(), pipe("photos/cat/bad.png")), data("photos"), ["bad.png", "not a regular file"]
    ),
    "pipe to corrupt": Row(lambda: (photos(), pipe("photos/cat/bad.png")), CORRUPT, ["bad.png", "not a regular file"]),
    "all images bad, and skipped": Row(
        lambda: [put(f"photos/{name}/1.png", b"no") for name in ("cat", "dog")],
        data("photos", "--on-bad-file", "skip"),
        ["None of the 2 images", "expected"],
    ),
    "JPEG named .png": Row(
        lambda: photos(odd_png=picture(kind="JPEG")), call(load_data, "photos"), ["5 images of (3, 32, 32)"], 0
    ),
    "animation": Row(
        lambda: photos(odd_gif=picture(kind="GIF", save_all=True, append_images=[])),
        call(load_data, "photos"),
        ["5 images of (3, 32, 32)"],
        0,
    ),
    "16-bit image": Row(
        lambda: photos(odd_png=picture(mode="I;16")), call(load_data, "photos"), ["5 images of (3, 32, 32)"], 0
    ),
    "palette image": Row(
        lambda: photos(odd_png=picture(mode="P")), call(load_data, "photos"), ["5 images of (3, 32, 32)"], 0
    ),
    "CMYK image": Row(
        lambda: photos(odd_jpg=picture(mode="CMYK", kind="JPEG")),
        call(load_data, "photos"),
        ["5 images of (3, 32, 32)"],
        0,
    ),
}

FOLDERS: dict[str, Row] = {
    "no such folder": Row(nothing, data("no/where"), ["no data at 'no/where'", "expected"]),
    "path too long": Row(nothing, data(f"{FAR}/photos"), ["too long", "expected"]),
    "path with a zero byte": Row(nothing, call(load_data, "pho\0tos/x"), ["no data at", "expected"]),
    "home of nobody": Row(nothing, data("~nobody-of-that-name/photos"), ["no data at", "expected"]),
    "empty folder": Row(lambda: Path("photos").mkdir(), data("photos"), ["no images", "empty folder", "expected"]),
    "folder of one class": Row(lambda: put("photos/cat/1.png", picture()), data("photos"), ["one class", "only 'cat'"]),
    "folder of splits": Row(
        lambda: [put(f"photos/{name}/a/1.png", picture()) for name in ("train", "test")],
        data("photos"),
        ["parts of a data set", "train"],
    ),
    "folder that links to itself, twice": Row(
        lambda: (photos(), *(link(f"photos/cat/{name}", "..") for name in ("one", "other"))),
        call(load_data, "photos"),
        ["4 images"],
        0,
    ),
    "folder to corrupt that links to itself": Row(
        lambda: (photos(), link("photos/cat/one", "..")),
        ("write-corrupted", "photos", "photos/cat/one/out", "--shifts", "contrast@5"),
        ["overlap", "expected"],
    ),
    "archive": Row(lambda: put("photos.tar", b"tar"), data("photos.tar"), ["unpack it", "expected"]),
    "image in place of a folder": Row(lambda: put("cat.png", picture()), data("cat.png"), ["give the folder it is in"]),
    "data that is a pipe": Row(lambda: pipe("images.npz"), data("images.npz"), ["not a regular file", "expected"]),
    "table of labels without columns": Row(lambda: table("a,b\n1,2\n"), data("photos"), ["columns file,label", "a,b"]),
    "empty table of labels": Row(lambda: table(""), data("photos"), ["columns file,label", "an empty file"]),
    "table of labels without rows": Row(lambda: table("file,label\n"), data("photos"), ["no rows", "expected"]),
    "table of labels with a gap": Row(
        lambda: table("file,label\n0.png,\n"), data("photos"), ["Line 2", "lacks a file or a label", "expected"]
    ),
    "table of labels that repeats": Row(
        lambda: table("file,label\n0.png,a\n0.png,b\n"), data("photos"), ["Line 3", "twice", "expected"]
    ),
    "table of labels that is not UTF-8": Row(
        lambda: (table(""), put("photos/labels.csv", b"file,label\n\xff.png,a\n")), data("photos"), ["utf-8", "fix"]
    ),
    "table of labels for other files": Row(
        lambda: table("file,label\n0.png,a\n9.png,b\n"), data("photos"), ["1 of 2 files", "9.png", "expected"]
    ),
    "table of labels with hidden characters": Row(
        lambda: table(f"file,label\n0.png,a\n{HIDDEN}.png,b\n"), data("photos"), [r"a\x1b[31m\x07\u202eb.png"]
    ),
    "table of labels with a name too long": Row(
        lambda: table(f"file,label\n0.png,a\n{FAR}.png,b\n"), data("photos"), ["1 of 2 files", "expected"]
    ),
    "table of labels that points outside": Row(
        lambda: (put("secret.png", picture()), table("file,label\n0.png,a\n../secret.png,b\n")),
        data("photos"),
        ["../secret.png", "outside", "expected"],
    ),
    "table of labels with an absolute path": Row(
        lambda: (put("secret.png", picture()), table(f"file,label\n0.png,a\n{Path('secret.png').resolve()},b\n")),
        data("photos"),
        ["secret.png", "outside", "expected", "--data FOLDER --labels"],
    ),
    "no table of labels": Row(photos, data("photos", "--labels", "no.csv"), ["no table of labels", "expected"]),
    "folder as a table of labels": Row(photos, data("photos", "--labels", "photos"), ["no table of labels"]),
    "table of labels that is binary": Row(lambda: table("\0\0\n\0"), data("photos"), ["columns file,label"]),
    "list of classes that is not UTF-8": Row(
        lambda: (photos(), put("names.txt", b"\xff\n")), call(load_data, "photos", classes="names.txt"), ["UTF-8"]
    ),
    "list of classes that repeats": Row(
        lambda: (photos(), put("names.txt", "cat\ncat\ndog")),
        call(load_data, "photos", classes="names.txt"),
        ["'cat'", "twice", "expected"],
    ),
    "list of classes that is empty": Row(
        lambda: (photos(), put("names.txt", "")),
        call(load_data, "photos", classes="names.txt"),
        ["'cat'", "known none"],
    ),
    "list of classes that is a folder": Row(
        photos, call(load_data, "photos", classes="photos"), ["no file of class names", "expected"]
    ),
}

ARRAYS: dict[str, Row] = {
    "archive that is text": Row(lambda: put("images.npz", "hello"), data("images.npz"), ["images.npz", "expected"]),
    "archive that is empty": Row(lambda: put("images.npz", b""), data("images.npz"), ["images.npz", "expected"]),
    "archive without images": Row(lambda: arrays(a=images()), data("images.npz"), ["no images", "images", "got"]),
    "archive cut short": Row(
        lambda: (arrays(images=images()), put("images.npz", Path("images.npz").read_bytes()[:2000])),
        data("images.npz"),
        ["images.npz", "expected"],
    ),
    "archive of pickled objects": Row(
        lambda: arrays(images=np.array([Trap(), None])), data("images.npz"), ["images.npz", "expected", "got"]
    ),
    "labels of pickled objects": Row(
        lambda: arrays(images=images(), labels=np.array([Trap()] * 4)), data("images.npz"), ["images.npz", "expected"]
    ),
    "array of pickled objects": Row(
        lambda: array("images.npy", np.array([Trap(), None])), data("images.npy"), ["images.npy", "expected"]
    ),
    "labels.npy of pickled objects": Row(
        lambda: (array("images.npy", images()), array("labels.npy", np.array([Trap()] * 4))),
        data("images.npy"),
        ["labels.npy", "expected"],
    ),
    "pickle named .npy": Row(
        lambda: put("images.npy", pickle.dumps(Trap())), data("images.npy"), ["images.npy", "expected"]
    ),
    "pickle named .npz": Row(
        lambda: put("images.npz", pickle.dumps(Trap())), data("images.npz"), ["images.npz", "expected"]
    ),
    "array whose header claims a petabyte": Row(
        lambda: put("images.npy", npy("(1000000000, 1000, 1000, 3)")), data("images.npy"), ["images.npy", "expected"]
    ),
    "array whose header is cut": Row(
        lambda: put("images.npy", npy("(4, 32,")), data("images.npy"), ["images.npy", "expected"]
    ),
    "images of four channels": Row(
        lambda: arrays(images=np.zeros((4, 8, 8, 4), np.uint8)), data("images.npz"), ["channels", "images[..., :3]"]
    ),
    "images outside [0, 1]": Row(
        lambda: arrays(images=np.full((4, 8, 8, 3), 7.0)), data("images.npz"), ["[0, 1]", "values 7", "uint8"]
    ),
    "images that are not numbers": Row(
        lambda: arrays(images=np.full((4, 8, 8, 3), np.nan)), data("images.npz"), ["[0, 1]", "nan", "expected"]
    ),
    "no images in an array": Row(
        lambda: arrays(images=np.zeros((0, 8, 8, 3), np.uint8)), data("images.npz"), ["not a set of images", "(0, 8"]
    ),
    "labels for other images": Row(
        lambda: arrays(images=images(), labels=np.arange(5)), data("images.npz"), ["do not fit", "4 whole numbers"]
    ),
    "negative labels": Row(
        lambda: arrays(images=images(), labels=np.array([0, 1, -1, 2])), data("images.npz"), ["negative", "expected"]
    ),
    "labels of a billion classes": Row(
        lambda: arrays(images=images(), labels=np.array([0, 1, 2, 10**9])),
        data("images.npz"),
        ["1000000000", "expected"],
    ),
    "labels that are floats": Row(
        lambda: arrays(images=images(), labels=np.arange(4.0)), data("images.npz"), ["float64", "expected"]
    ),
    "CIFAR batch with code": Row(
        lambda: cifar({b"data": Trap()}), data("cifar-10-batches-py"), ["test_batch", "mkdir", "not run", "expected"]
    ),
    "CIFAR batch cut short": Row(
        lambda: cifar(pickle.dumps({b"data": images()})[:50]), data("cifar-10-batches-py"), ["test_batch", "expected"]
    ),
    "CIFAR batch of another shape": Row(
        lambda: cifar({b"data": images(), b"labels": [0] * 4}), data("cifar-10-batches-py"), ["rows of 3072"]
    ),
    "CIFAR batch that asks for all memory": Row(
        lambda: cifar(b"\x80\x02]r\xff\xff\xff\x7f."), data("cifar-10-batches-py"), ["test_batch", "expected"]
    ),
    "CIFAR batch that is missing": Row(
        lambda: cifar({}, "data_batch_1"), data("cifar-10-batches-py"), ["test_batch is missing", "expected"]
    ),
}

TEXTS: dict[str, Row] = {
    "table of texts that is empty": Row(lambda: put("t.csv", ""), data("t.csv"), ["t.csv", "empty", "expected"]),
    "table of texts without texts": Row(lambda: put("t.csv", "a,b\n1,2\n"), data("t.csv"), ["column", "a, b"]),
    "table of texts with a quote left open": Row(
        lambda: put("t.csv", 'text,label\n"never closed,1\n'), data("t.csv"), ["t.csv"]
    ),
    "table of texts that is not UTF-8": Row(
        lambda: put("t.tsv", b"text\tlabel\n\xff\t1\n"), data("t.tsv"), ["not UTF-8", "0xff in line 2", "iconv"]
    ),
    "table of texts with gaps": Row(
        lambda: put("t.csv", "text,label\n,1\n"), data("t.csv"), ["text is empty", "line 2", "--on-bad-file skip"]
    ),
    "JSON cut short": Row(lambda: put("t.json", '[{"text": "a"'), data("t.json"), ["t.json", "not valid JSON"]),
    "JSON lines of numbers": Row(lambda: put("t.jsonl", "1\n2\n"), data("t.jsonl"), ["one JSON object per row"]),
    "JSON of one number": Row(lambda: put("t.json", "3"), data("t.json"), ["t.json", "expected"]),
    "JSON nested without end": Row(lambda: put("t.json", "[" * 200_000), data("t.json"), ["t.json", "expected"]),
    "pickle named .json": Row(lambda: put("t.json", pickle.dumps(Trap())), data("t.json"), ["UTF-8", "expected"]),
    "texts without labels": Row(lambda: put("t.txt", "one\ntwo\n"), data("t.txt"), ["no labels", "expected"]),
    "column that is not there": Row(
        lambda: put("t.csv", "text,label\na,1\n"), data("t.csv", "--text-column", "body"), ["'body'", "text, label"]
    ),
    "shift of images for texts": Row(
        lambda: put("t.csv", "text,label\na,0\nb,1\n"),
        data("t.csv", "--shifts", "fog"),
        ["shift fog applies to images, not to texts"],
    ),
    "texts for a model of images": Row(
        lambda: put("t.csv", "text,label\na,0\nb,1\n"), data("t.csv"), ["text", "expected"]
    ),
}

MODELS: dict[str, Row] = {
    "no such model": Row(nothing, model("nowhere"), ["'nowhere'", "known"]),
    "no such model file": Row(nothing, model("no/where.onnx"), ["no model file", "expected"]),
    "model path too long": Row(nothing, model(f"{FAR}.onnx"), ["too long", "expected"]),
    "model file with a name too long": Row(nothing, model(f"{FAR}.py"), ["no model file", "expected"]),
    "weights with a name too long": Row(nothing, model("resnet20", "--weights", FAR), ["no weights file", "expected"]),
    "home that nobody can have": Row(nothing, call(load_data, "~\0/x"), ["no data at", "expected"]),
    "model that is empty": Row(lambda: put("m.pt", b""), model("m.pt"), ["m.pt", "0 bytes", "expected"]),
    "model that is text": Row(lambda: put("m.onnx", "hello"), model("m.onnx"), ["m.onnx", "expected"]),
    "model that is a broken ONNX file": Row(
        lambda: put("m.onnx", b"\x08\x07garbage"), model("m.onnx"), ["m.onnx", "expected"], needs="onnxruntime"
    ),
    "model whose weights are outside its folder": Row(
        lambda: (put("secret", bytes(1920)), onnx_with_weights_at("../secret")),
        model("model/m.onnx"),
        ["m.onnx", "escapes", "expected"],
        needs="onnxruntime",
    ),
    "model that is a pipe": Row(lambda: pipe("m.onnx"), model("m.onnx"), ["m.onnx", "not a regular file"]),
    "folder that is no model": Row(photos, model("photos"), ["is a folder", "expected"]),
    "whole module in a pickle": Row(
        lambda: torch_file({"model": Trap()}, "m.pt"), model("m.pt"), ["arbitrary code", "was not run", "safetensors"]
    ),
    "whole module in an old pickle": Row(
        lambda: torch_file(Trap(), "m.pth", legacy=True), model("m.pth"), ["arbitrary code", "was not run"]
    ),
    "model.pkl": Row(lambda: put("m.pkl", pickle.dumps(Trap())), model("m.pkl"), ["arbitrary code", "was not run"]),
    "model.pkl of protocol 0": Row(
        lambda: put("m.joblib", pickle.dumps(Trap(), 0)), model("m.joblib"), ["m.joblib", "expected"]
    ),
    "weights with code": Row(
        lambda: torch_file({"a": Trap()}, "w.pt"), model("resnet20", "--weights", "w.pt"), ["was not run", "fix"]
    ),
    "weights.pkl with code": Row(
        lambda: put("w.pkl", pickle.dumps(Trap())), model("resnet20", "--weights", "w.pkl"), ["was not run", "fix"]
    ),
    "weights.safetensors that is a pickle": Row(
        lambda: put("w.safetensors", pickle.dumps(Trap())),
        model("resnet20", "--weights", "w.safetensors"),
        ["w.safetensors", "expected"],
    ),
    "weights that are not there": Row(nothing, model("resnet20", "--weights", "no.pt"), ["no weights file"]),
    "weights without an architecture": Row(
        lambda: torch_file({}, "w.pt"), model("w.pt"), ["w.pt", "no state dict", "expected"]
    ),
    "safetensors with a broken header": Row(
        lambda: put("w.safetensors", (20).to_bytes(8, "little") + b"{" + b"x" * 40),
        model("resnet20", "--weights", "w.safetensors"),
        ["w.safetensors", "expected"],
    ),
    "safetensors whose header claims a petabyte": Row(
        lambda: put("w.safetensors", (2**50).to_bytes(8, "little") + b"{}"),
        model("resnet20", "--weights", "w.safetensors"),
        ["w.safetensors", "expected"],
    ),
    "reference network without weights": Row(nothing, model("resnet20"), ["needs weights", "expected"]),
    "model file with a mistake": Row(
        lambda: put("m.py", "def build(:\n"), model("m.py"), ["m.py", "SyntaxError", "--debug"]
    ),
    "model file that fails": Row(
        lambda: put("m.py", "def build():\n    raise KeyError('x')\n"), model("m.py:build"), ["KeyError", "build()"]
    ),
    "model file that ends the process": Row(
        lambda: put("m.py", "import sys\nsys.exit(0)\n"), model("m.py"), ["m.py", "SystemExit"]
    ),
    "model file without the function": Row(
        lambda: put("m.py", "def built(): pass\n"), model("m.py"), ["no function 'build'", "expected"]
    ),
    "model file that builds none": Row(
        lambda: put("m.py", "def build(): return 3\n"), model("m.py"), ["does not return a model", "a int"]
    ),
    "model that answers NaN": Row(
        lambda: put("m.py", "import torch\ndef build(): return lambda x: torch.full((len(x), 10), torch.nan)\n"),
        model("m.py"),
        ["finite"],
    ),
    "trained folder with a broken note": Row(lambda: trained(b"{"), model("trained"), ["'trained'", "expected", "got"]),
    "trained folder that names itself": Row(
        lambda: trained({"model": "trained"}), model("trained"), ["'trained'", "expected"]
    ),
    "trained folder that brings its own code": Row(
        lambda: (trained({"model": "trained/evil.py"}), put("trained/evil.py", "import os\nos.mkdir('sprung')\n")),
        model("trained"),
        ["evil.py", "not run", "--weights"],
    ),
    "trained folder with pickled weights": Row(
        lambda: trained({"model": "resnet20"}, pickle.dumps(Trap())),
        model("trained"),
        ["model.safetensors", "expected"],
    ),
    "text network with a broken note": Row(
        lambda: trained({"model": "text_cnn", "settings": [], "vocabulary": 3}), model("trained"), ["'trained'", "got"]
    ),
}

STATES: dict[str, Row] = {
    "search space that is not JSON": Row(
        lambda: put("s.json", "{"), ("search", "--space", "s.json", "--out", "out"), ["s.json", "expected"]
    ),
    "search space that is a pickle": Row(
        lambda: put("s.json", pickle.dumps(Trap())),
        ("search", "--space", "s.json", "--out", "out"),
        ["s.json", "expected"],
    ),
    "search space nested without end": Row(
        lambda: put("s.json", '{"operations":' + "[" * 200_000),
        ("search", "--space", "s.json", "--out", "out"),
        ["s.json", "expected"],
    ),
    "search space of unknown operations": Row(
        lambda: put("s.json", '{"operations": {"melt": [1]}}'),
        ("search", "--space", "s.json", "--out", "out"),
        ["melt"],
    ),
    "search targets of pickled objects": Row(
        lambda: array("maps.npy", np.array([Trap()])),
        ("search", "--targets", "maps.npy", "--fitness", "mean_iou", "--out", "out"),
        ["maps.npy", "expected"],
    ),
    "search targets that are a pickle": Row(
        lambda: put("maps.npy", pickle.dumps(Trap())),
        ("search", "--targets", "maps.npy", "--fitness", "mean_iou", "--out", "out"),
        ["maps.npy", "expected"],
    ),
    "calibration that is not JSON": Row(
        lambda: put("c.json", "hello"),
        ("preview-stream", "--calibration", "c.json", "--out", "out.png"),
        ["c.json", "shiftproof calibrate"],
    ),
    "calibration that is a pickle": Row(
        lambda: put("c.json", pickle.dumps(Trap())),
        ("preview-stream", "--calibration", "c.json", "--out", "out.png"),
        ["c.json", "shiftproof calibrate"],
    ),
    "calibration of nothing": Row(
        lambda: put("c.json", json.dumps({"model": 3})),
        ("preview-stream", "--calibration", "c.json", "--out", "out.png"),
        ["c.json", "shiftproof calibrate"],
    ),
    "no calibration": Row(
        nothing, ("preview-stream", "--calibration", "c.json", "--out", "out.png"), ["c.json", "shiftproof calibrate"]
    ),
    "run directory that is not one": Row(nothing, ("report", "."), ["no run in", "expected"]),
    "run directory with a broken store": Row(
        lambda: put("run/run.sqlite", "hello" * 1000), ("report", "run"), ["'run'", "fix"]
    ),
    "run directory with a pickle as its store": Row(
        lambda: put("run/run.sqlite", pickle.dumps(Trap())), ("report", "run"), ["'run'", "fix"]
    ),
    "store of something else": Row(lambda: store({}), ("report", "run"), ["not an audit", "expected"], leaves=READ),
    "store with a broken note": Row(
        lambda: store({"audit": "{"}), ("report", "run"), ["'run'", "expected"], leaves=READ
    ),
    "store with a note of another kind": Row(
        lambda: store({"audit": "[1]"}), ("report", "run"), ["'run'", "expected"], leaves=READ
    ),
    "comparison with a store of something else": Row(
        lambda: store({}), ("compare", "run", "run", "--out", "out"), ["not an audit", "expected"], leaves=READ
    ),
    "comparison with a broken store": Row(
        lambda: store({"audit": "[1]"}), ("compare", "run", "run", "--out", "out"), ["'run'", "expected"], leaves=READ
    ),
    "gate of nothing": Row(nothing, ("gate", ".", "--require", "mce < 70"), ["no run in", "expected"]),
    "store of another version": Row(
        lambda: store({"schema": "99"}), ("report", "run"), ["schema 99", "expected"], leaves=READ
    ),
    "run directory that is a file": Row(lambda: put("out", "mine"), audit(), ["'out'", "another folder"]),
    "run directory under a file": Row(
        lambda: put("out", "mine"), (*AUDIT[:-1], "out/run"), ["'out/run'", "another folder"]
    ),
    "run directory of another command": Row(
        lambda: store({"version": "0"}, "out"),
        audit(),
        ["another version", "another folder"],
        leaves="out/run.lock",
    ),
    "run directory that cannot be written": Row(lambda: folder("out", 0o555), audit(), ["'out'", "ermission", "fix"]),
    "place that cannot be written": Row(
        lambda: Path.cwd().chmod(0o555),
        ("preview", "--families", "holdout", "--severities", "1", "--out", "out.png"),
        ["out.png", "ermission", "another folder"],
    ),
    "copy among other files": Row(lambda: (photos(), put("out/mine", "mine")), CORRUPT, ["other files", "expected"]),
    "copy over its source": Row(
        photos, ("write-corrupted", "photos", "photos", "--shifts", "contrast@5"), ["overlap", "expected"]
    ),
    "copy that is a file": Row(lambda: (photos(), put("out", "mine")), CORRUPT, ["'out'", "another folder"]),
    "copy of texts with a broken manifest": Row(
        lambda: (put("t.csv", "text,label\na b c,x\nd e f,y\n"), put("out/manifest.json", "[1]")),
        ("write-corrupted", "t.csv", "out", "--shifts", "typos@3"),
        ["other files", "expected"],
    ),
}

OPTIONS: dict[str, Row] = {
    "no configuration": Row(nothing, audit("--config", "a.toml"), ["a.toml", "expected"]),
    "configuration that is a folder": Row(nothing, audit("--config", "."), ["Cannot read", "expected"]),
    "configuration with a mistake": Row(
        lambda: put("a.toml", "model = \n"), audit("--config", "a.toml"), ["a.toml", "line 1", "expected"]
    ),
    "configuration that is not UTF-8": Row(
        lambda: put("a.toml", b'model = "\xff"'), audit("--config", "a.toml"), ["a.toml", "expected"]
    ),
    "configuration that is a pickle": Row(
        lambda: put("a.toml", pickle.dumps(Trap())), audit("--config", "a.toml"), ["a.toml", "expected"]
    ),
    "configuration nested without end": Row(
        lambda: put("a.toml", "a = " + "[" * 100_000), audit("--config", "a.toml"), ["a.toml", "expected"]
    ),
    "configuration of an option of no name": Row(
        lambda: put("a.toml", 'modle = "demo"'), audit("--config", "a.toml"), ["modle", "did you mean"]
    ),
    "configuration with a table for a value": Row(
        lambda: put("a.toml", "[model]\nname = 3"), audit("--config", "a.toml"), ["'model'", "expected"]
    ),
    "configuration with a word for a number": Row(
        lambda: put("a.toml", 'seed = "lucky"'), audit("--config", "a.toml"), ["--seed", "integer"], 2
    ),
    "requirement without a number": Row(nothing, audit("--require", "clean <"), ["'clean <'", "expected"], 2),
    "requirement that is no number": Row(nothing, audit("--require", "clean < nan"), ["nan", "expected"], 2),
    "requirement with hidden characters": Row(nothing, audit("--require", HIDDEN), [r"\x1b", "expected"], 2),
    "requirement of no name": Row(nothing, audit("--require", "cleen > 0.5"), ["cleen", "did you mean"], 2),
    "requirement in percent": Row(nothing, audit("--require", "clean_accuracy > 80"), ["fraction", "> 80%"], 2),
    "requirement of a section that does not run": Row(
        nothing, audit("--require", "mce < 70"), ["corruptions", "--sections"], 2
    ),
    "shift of no name": Row(photos, (*CORRUPT[:-1], "fogg@3"), ["fogg", "did you mean"]),
    "shift without a severity": Row(photos, (*CORRUPT[:-1], "fog"), ["'fog'", "no severity", "fog@3"]),
    "shift of severity 9": Row(photos, (*CORRUPT[:-1], "fog@9"), ["9", "expected"]),
    "shift of severity NaN": Row(photos, (*CORRUPT[:-1], "fog@nan"), ["nan", "expected"]),
    "shift of a severity too large for a number": Row(photos, (*CORRUPT[:-1], "fog@1e999"), ["inf", "expected"]),
    "shift that is code": Row(photos, (*CORRUPT[:-1], "fog@3[__class__=1]"), ["__class__", "known none"]),
    "shift that is nothing": Row(photos, (*CORRUPT[:-1], ""), ["shift"]),
    "shift that is a joint": Row(photos, (*CORRUPT[:-1], "fog@3 + "), ["fog@3 +", "expected"]),
    "shift with hidden characters": Row(photos, (*CORRUPT[:-1], f"fog@{HIDDEN}"), [r"a\x1b"]),
    "parameter of no name": Row(photos, (*CORRUPT[:-1], "power_law[x=1]"), ["'x'", "eps"]),
    "photographs that are none": Row(
        lambda: (photos(), put("ice/1.png", "no")),
        (*CORRUPT[:-1], "frost@3[textures=ice]"),
        ["ice/1.png", "expected"],
        leaves="out",
    ),
    "WordNet that is not there": Row(
        lambda: put("t.csv", "text,label\na b c,x\nd e f,y\n"),
        ("write-corrupted", "t.csv", "out", "--shifts", "eda@2[wordnet=.]"),
        ["WordNet", "expected"],
        leaves="out",
    ),
    "WordNet that is broken": Row(
        lambda: (
            put("t.csv", "text,label\na b c,x\nd e f,y\n"),
            [put(f"net/data.{part}", b"00001 03 n\n\xff") for part in ("noun", "verb", "adj", "adv")],
        ),
        ("write-corrupted", "t.csv", "out", "--shifts", "eda@2[wordnet=net]"),
        ["net/data.noun", "expected"],
        leaves="out",
    ),
    "severities that are words": Row(nothing, audit("--severities", "a,b"), ["takes numbers, such as 1,3,5"], 2),
    "severities that are not numbers": Row(nothing, audit("--severities", "nan"), ["nan", "expected"]),
    "no images": Row(nothing, audit("--images", "0"), ["images", "expected"]),
    "fewer images than none": Row(nothing, audit("--images", "-5"), ["images", "expected"]),
    "images by the word": Row(nothing, audit("--images", "many"), ["--images"], 2),
    "size of nothing": Row(photos, data("photos", "--size", "0"), ["size", "expected"]),
    "size of a gigapixel": Row(photos, data("photos", "--size", "100000"), ["100000", "expected"]),
    "seed that is a word": Row(nothing, audit("--seed", "lucky"), ["--seed"], 2),
    "batch of nothing": Row(nothing, audit("--batch-size", "0"), ["batch size", "expected"]),
    "section of no name": Row(nothing, (*audit(), "--sections", "cleen"), ["cleen", "did you mean"]),
    "method of no name": Row(nothing, audit("--methods", "tentt"), ["tentt", "did you mean"]),
    "device of no name": Row(nothing, audit("--device", "toaster"), ["toaster", "expected"]),
    "option of no name": Row(nothing, audit("--modle", "demo"), ["--model"], 2),
    "command of no name": Row(nothing, ("audti",), ["audit"], 2),
}

SEGMENTER = """
import torch

def build(classes=4):
    return torch.nn.Conv2d(3, classes, 1).eval()

def few():
    return build(3)
"""


def maps(name: str = "", content: Any = None, *, without: str = "") -> Path:
    """Write images with label maps of four classes, and one map that is not right, or is not there."""
    write_tree("tree", count=4)
    if content is not None:
        Image.fromarray(np.asarray(content, np.uint8)).save(Path("tree/masks") / name)
    if without:
        (Path("tree/masks") / without).unlink()
    return put("net.py", SEGMENTER)


COLOURED = np.full((20, 24, 3), 9)


def coloured_maps(palette: str = "") -> Path:
    """Write images with label maps of one colour, and a palette."""
    maps()
    for path in Path("tree/masks").glob("*.png"):
        Image.fromarray(COLOURED.astype(np.uint8)).save(path)
    return put("p.txt", palette)


def jpeg_maps() -> None:
    """Write images with label maps that were saved as JPEGs."""
    maps()
    for path in sorted(Path("tree/masks").glob("*.png")):
        Image.open(path).save(path.with_suffix(".jpg"))
        path.unlink()


def void_maps() -> None:
    """Write images with label maps that say 255, no label, of every pixel."""
    maps()
    for path in Path("tree/masks").glob("*.png"):
        Image.fromarray(np.full((20, 24), 255, np.uint8)).save(path)


MAPS: dict[str, Row] = {
    "label map of another size": Row(
        lambda: maps("002.png", np.zeros((10, 24))),
        data("tree"),
        ["its image differ in size", "24 x 20 pixels", "24 x 10 pixels", "002.png", "--size"],
    ),
    "label maps of colours without a palette": Row(
        coloured_maps,
        data("tree"),
        ["nothing says which class each colour is", "--palette"],
    ),
    "one label map of colours": Row(
        lambda: maps("002.png", COLOURED),
        data("tree"),
        ["colours in images/002.png, numbers in images/000.png", "--palette"],
    ),
    "colour outside the palette": Row(
        lambda: coloured_maps("0 0 0 a\n1 1 1 b\n"),
        data("tree", "--palette", "p.txt"),
        ["colours outside the palette", "9"],
    ),
    "image without a label map": Row(
        lambda: maps(without="001.png"),
        data("tree"),
        ["1 images without a label map", "001.png", "--on-bad-file skip"],
    ),
    "label map that is a JPEG": Row(
        lambda: maps("003.jpg", np.zeros((20, 24)), without="003.png"), data("tree"), ["003.jpg"]
    ),
    "label maps that are all JPEGs": Row(
        jpeg_maps, data("tree"), ["label maps in 'tree/masks' are JPEGs", "save them as PNG"]
    ),
    "label maps without any label": Row(
        void_maps,
        data("tree"),
        ["No pixel of the label maps has a class", "255"],
    ),
    "label above the model's classes": Row(
        maps, data("tree", "--model", "net.py:few"), ["Labels and model outputs", "from 0 to 2", "label 3"]
    ),
    "label above the listed classes": Row(
        maps,
        call(load_data, "tree", classes=["a", "b", "c"]),
        ["values that are not classes", "0 to 2", "3 in ", "images/000.png"],
    ),
    "label maps and a classifier": Row(maps, data("tree"), ["does not return scores for pixels", "[N, C, h, w]"]),
    "label maps to find failures in": Row(
        maps, ("find-failures", "--data", "tree", "--out", "out"), ["Not available for segmentation", "take label maps"]
    ),
    "label maps to diagnose": Row(
        maps, ("diagnose", "--data", "tree", "--out", "out"), ["Not available for segmentation", "take label maps"]
    ),
    "label maps to harden by": Row(
        maps,
        ("harden", "--model", "demo", "--data", "tree", "--out", "out"),
        ["Not available for segmentation: hardening", "take label maps"],
    ),
    "label maps under ccc": Row(
        maps,
        ("compare-on-stream", "--model", "net.py:build", "--data", "tree", "--out", "out"),
        ["the stream ccc", "--stream gradual"],
    ),
    "label maps certified against rotations": Row(
        maps,
        ("certify", "--model", "net.py:build", "--data", "tree", "--against", "rotation", "--out", "out"),
        ["Not available for segmentation: against", "sigma"],
    ),
    "label maps by certified radii": Row(
        maps,
        ("spectrum", "--model", "net.py:build", "--data", "tree", "--measure", "acr", "--out", "out"),
        ["Not available for segmentation: the measure acr", "miou"],
    ),
}

TABLE: Mapping[str, Row] = {**IMAGES, **FOLDERS, **MAPS, **ARRAYS, **TEXTS, **MODELS, **STATES, **OPTIONS}


def store(facts: Mapping[str, str], folder: str = "run") -> None:
    """Write the store of a run directory with notes of one's own."""
    with Store(Path(folder), {}) as made:
        made.note(facts)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Stand in an empty folder, with the signal handlers and folders' modes as they were afterwards."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(120)
    yield tmp_path
    signal.alarm(0)
    for locked in (tmp_path, tmp_path / "out"):
        with suppress(FileNotFoundError):
            locked.chmod(0o755)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _hangs(*_: object) -> None:
    raise TimeoutError("it hangs")


def outcome(run: Sequence[str] | Callable[[], object], monkeypatch, capsys) -> tuple[int, str]:
    """Return the exit status and everything said, of a command or of a call reported as a command would."""
    capsys.readouterr()
    if callable(run):
        monkeypatch.setattr("shiftproof.cli.app", lambda _: sys.stdout.write(str(run())))
    monkeypatch.setattr(sys, "argv", ["shiftproof", *(() if callable(run) else run)])
    try:
        main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    said = capsys.readouterr()
    return status, f"\n{said.err}" if status else said.out + said.err


@pytest.mark.parametrize("name", TABLE)
def test_bad_input(name, place, monkeypatch, capsys):
    row = TABLE[name]
    if row.needs:
        pytest.importorskip(row.needs)
    row.make()
    before = kept(place, row)
    with ordinary_rights():
        status, said = outcome(row.run, monkeypatch, capsys)
    assert status == row.status, said
    assert "Traceback" not in said
    for part in row.says:
        assert part in " ".join(said.split()), said
    if status == 1:
        assert re.search(r"^  (expected|fix|known) ", said, re.MULTILINE), said
    assert said.isprintable() or not set(said) & set("\x1b\x07\u202e")
    assert kept(place, row) == before


def kept(place: Path, row: Row) -> dict[str, bytes | str]:
    """Return what is in a folder, but for what a row may leave."""
    return {name: content for name, content in snapshot(place).items() if not name.startswith(row.leaves)}


NAMES = [
    "<img src=x onerror=alert(1)>",
    "'\"><script>alert(1)<",
    "[red]cat",
    "{{ 7 * 7 }}",
    "\x1b[31mred\x07",
    "\u202etac",
    "new\nline",
    os.fsdecode(b"not utf-8 \xff"),
]
"""Names that a page, a terminal or a template could take for commands."""


def test_hostile_names_reach_the_report_and_the_terminal_as_text(place, monkeypatch, capsys):
    for name in NAMES:
        put(f"pho'<b>tos\x1b/{name}/{name}.png", picture())
        put(f"pho'<b>tos\x1b/{name}/{name} bad.png", b"no image")
    layers = f"nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, {len(NAMES)})"
    put(f"{NAMES[0]}.py", f"from torch import nn\ndef build():\n    return nn.Sequential({layers})\n")
    given = ("--model", f"{NAMES[0]}.py", "--data", "pho'<b>tos\x1b", "--on-bad-file", "skip", "--out", "out")
    sections = ("--sections", "clean,corruptions", "--shifts", "contrast", "--severities", "5")
    status, said = outcome(("audit", *given, *sections), monkeypatch, capsys)
    assert status == 0, said
    assert not set(said) & set(STEERING)
    report = (place / "out" / "report.html").read_text("utf-8")
    assert not set(report) & set(STEERING)
    page = Page()
    page.feed(report)
    assert "pho'<b>tos" in page.text
    assert f"{NAMES[0]}.py" in page.text
    assert not page.handlers
    assert page.scripts <= {None, "application/json"}
    assert json.loads((place / "out" / "results.json").read_text("utf-8"))["data"].startswith("pho'<b>tos")


def test_folders_with_hostile_names_are_copied(place, monkeypatch, capsys):
    for name in NAMES:
        put(f"photos/{name}/{name}.png", picture())
    status, said = outcome(CORRUPT, monkeypatch, capsys)
    assert status == 0, said
    assert sorted(load_data("out").classes) == sorted(NAMES)
    json.loads((place / "out" / "manifest.json").read_text("utf-8"))


STEERING = "\x1b\x07\u202e"


class Page(HTMLParser):
    """What a browser would make of a page: its text, the types of its scripts, and attributes that run code."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.scripts: set[str | None] = set()
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.scripts.add(dict(attrs).get("type"))
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data
