"""Sun et al. 2022, table 1, at the same n in every column: the five networks that come with the package.

    python -m benchmarks.reproduce.equal_n_table --data data --device cuda --workers 8
    python -m benchmarks.reproduce.equal_n_table --data data --size sample          # a CPU, minutes

The same images, clean and under the corruptions of CIFAR-10-C and C-bar at severity 3, certified with n samples by one
Clopper-Pearson bound (the paper's rule); clean images once more with the paper's n = 100,000; and where FourierMix with
HCR differs from plain noise with JSD, image by image. Work goes block by block of images, each for all networks, so
that what is done when the time is up is the same for all; only blocks that are whole are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
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
from shiftproof.data import ImageSet
from shiftproof.measures import average_radius
from shiftproof.measures.intervals import difference_interval
from shiftproof.runs import Cell, Executor, Inline, Plan, Processes, Result, Row, Store, drive

SEVERITY = 3
CLEAN = "clean"
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"block": 2, "blocks": 1, "n": 100, "deep_block": 2, "deep_blocks": 1, "deep_n": 200, "corruptions": 2},
    "sample": {
        "block": 10,
        "blocks": 1,
        "n": 100,
        "deep_block": 10,
        "deep_blocks": 1,
        "deep_n": 500,
        "corruptions": 4,
    },
    "short": {
        "block": 40,
        "blocks": 5,
        "n": 10_000,
        "deep_block": 20,
        "deep_blocks": 10,
        "deep_n": 100_000,
        "corruptions": 15,
    },
}
COMPARED = ("gaussian+jsd", "fouriermix+hcr")
Radii = NDArray[np.float64]


def main() -> None:
    """Certify what is missing, and write the figures."""
    options = options_of(
        __doc__, tuple(SIZES), dtype={"default": "float32"}, compile={"action": "store_true", "help": "the networks"}
    )
    size = SIZES[options.size]
    figures = Figures("certificates-equal-n", options, cuts(size, options.dtype))
    bench = Bench(options.data, options.device, options.seed, options.dtype, options.compile, figures.stop_at)
    executor: Executor = Inline() if options.workers == 1 else Processes(options.workers)
    planned = cells(size)
    with Store(options.runs / figures.name, {"equal n": "1"}) as store:
        plan = Plan(tuple(planned), {"data": bench.images.fingerprint, "dtype": options.dtype, "device": bench.device})
        write(figures, size, drive(plan, store, bench, executor=executor))


def cuts(size: Mapping[str, Any], dtype: str) -> list[str]:
    """Say what is smaller than in the paper."""
    images, deep = size["block"] * size["blocks"], size["deep_block"] * size["deep_blocks"]
    return [
        "ResNet-20 trained for 80 epochs (paper: ResNet-110, 200 epochs), one training each",
        f"at most {images} images under each corruption at severity {SEVERITY}, n = {size['n']:,} (paper: 500 images, "
        "five severities, n = 100,000)",
        f"at most {deep} clean images with n = {size['deep_n']:,} (paper: 500)",
        f"networks in {dtype}",
    ]


def cells(size: Mapping[str, Any]) -> list[Cell]:
    """Return a cell for every block of images, condition and network: common corruptions first, then n, then C-bar."""
    conditions = {family: labels_of(family, size) for family in ("common", "bar")}
    made, bar = (
        [_block(block, size["block"], labels, size["n"]) for block in range(size["blocks"])]
        for labels in ([CLEAN, *conditions["common"]], conditions["bar"])
    )
    deep = [_block(block, size["deep_block"], [CLEAN], size["deep_n"]) for block in range(size["deep_blocks"])]
    first = max(1, len(deep) // 2)
    return [cell for some in (*made, *deep[:first], *bar, *deep[first:]) for cell in some]


def labels_of(family: str, size: Mapping[str, Any]) -> list[str]:
    """Return the corruptions of a family that are certified."""
    return [f"{name}@{SEVERITY}" for name in published(family)[: size["corruptions"]]]


def _block(block: int, images: int, labels: Sequence[str], n: int) -> list[Cell]:
    return [
        Cell("certify", recipe=recipe, shift=label, n=n, start=block * images, stop=(block + 1) * images)
        for label in labels
        for recipe in RECIPES
    ]


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


def write(figures: Figures, size: Mapping[str, Any], results: Sequence[Result]) -> None:
    """Write the tables of what is whole."""
    rows: dict[tuple[str, str, int], dict[int, Row]] = {}
    for result in results:
        task = cast(Cell, result.task)
        if result.row is not None:
            key = cast(str, task["recipe"]), cast(str, task["shift"]), cast(int, task["n"])
            rows.setdefault(key, {})[cast(int, task["start"])] = result.row
    common, bar = labels_of("common", size), labels_of("bar", size)
    equal = radii_of(rows, [CLEAN, *common], size["n"])
    reach = Fixed(sigma=SIGMA, n=size["n"]).reach
    if equal:
        further = radii_of(rows, bar, size["n"])
        table = {recipe: row_of(some, further.get(recipe, {}), reach) for recipe, some in equal.items()}
        figures.add("equal", {"n": size["n"], "largest": reach, "recipes": table})
        figures.add("differences", differences(equal, further, reach))
    deep = radii_of(rows, [CLEAN], size["deep_n"])
    if deep:
        limit, images = Fixed(sigma=SIGMA, n=size["deep_n"]).reach, len(next(iter(deep.values()))[CLEAN])
        table = {
            recipe: {
                "deep": mean_of(some[CLEAN], limit),
                **({"equal": mean_of(equal[recipe][CLEAN][:images], reach)} if recipe in equal else {}),
            }
            for recipe, some in deep.items()
        }
        figures.add("clean", {"n": size["deep_n"], "largest": limit, "recipes": table})
    counted = sum(cast(int, row["samples"]) for some in rows.values() for row in some.values())
    figures.add("samples", counted)


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


def row_of(radii: Mapping[str, Radii], bar: Mapping[str, Radii], reach: float) -> dict[str, Any]:
    """Return the row of a recipe: clean, all corruptions, each group of frequencies, C-bar, each corruption."""
    return {
        "clean": mean_of(radii[CLEAN], reach),
        **{name: mean_of(mean_radius(radii, labels), reach) for name, labels in groups(radii).items()},
        **({"bar": mean_of(np.mean(list(bar.values()), axis=0), reach)} if bar else {}),
        "corruptions": {label: float(each.mean()) for label, each in {**radii, **bar}.items() if label != CLEAN},
    }


def groups(labels: Mapping[str, Radii] | Sequence[str]) -> dict[str, list[str]]:
    """Return the corruptions of each group of frequencies, and all of them as `common`."""
    names = [label for label in labels if label != CLEAN]
    found: dict[str, list[str]] = {"common": names}
    for label in names:
        found.setdefault(shifts.facts(label.partition("@")[0])["frequency"], []).append(label)
    return found


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
    equal: Mapping[str, Mapping[str, Radii]], bar: Mapping[str, Mapping[str, Radii]], reach: float
) -> dict[str, Any]:
    """Return, by group, what the second of two recipes has over the first: radius, share certified, radius of those."""
    one, other = (equal[recipe] for recipe in COMPARED)
    sets: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {CLEAN: (one[CLEAN][None], other[CLEAN][None])}
    for name, labels in groups(one).items():
        sets[name] = np.stack([one[label] for label in labels]), np.stack([other[label] for label in labels])
    if bar:
        sets["bar"] = tuple(np.stack(list(bar[recipe].values())) for recipe in COMPARED)  # type: ignore[assignment]
    return {name: difference(*pair, reach) for name, pair in sets.items()}


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
