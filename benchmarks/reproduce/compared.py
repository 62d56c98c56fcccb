"""Batch statistics of every size beside the model as it is, under one corruption a task; runs resume.

A corruption is made once for all ways of normalising. Small batches go through the network many at a time, each with
its own statistics: that is what they would be given one after another, in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.pool import check_time
from benchmarks.reproduce.normalised import GROUP, load_trained
from shiftproof import DataSpec, load_data, load_model, shifts
from shiftproof.adapters import adapt
from shiftproof.adapters.norms import AdaptiveBatchNorm
from shiftproof.data import Dataset
from shiftproof.measures import mean_distance
from shiftproof.models import collect_statistics, source_statistics
from shiftproof.runs import Cell, Executor, Inline, Json, Plan, Processes, Row, Store, WorkerPool, drive
from shiftproof.streams import Mixed

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IMAGENET = "imagenet-"
VIT = "vit"
IMAGENET_SIDE = 224
AT_A_TIME = {None: 1_000, IMAGENET_SIDE: 200}
"""Images of one pass, by their side; a batch that is larger goes through whole."""


@dataclass(frozen=True)
class Network:
    """A network by its part of the table, with the folder of data, and the images that it is measured on.

    `trained` is the folder of one that was trained for the table.
    """

    part: str
    data: Path
    device: str
    trained: Path | None = None

    @property
    def side(self) -> int | None:
        """The side that images are cut to; None as they are."""
        return IMAGENET_SIDE if self.part.startswith(IMAGENET) else None

    @property
    def images(self) -> DataSpec:
        """CIFAR-10's test images, or the sample of ImageNet."""
        path = self.data / ("cifar10/test.npz" if self.side is None else "imagenet-sample")
        return DataSpec(str(path), size=self.side)

    @property
    def has_statistics(self) -> bool:
        """Whether it has statistics of batches to adapt; group and layer normalisation have none."""
        return self.part not in (VIT, GROUP)

    def load(self) -> nn.Module:
        """Return it, loaded once in a process."""
        return _loaded(self)


@cache
def _loaded(network: Network) -> nn.Module:
    data, part = network.data, network.part
    if network.trained is not None:
        return load_trained(part, network.trained, network.device)
    if part == VIT:
        model = load_model("cifar10-vit", device=network.device)
    elif network.side is None:
        weights = data / "cifar10-resnets" / f"{part}.safetensors"
        model = load_model(part, weights=weights, mean=MEAN, std=STD, device=network.device)
    else:
        model = load_model(f"{data / 'models.py'}:{part.removeprefix(IMAGENET)}", device=network.device)
    if not isinstance(model, nn.Module):
        raise TypeError("a network of this table is a module")
    return model


class Way(NamedTuple):
    """Batches of so many images, normalised with their statistics and a prior; no images: the model as it is."""

    batch: int
    prior: float

    @property
    def name(self) -> str:
        """What rows call it."""
        return f"{self.batch} {self.prior:g}"


WITHOUT = Way(0, 0)


@dataclass(frozen=True)
class GroupStatistics:
    """Normalise every `size` images of an input with their own statistics, mixed with the source's as `prior` more."""

    size: int
    prior: float

    def normalise(self, norm: AdaptiveBatchNorm, x: Tensor) -> Tensor:
        """Scale each group by itself."""
        mean, var = self.statistics(norm, x)
        scale = (var + norm.eps).rsqrt() * (1 if norm.weight is None else norm.weight)
        offset = -mean * scale if norm.bias is None else norm.bias - mean * scale
        shape = (len(mean), 1, x.shape[1], *[1] * (x.ndim - 2))
        groups = x.view(len(mean), self.size, *x.shape[1:])
        return torch.addcmul(offset.view(shape), groups, scale.view(shape)).view(x.shape)

    def statistics(self, norm: AdaptiveBatchNorm, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return those of each group, [groups, C]."""
        groups = x.view(-1, self.size, *x.shape[1:])
        over = [1, *range(3, groups.ndim)]
        mean = groups.mean(over, keepdim=True)
        var = (groups - mean).square_().mean(over)
        mean, share = mean.view(var.shape), self.prior / (self.prior + self.size)
        if norm.source_mean is None or norm.source_var is None:
            return mean, var
        return torch.lerp(mean, norm.source_mean, share), torch.lerp(var, norm.source_var, share)


@dataclass(frozen=True)
class Bench:
    """What a worker needs: a network, how many images, in the order of a seed, and how many give statistics."""

    network: Network
    images: int
    seed: int
    statistics: int
    stop_at: float | None = None

    def __call__(self) -> Corruptions:
        """Return what measures in this process."""
        return Corruptions(self)

    @property
    def data(self) -> Dataset:
        """The images, in mixed order."""
        return load_data(self.network.images).take(self.images, seed=self.seed)


class Corruptions:
    """A worker of `runs`: which images are right under a corruption, or a mixture of them, by way of normalising."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.device = bench, bench.network.device
        self.step = AT_A_TIME[bench.network.side]
        self.data, self.model = bench.data, bench.network.load()
        batches = list(self.data.batches(self.step, device=self.device))
        self.images, self.keys = torch.cat([batch.inputs for batch in batches]), torch.cat([b.keys for b in batches])
        self.labels = torch.cat([cast(Tensor, batch.labels) for batch in batches])
        self.normalising = Normalising(self.model) if bench.network.has_statistics else None

    def measure(self, cell: Cell) -> Row:
        """Return the right answers of every way, and under one corruption the distance of statistics."""
        check_time(self.bench.stop_at)
        ways = [Way(*cast("list[float]", way)) for way in cast("list[Json]", cell["ways"])]  # type: ignore[arg-type]
        if cell.kind == "mixture":
            return self._mixture(cell, ways)
        shift = shifts.parse(cast(str, cell["shift"]))
        pairs = zip(torch.split(self.images, self.step), torch.split(self.keys, self.step), strict=True)
        shifted = torch.cat([shift(images, keys) for images, keys in pairs])
        right: Row = {"right": {way.name: self._right(shifted, self.labels, way) for way in ways}}
        if self.normalising is None:
            return right
        some = torch.split(shifted[: self.bench.statistics], self.step)
        return {"distance": self.normalising.distance(some), **right}

    def _mixture(self, cell: Cell, ways: Sequence[Way]) -> Row:
        """Let every image come under a corruption of its own; answers are in the order of the images' keys."""
        size = max(way.batch for way in ways) or self.step
        stream = Mixed(
            self.data,
            shifts=[shifts.parse(label) for label in cast("list[str]", cell["shifts"])],
            length=len(self.data),
            seed=cast(int, cell["round"]),
            batch_size=size,
            device=self.device,
        )
        batches = list(stream)
        images, labels = (
            torch.cat([batch.inputs for batch in batches]),
            torch.cat([cast(Tensor, batch.labels) for batch in batches]),
        )
        order = torch.cat([batch.keys for batch in batches]).argsort()
        return {"right": {way.name: self._right(images, labels, way, order) for way in ways}}

    @torch.no_grad()
    def _right(self, images: Tensor, labels: Tensor, way: Way, order: Tensor | None = None) -> str:
        """Return which answers are right, one bit an image, as hexadecimal digits."""
        whole = len(images) // (way.batch or 1) * (way.batch or 1)
        step = max(1, self.step // (way.batch or 1)) * (way.batch or 1)
        parts = [part for part in (*torch.split(images[:whole], step), images[whole:]) if len(part)]
        answers = torch.cat([self._answers(part, way) for part in parts])
        hits = answers == labels
        return np.packbits((hits if order is None else hits[order]).cpu().numpy()).tobytes().hex()

    def _answers(self, images: Tensor, way: Way) -> Tensor:
        if way.batch == 0 or self.normalising is None:
            return cast(Tensor, self.model(images)).argmax(1)
        return self.normalising.logits(images, GroupStatistics(min(way.batch, len(images)), way.prior)).argmax(1)


class Normalising:
    """A network with batch normalisation, by whatever statistics, and how far those of its inputs have moved."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.adapter, self.source = model, adapt(model, "bn"), source_statistics(model)

    def distance(self, batches: Sequence[Tensor]) -> float:
        """Return the distance of the statistics of some batches from the source's."""
        return mean_distance(self.source, collect_statistics(self.model, batches))

    def logits(self, images: Tensor, statistics: GroupStatistics) -> Tensor:
        """Return logits of images that are normalised group by group."""
        with self.adapter.normalising(statistics):
            return self.adapter.run(images)


@dataclass
class Measured:
    """Runs of one network, each task by one of the processes that stay until all is measured."""

    bench: Bench
    out: Path
    pool: WorkerPool

    def under(self, labels: Sequence[str], ways: Sequence[Way]) -> list[Row]:
        """Return a row for every corruption."""
        return self._rows([Cell("corruption", shift=label, ways=[list(way) for way in ways]) for label in labels])

    def mixed(self, labels: Sequence[str], ways: Sequence[Way], rounds: int) -> list[Row]:
        """Return a row for every pass over the images, each under a corruption drawn anew."""
        told = [list(way) for way in ways]
        return self._rows([Cell("mixture", shifts=list(labels), round=each, ways=told) for each in range(rounds)])

    def _rows(self, cells: Sequence[Cell]) -> list[Row]:
        prints = {"data": self.bench.data.fingerprint, "network": self.bench.network.part}
        settings = {"images": str(self.bench.images), "seed": str(self.bench.seed)}
        with Store(self.out, {"corruptions": "1"}) as store:
            found = drive(Plan(tuple(cells), {**prints, **settings}), store, self.pool, essential="A corruption")
        return [cast(Row, result.row) for result in found]

    def right(self, row: Row, way: Way) -> NDArray[np.bool_]:
        """Return which images are right, [N]."""
        bits = np.frombuffer(bytes.fromhex(cast("Mapping[str, str]", row["right"])[way.name]), np.uint8)
        return np.unpackbits(bits)[: self.bench.images].astype(bool)


@contextmanager
def measuring(bench: Bench, out: Path, workers: int) -> Iterator[Measured]:
    """Give what measures, in so many processes."""
    executor: Executor = Inline() if workers == 1 else Processes(workers)
    with executor.open(bench) as pool:
        yield Measured(bench, out, pool)
