"""Volpi & Murino 2019, tables 1, 3, 4 and 6: the worst tuple of operations, and training against it.

    python -m benchmarks.reproduce.worst_case_table --data data --part cifar-esda --device cuda
    python -m benchmarks.reproduce.worst_case_table --data data --part faces

`mnist-RECIPE` and `cifar-RECIPE` train a network by erm, rda, rsda or esda and search its worst tuple at random (RS)
and by evolution (ES); MNIST's are also trained by ada, and tested on negatives, on USPS, and image by image under hues
and saturations that fool the network (SAE), CIFAR-10's on ImageNet's images of the same classes. A run with another
seed than 0 (`--seed 1`) has a file of figures of its own. `cifar-RECIPE-mixed` gives each batch eight tuples, where the
paper gives it one. `faces` searches OpenCV's face detector, which needs `opencv-python-headless<5` and scikit-image.
CamVid, table 5, is `segmentation_table.py`.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

import shiftproof
from benchmarks.reproduce.record import Figures, options_of
from shiftproof import shifts
from shiftproof.comparisons.methods import compare_methods
from shiftproof.data import ImageSet, load_images
from shiftproof.models import device_of, logits
from shiftproof.searchers import semantic_examples

RECIPES = ("erm", "rda", "rsda", "esda")
BASELINE = "ada"
"""The recipe without chains that MNIST's are compared with."""
MIXED = "-mixed"
PARTS = (
    *(f"{task}-{recipe}" for task in ("mnist", "cifar") for recipe in RECIPES),
    *(f"cifar-{recipe}{MIXED}" for recipe in RECIPES[1:]),
    f"mnist-{BASELINE}",
    "faces",
)
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "tiny": {
        "mnist": {
            "model": "convnet", "train": 60, "epochs": 2, "images": 16, "budget": 10, "searched": 16, "trials": 3,
        },
        "cifar": {"model": "convnet", "train": 64, "epochs": 2, "images": 16, "budget": 10, "searched": 16},
        "faces": {"images": 4, "random": 10, "evolution": 10},
    },
    "sample": {
        "mnist": {
            "model": "digits", "train": 1_000, "epochs": 6, "images": 100, "budget": 60, "searched": 50, "trials": 20,
        },
        "cifar": {"model": "convnet", "train": 1_000, "epochs": 6, "images": 100, "budget": 60, "searched": 50},
        "faces": {"images": 10, "random": 20, "evolution": 20},
    },
    "short": {
        "mnist": {
            "model": "digits", "train": 10_000, "epochs": 60, "images": 1_000, "budget": 1_000, "searched": 500,
            "trials": 1_000,
        },
        "cifar": {
            "model": "wrn16_4", "train": 15_000, "epochs": 20, "images": 500, "budget": 1_000, "searched": 300,
        },
        "faces": {"images": 50, "random": 120, "evolution": 120},
    },
}  # fmt: skip
TRAINING: dict[str, dict[str, Any]] = {
    "mnist": {
        "optimizer": "adam",
        "lr": 3e-4,
        "weight_decay": 0.0,
        "framing": "",
        "batch_size": 64,
        "schedule": "cosine",
    },
    "cifar": {"lr": 0.1, "weight_decay": 5e-4, "batch_size": 128, "schedule": "cosine"},
}


class DigitNet(nn.Module):
    """Two 5x5 convolutions and two hidden layers, without normalisation, as in the paper (after Volpi et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(64, 128, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(128 * 64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, 10] of images [N, 3, 32, 32]."""
        logits: Tensor = self.body(2 * images - 1)
        return logits


LENGTHS = {"mnist": 3, "cifar": 5}
TUPLES_PER_BATCH = 8
"""Of the networks trained on mixed batches."""
ONE_RUN = "one run (paper: all images, 200 epochs and more, 3 runs)"
EVERY = 1.0
"""Epochs between two searches of rsda and esda."""


def main() -> None:
    """Train and search one part, or what is left of it, and write its figures."""
    options = options_of(__doc__, tuple(SIZES), part={"choices": PARTS, "default": PARTS[0]})
    task, _, recipe = options.part.removesuffix(MIXED).partition("-")
    per_batch = TUPLES_PER_BATCH if options.part.endswith(MIXED) else 1
    size = SIZES[options.size][task]
    if task == "faces":
        cut = [
            f"{size['images']} small portraits, OpenCV's detector; {size['random']} chains per search (paper: a face "
            "detection API)"
        ]
        faces(Figures("worst-case-faces", options, cut), size)
        return
    cut = [
        f"{size['model']}, {size['train']:,} training images, {size['epochs']} epochs, "
        + ("three runs (paper: all images, a million steps, 6 runs)" if task == "mnist" else ONE_RUN),
        f"searches of {size['budget']:,} chains on {size['images']:,} test images",
        f"rsda and esda search every epoch on {size['searched']:,} training images",
        *([f"{per_batch} chains per batch (paper: one)"] if per_batch > 1 else []),
    ]
    figures = Figures(name_of(options.part, options.seed), options, cut)
    out, train, test = options.runs / figures.name, *sets(options.data, task)
    tuples = {"space": task, "length": LENGTHS[task], "per_batch": per_batch} if recipe in RECIPES[1:] else {}
    searched = {"every": EVERY, "images": size["searched"]} if recipe in ("rsda", "esda") else {}
    torch.manual_seed(options.seed)
    trained = shiftproof.train(
        DigitNet() if size["model"] == "digits" else size["model"],
        train,
        recipe=recipe,
        options={**tuples, **searched},
        images=size["train"],
        epochs=size["epochs"],
        device=options.device,
        seed=options.seed,
        out=out / "model",
        **TRAINING[task],
    )
    model = trained.model.to(options.device)
    figures.add("training", {"recipe": recipe, "loss": trained.loss, "tuples": list(trained.tuples)})
    figures.add("accuracy", {"original": accuracy(model, test), **transfers(options.data, task, model, test)})
    if task == "mnist":
        sae = semantic_examples(
            model, test, images=size["images"], trials=size["trials"], seed=options.seed, device=options.device
        )
        figures.add("SAE", {"clean": sae.clean.value, "worst": sae.accuracy.value})
    searches: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("random", "RS", {}),
        ("evolution", "ES", {}),
        ("evolution", "ES, as published", {"variant": "paper"}),
    )
    for searcher, name, settings in searches:
        if figures.late:
            return
        found = shiftproof.search(
            model,
            test,
            space=task,
            length=LENGTHS[task],
            searcher=searcher,
            budget=size["budget"],
            images=size["images"],
            seed=options.seed,
            device=options.device,
            out=out / name.replace(", ", "-").replace(" ", "-"),
            **settings,
        )
        worst = str(found.to_json()["worst_tuple"])
        helped = {} if task == "mnist" else {"adapted": adapted(model, test, worst, size["images"], options)}
        figures.add(name, {"clean": found.clean, "worst": found.worst, "tuple": worst, **helped})


def name_of(part: str, seed: int) -> str:
    """Return the name of the figures of a part and seed."""
    return f"worst-case-{part}" + (f"-{seed}" if seed else "")


def adapted(model: nn.Module, data: ImageSet, shift: str, images: int, options: Any) -> float:
    """Return the accuracy under a tuple when the statistics of batch normalisation are taken of batches of it."""
    with TemporaryDirectory() as folder:
        found = compare_methods(
            model,
            data,
            shifts=[shift],
            methods=["bn"],
            images=images,
            batch_size=100,
            device=options.device,
            out=folder,
        )
    (label,) = found.shifts
    return found.accuracies["bn", label].value


def sets(data: Path, task: str) -> tuple[ImageSet, ImageSet]:
    """Return the training and the test images; digits at 32 pixels and in colour, as in the paper."""
    if task == "cifar":
        return load_images(data / "cifar10/train.npz"), load_images(data / "cifar10/test.npz")
    train, test = (
        load_images(data / f"mnist/{part}.npz", size=32, color="rgb").in_memory() for part in ("train", "test")
    )
    return train, test


def transfers(data: Path, task: str, model: nn.Module, test: ImageSet) -> dict[str, float]:
    """Return the accuracy on other sets with the same classes."""
    if task == "cifar":
        return {"ImageNet as CIFAR-10": accuracy(model, load_images(data / "imagenet-as-cifar10.npz"))}
    usps = load_images(data / "usps.npz", split="test", size=32, color="rgb")
    return {"negative": accuracy(model, test, "invert"), "USPS": accuracy(model, usps)}


def accuracy(model: nn.Module, data: ImageSet, shift: str | None = None) -> float:
    """Return the share of images, shifted or not, that a model gives their label."""
    right, applied = 0, None if shift is None else shifts.parse(shift)
    for batch in data.batches(500, device=device_of(model)):
        images = batch.inputs if applied is None else applied(batch.inputs, batch.keys)
        right += int((logits(model, images).argmax(1) == torch.as_tensor(batch.labels).cpu()).sum())
    return right / len(data)


def faces(figures: Figures, size: dict[str, Any]) -> None:
    """Search the face detector at random and by evolution, for tuples of three and of five."""
    from examples.search_faces import haar_detector, portraits

    options = figures.options
    for length in (3, 5):
        for searcher, name in (("random", "RS"), ("evolution", "ES")):
            if figures.late:
                return
            found = shiftproof.search(
                haar_detector(),
                portraits(),
                space="faces",
                length=length,
                searcher=searcher,
                budget=size[searcher],
                images=size["images"],
                fitness="detection_rate",
                seed=options.seed,
                out=options.runs / figures.name / f"{name}-{length}",
            )
            worst = found.to_json()["worst_tuple"]
            figures.add(f"{name} N={length}", {"clean": found.clean, "worst": found.worst, "tuple": worst})


if __name__ == "__main__":
    main()
