"""Sun et al. 2022, table 1 and figure 6, at the same n in every column: the five networks that come with the package.

    python -m benchmarks.reproduce.equal_n_table --data data --device cuda --workers 8 --dtype bfloat16
    python -m benchmarks.reproduce.equal_n_table --data data --part waves --size sample      # a CPU, minutes

The same images, certified with n samples by one Clopper-Pearson bound (the paper's rule); and where FourierMix with HCR
differs from plain noise with JSD, image by image. `common`: clean and under the corruptions of CIFAR-10-C at severity
3; `bar`: under those of C-bar; `deep`: clean with the paper's n = 100,000, and the same images with the smaller n;
`waves`: CIFAR-10-F, 192 sets of noise around a frequency. Work goes block by block of images, each for all networks, so
that what is done when the time is up is the same for all; only blocks that are whole are counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.pool import check_time
from benchmarks.reproduce.certificates_table import RECIPES, SIGMA, published
from benchmarks.reproduce.record import Figures, options_of
from shiftproof import load_data, load_model, shifts
from shiftproof.certificates import Fixed, Smoothed
from shiftproof.certificates.frequencies import BANDS, band
from shiftproof.data import ImageSet
from shiftproof.measures import average_radius
from shiftproof.measures.intervals import difference_interval
from shiftproof.runs import Cell, Executor, Inline, Plan, Processes, Result, Row, Store, drive
from shiftproof.shifts.spectral.waves import PowerLaw, frequency_sets

SEVERITY = 3
CLEAN = "clean"
PARTS = ("common", "bar", "deep", "waves")
NAMES = {"common": "certificates-equal-n"}
"""Part -> its file of figures, where it is not named by the part."""
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"blocks": (2, 1), "n": 100, "corruptions": 2, "deep": (2, 1), "deep_n": 200, "waves": (1, 1), "sets": 96},
    "sample": {
        "blocks": (10, 1), "n": 100, "corruptions": 4, "deep": (10, 1), "deep_n": 500, "waves": (5, 1), "sets": 24,
    },
    "short": {
        "blocks": (40, 5), "n": 10_000, "corruptions": 15, "deep": (20, 10), "deep_n": 100_000, "waves": (4, 3),
        "sets": 1,
    },
}  # fmt: skip
"""Images of a block, and blocks, of corruptions, of clean images and of CIFAR-10-F; `sets`: every so manieth of it."""
COMPARED = ("gaussian+jsd", "fouriermix+hcr")
Radii = NDArray[np.float64]


def main() -> None:
    """Certify what is missing, and write the figures."""
    options = options_of(
        __doc__,
        tuple(SIZES),
        part={"choices": PARTS, "default": PARTS[0]},
        dtype={"default": "float32"},
        compile={"action": "store_true", "help": "the networks"},
    )
    work = Work(options.part, SIZES[options.size])
    figures = Figures(NAMES.get(options.part, f"certificates-{options.part}"), options, work.cuts(options.dtype))
    bench = Bench(options.data, options.device, options.seed, options.dtype, options.compile, figures.stop_at)
    executor: Executor = Inline() if options.workers == 1 else Processes(options.workers)
    with Store(options.runs / figures.name, {"equal n": "1"}) as store:
        prints = {"data": bench.images.fingerprint, "dtype": options.dtype, "device": bench.device}
        write(figures, work, drive(Plan(tuple(work.cells()), prints), store, bench, executor=executor))


@dataclass(frozen=True)
class Work:
    """A part of the table at a size: images, conditions, and samples."""

    part: str
    size: Mapping[str, Any]

    @property
    def blocks(self) -> tuple[int, int]:
        """Images of a block, and blocks."""
        block, blocks = self.size.get(self.part, self.size["blocks"])
        return block, blocks

    @property
    def samples(self) -> list[int]:
        """The numbers of samples n, the one of the table last."""
        return [self.size["n"], *([self.size["deep_n"]] if self.part == "deep" else [])]

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """Name of a column -> the conditions that it is the mean of."""
        if self.part == "deep":
            return {CLEAN: [CLEAN]}
        if self.part == "waves":
            return groups_of_waves(list(frequency_sets())[:: self.size["sets"]])
        labels = [f"{name}@{SEVERITY}" for name in published(self.part)[: self.size["corruptions"]]]
        return {"bar": labels} if self.part == "bar" else {CLEAN: [CLEAN], **groups(labels)}

    @property
    def labels(self) -> list[str]:
        """All conditions."""
        return list(dict.fromkeys(label for some in self.groups.values() for label in some))

    def cells(self) -> list[Cell]:
        """Return a cell for every block of images, condition, number of samples and network."""
        block, blocks = self.blocks
        return [
            Cell("certify", recipe=recipe, shift=label, n=n, start=start, stop=start + block)
            for start in range(0, block * blocks, block)
            for n in self.samples
            for label in self.labels
            for recipe in RECIPES
        ]

    def cuts(self, dtype: str) -> list[str]:
        """Say what is smaller than in the paper."""
        n = f"n = {self.samples[-1]:,}"
        severities = f"at severity {SEVERITY}, {n} (paper: 500 images, five severities, n = 100,000)"
        under = {
            "common": f"under each corruption {severities}",
            "bar": f"under each corruption of C-bar {severities}",
            "deep": f"clean, {n} (paper: 500)",
            "waves": f"in each of the {len(self.labels)} sets, {n} (paper: n = 100,000)",
        }
        return [
            "ResNet-20 trained for 80 epochs (paper: ResNet-110, 200 epochs), one training each",
            f"at most {math.prod(self.blocks)} images {under[self.part]}",
            f"networks in {dtype}",
        ]


def groups(labels: Sequence[str]) -> dict[str, list[str]]:
    """Return all corruptions as `common`, and those of each group of frequencies."""
    found: dict[str, list[str]] = {"common": list(labels)}
    for label in labels:
        found.setdefault(shifts.facts(label.partition("@")[0])["frequency"], []).append(label)
    return found


def groups_of_waves(sets: Sequence[PowerLaw]) -> dict[str, list[str]]:
    """Return all sets of noise, those of each band of centres, and those of each power."""
    found: dict[str, list[str]] = {"waves": [each.label for each in sets]}
    found |= {name: [each.label for each in sets if band(each.center, 32) == name] for name in BANDS}
    for each in sorted(sets, key=lambda each: each.alpha):
        found.setdefault(f"alpha {each.alpha:g}", []).append(each.label)
    return {name: labels for name, labels in found.items() if labels}


@dataclass(frozen=True)
class Bench:
    """What a worker needs."""

    data: Path
    device: str
    seed: int
    dtype: str
    compiled: bool
    stop_at: float | None

    def __call__(self) -> Certifier:
        """Return what certifies in this process."""
        return Certifier(self)

    @property
    def images(self) -> ImageSet:
        """The test images, in mixed order."""
        return cast(ImageSet, load_data(self.data / "cifar10/test.npz").take(seed=self.seed))


class Certifier:
    """A worker of `runs`: certified radii of a block of images."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.images = bench, bench.images
        self.smoothed = cache(self._smoothed)

    def _smoothed(self, recipe: str) -> Smoothed:
        model = load_model(f"cifar10-{recipe.replace('+', '-')}", device=self.bench.device)
        dtype: Any = self.bench.dtype
        return Smoothed(model, SIGMA, seed=self.bench.seed, dtype=dtype, compile=self.bench.compiled)

    def measure(self, cell: Cell) -> Row:
        """Return the radius of every image, 0 where it is wrong or abstains."""
        check_time(self.bench.stop_at)
        start, stop, n, label = (cast(Any, cell[name]) for name in ("start", "stop", "n", "shift"))
        (batch,) = self.images.subset(range(start, stop)).batches(stop - start, device=self.bench.device)
        images = batch.inputs
        if label != CLEAN:
            images = shifts.parse(label)(images, batch.keys, seed=self.bench.seed)
        labels = cast(torch.Tensor, batch.labels)
        found = self.smoothed(cast(str, cell["recipe"])).certify(
            images, labels, keys=batch.keys, rule=Fixed(sigma=SIGMA, n=n)
        )
        right = [each.prediction == label for each, label in zip(found, labels.tolist(), strict=True)]
        return {
            "radii": [each.radius * hit for each, hit in zip(found, right, strict=True)],
            "samples": sum(each.samples for each in found),
        }


def write(figures: Figures, work: Work, results: Sequence[Result]) -> None:
    """Write the tables of what is whole."""
    rows: dict[tuple[str, str, int], dict[int, Row]] = {}
    for result in results:
        task = cast(Cell, result.task)
        if result.row is not None:
            key = cast(str, task["recipe"]), cast(str, task["shift"]), cast(int, task["n"])
            rows.setdefault(key, {})[cast(int, task["start"])] = result.row
    *smaller, n = work.samples
    for name, samples in (("equal", n), *(("smaller", each) for each in smaller)):
        radii, reach = radii_of(rows, work.labels, samples), Fixed(sigma=SIGMA, n=samples).reach
        if radii:
            table = {recipe: row_of(some, work.groups, reach) for recipe, some in radii.items()}
            figures.add(name, {"n": samples, "largest": reach, "recipes": table})
        if radii and samples == n:
            figures.add("differences", differences(radii, work.groups, reach))
    figures.add("samples", sum(cast(int, row["samples"]) for some in rows.values() for row in some.values()))


def radii_of(
    rows: Mapping[tuple[str, str, int], Mapping[int, Row]], labels: Sequence[str], n: int
) -> dict[str, dict[str, Radii]]:
    """Return radii by recipe and condition, over the blocks that all of them have."""
    wanted = [rows.get((recipe, label, n), {}) for recipe in RECIPES for label in labels]
    whole = sorted(set.intersection(*(set(some) for some in wanted))) if wanted else []
    if not whole:
        return {}
    return {
        recipe: {
            label: np.array([radius for start in whole for radius in cast("list[float]", rows[key][start]["radii"])])
            for label in labels
            for key in [(recipe, label, n)]
        }
        for recipe in RECIPES
    }


def row_of(radii: Mapping[str, Radii], named: Mapping[str, Sequence[str]], reach: float) -> dict[str, Any]:
    """Return the row of a recipe: the mean of each group of conditions, and each condition."""
    return {
        **{name: mean_of(mean_radius(radii, labels), reach) for name, labels in named.items()},
        "corruptions": {label: float(each.mean()) for label, each in radii.items() if label != CLEAN},
    }


def mean_radius(radii: Mapping[str, Radii], labels: Sequence[str]) -> Radii:
    """Return the mean radius of every image over conditions."""
    return np.mean([radii[label] for label in labels], axis=0)  # type: ignore[no-any-return]


def mean_of(radii: Radii, reach: float) -> dict[str, Any]:
    """Return the average radius and its interval over images."""
    found = average_radius(radii, reach)
    return {
        "acr": found.value,
        "interval": None if found.interval is None else [found.interval.low, found.interval.high],
        "images": found.images,
    }


def differences(
    radii: Mapping[str, Mapping[str, Radii]], named: Mapping[str, Sequence[str]], reach: float
) -> dict[str, Any]:
    """Return, by group, what the second of two recipes has over the first: radius, share certified, radius of those."""
    found = {}
    for name, labels in named.items():
        one, other = (np.stack([radii[recipe][label] for label in labels]) for recipe in COMPARED)
        found[name] = difference(one, other, reach)
    return found


def difference(one: Radii, other: Radii, reach: float) -> dict[str, Any]:
    """Return how two sets of radii [conditions, N] of the same images differ, paired, with the interval over images."""
    told = difference_interval(one.mean(0), other.mean(0), -reach, reach)
    shares = [float((each > 0).mean()) for each in (one, other)]
    depths = [float(each[each > 0].mean()) if (each > 0).any() else 0.0 for each in (one, other)]
    return {
        "difference": float((other - one).mean()),
        "interval": None if told is None else [told.low, told.high],
        "certified": shares,
        "at the largest": [float((each > reach - 1e-4).mean()) for each in (one, other)],
        "radius of those": depths,
        "by more images": (shares[1] - shares[0]) * (depths[0] + depths[1]) / 2,
        "by larger radii": (depths[1] - depths[0]) * (shares[0] + shares[1]) / 2,
    }


if __name__ == "__main__":
    main()
