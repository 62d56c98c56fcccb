"""A folder of small images of three classes, and networks that have learnt to tell them apart, but not perfectly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

CLASSES = ("cat", "dog", "ship")
IMAGENET: tuple[list[float], list[float]] = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
HALF: tuple[list[float], list[float]] = ([0.5] * 3, [0.5] * 3)


@dataclass(frozen=True)
class Brought:
    """A model as its user has it: what `load_model` is given, and what the plain path answers to images in [0, 1].

    `folder` says which of the folders it is measured on: its classes are named, numbered, or numbered 1, 3, 5.
    """

    spec: Any
    plain: Callable[[Tensor], Any]
    options: dict[str, Any] = field(default_factory=dict)
    folder: str = "names"


def called(label: int, folder: str) -> str:
    """Return what a class is called in a folder."""
    return {"names": CLASSES[label], "numbers": str(label), "gaps": str(2 * label + 1)}[folder]


class Bench:
    """Images [N, 3, side, side] of three classes, their labels, the folders they are in, and room for files."""

    def __init__(self, root: Path, side: int = 32, images: int = 60) -> None:
        self.root = root
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.arange(images) % len(CLASSES)
        tint = nn.functional.one_hot(self.labels, 3)[..., None, None] * 0.12
        noise = torch.rand(images, 3, side, side, generator=generator) * 0.4
        level = torch.rand(images, 3, 1, 1, generator=generator) * 0.3
        self.images = ((noise + level + tint) * 255).to(torch.uint8).float() / 255
        for number, (image, label) in enumerate(zip(self.images, self.labels.tolist(), strict=True)):
            array = (image.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
            for form, name in ((form, called(label, form)) for form in ("names", "numbers", "gaps")):
                (root / form / name).mkdir(parents=True, exist_ok=True)
                Image.fromarray(array).save(root / form / name / f"{number:03d}.png")

    @property
    def rows(self) -> np.ndarray[Any, Any]:
        """The images as rows of numbers, as scikit-learn's classifiers take them."""
        return np.asarray(self.images.permute(0, 2, 3, 1).flatten(1))

    def upright(self) -> Tensor:
        """Return the places of the images in the order of a folder's files: by class, then by number."""
        return self.labels.argsort(stable=True)

    def trained(self, network: nn.Module, constants: tuple[list[float], list[float]] = IMAGENET) -> nn.Module:
        """Return a network after a few steps on normalised images, in evaluation mode."""
        torch.manual_seed(0)
        optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
        inputs = normalised(self.images, constants)
        for layer in network.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.momentum = 0.5
        network.train()
        for _ in range(12):
            out = network(inputs)
            scores = out if isinstance(out, Tensor) else out.logits if hasattr(out, "logits") else out[0]
            optimizer.zero_grad()
            nn.functional.cross_entropy(scores, self.labels).backward()
            optimizer.step()
        return network.eval()


def normalised(images: Tensor, constants: tuple[list[float], list[float]]) -> Tensor:
    """Normalise images as a training script does."""
    mean, std = (torch.tensor(part).view(1, -1, 1, 1) for part in constants)
    return (images - mean) / std


class Net(nn.Module):
    """A small network of a user's own; `form` is how it returns its scores."""

    def __init__(self, form: Callable[[Tensor, Tensor], Any] | None = None) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 5, 2, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(128, len(CLASSES))
        self.form = form

    def forward(self, images: Tensor) -> Any:
        features = self.body(images).flatten(1)
        scores = self.head(features)
        return scores if self.form is None else self.form(scores, features)
