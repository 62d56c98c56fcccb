"""A reader's folder: everything that the commands of the documents name, as small as it can be."""

import json
import pickle
import re
import shutil
import tomllib
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from shiftproof.data import load_data
from shiftproof.models import build_network, load_model
from shiftproof.training.text import train_text_cnn
from tests.audits.suite_files import COMMON, write_arrays, write_folders
from tests.test_plugins import PACKAGE, install

ROOT = Path(__file__).parents[1]
MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
"""
CLASSES = ("cat", "dog")
FOLDERS = ("photos", "new-photos", "validation", "labelled", "unlabelled", "train", "test", "day", "dusk", "night")
PHOTOS = 20
TEXTS = {"good": ("a great film", "great fun", "superb"), "bad": ("a dull film", "no fun", "lousy")}


def write_reader_files(folder: Path) -> Path:
    """Write models, photos, tables, arrays, texts and published sets; returns the folder."""
    for name in ("model", "old", "new", "other"):
        (folder / f"{name}.py").write_text(f"{MODEL}\n# {name}\n")
    model = load_model(f"{folder / 'model.py'}:build")
    assert isinstance(model, torch.nn.Module)
    torch.save(model.state_dict(), folder / "state_dict.pth")
    weights = build_network("resnet56").state_dict()
    plain = {name: tensor for name, tensor in weights.items() if not name.startswith("normalize")}
    save_file(plain, folder / "resnet56.safetensors")
    (configuration,) = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs/guide/audit.md").read_text(), re.M | re.S)
    (folder / "audit.toml").write_text(configuration)
    _photos(folder)
    _arrays(folder)
    _texts(folder)
    write_arrays(folder / "CIFAR-10-C", len(CLASSES))
    write_folders(folder / "ImageNet-C", CLASSES, COMMON, side=32)
    return folder


def install_plugin(folder: Path) -> None:
    """Put the package of `tests/plugin` where Python finds it that is started in the folder."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    shutil.copytree(PACKAGE / "src", folder, dirs_exist_ok=True)
    install(folder, project["name"], project["entry-points"])


def _photos(folder: Path) -> None:
    """Write photos of two classes, the cameras that took them, and CamVid's layout."""
    for place, name in enumerate(FOLDERS):
        for number in range(PHOTOS):
            path = folder / name / CLASSES[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (32, 32), (10 * number, 20 * place, 200 - 10 * number)).save(path)
    rows = [f"{CLASSES[number % 2]}/{number}.png,{'AB'[number % 2]}" for number in range(PHOTOS)]
    (folder / "cameras.csv").write_text("\n".join(["file,camera", *rows]) + "\n")
    for part in ("train", "test"):
        for number in range(4):
            pixels = np.full((32, 48, 3), 60 * number, np.uint8)
            maps = np.repeat(np.arange(4, dtype=np.uint8), 8)[:, None].repeat(48, 1)
            for inside, content in ((part, pixels), (f"{part}annot", maps)):
                path = folder / "CamVid" / inside / f"0001TP_{number:06}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(content).save(path)


def _arrays(folder: Path) -> None:
    """Write images and outputs as arrays, and CIFAR-10's published files."""
    draw = np.random.default_rng(0)
    labels = np.arange(40) % 10
    (folder / "cifar10").mkdir()
    for name in ("train.npz", "test.npz", "cifar10/test.npz"):
        images = draw.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
        np.savez(folder / name, images=images, labels=labels)
    shutil.copyfile(folder / "test.npz", folder / "test3000.npz")
    logits = 3 * np.eye(10)[labels] + draw.normal(size=(40, 10))
    np.savez(folder / "source.npz", logits=logits, labels=labels)
    np.savez(folder / "target.npz", logits=logits)
    rows = images.transpose(0, 3, 1, 2).reshape(40, -1)
    for name in ("cifar-10-batches-py", "cifar-10"):
        (folder / name).mkdir()
        for file in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            content = {b"data": rows, b"labels": labels.tolist(), b"filenames": [b"a.png"] * 40}
            (folder / name / file).write_bytes(pickle.dumps(content, protocol=2))
        names = [name.encode() for name in load_data("demo").classes or ()]
        (folder / name / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=2))


def _texts(folder: Path) -> None:
    """Write reviews with and without labels, and a classifier of them."""
    rows = [(text, label) for label, texts in TEXTS.items() for text in texts] * 5
    (folder / "reviews.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    (folder / "unlabelled.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text, _ in rows))
    model = train_text_cnn(load_data(str(folder / "reviews.csv")), epochs=2, embedding=8, width=8, hidden=8)
    model.save(folder / "my-classifier")
