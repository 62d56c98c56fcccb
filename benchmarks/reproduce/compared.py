"""Batch statistics beside the model as it is, under many corruptions, by processes that stay; runs resume."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import nn

from shiftproof import DataSpec, load_model
from shiftproof.comparisons.methods import compare_methods

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET = "imagenet-"
IMAGENET_SIDE = 224


@dataclass(frozen=True)
class Network:
    """A network by its part of the table, with the folder of data, and the images that it is measured on."""

    part: str
    data: Path
    device: str

    @property
    def side(self) -> int | None:
        """The side that images are cut to; None as they are."""
        return IMAGENET_SIDE if self.part.startswith(IMAGENET) else None

    @property
    def images(self) -> DataSpec:
        """CIFAR-10's test images, or the sample of ImageNet."""
        path = self.data / ("cifar10/test.npz" if self.side is None else "imagenet-sample")
        return DataSpec(str(path), size=self.side)

    def load(self) -> nn.Module:
        """Return it, loaded once in a process."""
        return _loaded(self)


@cache
def _loaded(network: Network) -> nn.Module:
    data, part = network.data, network.part
    if network.side is None:
        weights = data / "cifar10-resnets" / f"{part}.safetensors"
        model = load_model(part, weights=weights, mean=MEAN, std=STD, device=network.device)
    else:
        model = load_model(f"{data / 'models.py'}:{part.removeprefix(IMAGENET)}", device=network.device)
    if not isinstance(model, nn.Module):
        raise TypeError("a network with batch normalisation is a module")
    return model


@dataclass(frozen=True)
class Comparison:
    """Images in batches of a size under corruptions, the model as it is beside batch statistics with a prior."""

    network: Network
    under: tuple[str, ...]
    images: int
    batch: int
    prior: int
    seed: int
    out: Path

    def run(self) -> Answers:
        """Return errors, and which images are right; what was measured before is read."""
        found = compare_methods(
            self.network.load(),
            self.network.images,
            shifts=self.under,
            methods=["bn"],
            options={"prior": self.prior},
            images=self.images,
            batch_size=self.batch,
            device=self.network.device,
            seed=self.seed,
            out=self.out,
        )
        errors = {key: 1 - accuracy.value for key, accuracy in found.accuracies.items()}
        return Answers(errors, right(found.predictions))

    def parts(self, count: int) -> list[Comparison]:
        """Return it in so many parts of fewer corruptions, each with a run directory of its own."""
        chunks = [self.under[place::count] for place in range(count)]
        return [
            replace(self, under=chunk, out=self.out / f"part{place}of{count}")
            for place, chunk in enumerate(chunks)
            if chunk
        ]


class Answers(NamedTuple):
    """Errors by method and corruption, and by method the share of corruptions under which each image is right, [N]."""

    errors: Mapping[tuple[str, str], float]
    right: Mapping[str, NDArray[np.float64]]


Run: TypeAlias = Callable[[Comparison], Answers]


@contextmanager
def workers(count: int) -> Iterator[Run]:
    """Give what runs a comparison, in so many processes that stay, as setting one up takes longer than some runs."""
    if count == 1:
        yield Comparison.run
        return
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:

        def run(comparison: Comparison) -> Answers:
            parts = comparison.parts(count)
            found = list(pool.map(Comparison.run, parts))
            shares = [len(part.under) / len(comparison.under) for part in parts]
            joined = {
                method: np.asarray(sum(share * each.right[method] for share, each in zip(shares, found, strict=True)))
                for method in ("source", "bn")
            }
            return Answers({key: error for each in found for key, error in each.errors.items()}, joined)

        yield run


def right(predictions: Path) -> dict[str, NDArray[np.float64]]:
    """Return the share of corruptions under which each image is right, by method, [N]."""
    hits: dict[str, dict[str, list[bool]]] = {method: defaultdict(list) for method in ("source", "bn")}
    with predictions.open(newline="") as file:
        for row in csv.DictReader(file):
            for method, some in hits.items():
                some[row["position"]].append(row[method] == row["label"])
    return {method: np.array([np.mean(each) for each in some.values()]) for method, some in hits.items()}
