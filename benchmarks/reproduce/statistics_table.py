"""Schneider et al. 2020: what adapting the statistics of batch normalisation wins, and what distances foretell.

    python -m benchmarks.reproduce.statistics_table --data data --part resnet20 --device cuda
    python -m benchmarks.reproduce.statistics_table --data data --part grid --device cuda

`resnet20` and `resnet56`: CIFAR-10's test images under the fifteen corruptions at five severities, without adaptation,
with partial adaptation (batches of 8, the prior chosen on the four hold-out corruptions) and with full adaptation
(batches of 500, no prior), as in table 1; full adaptation where every batch holds all corruptions; the error against
the distance of statistics, and the regression on hold-out corruptions of table 11. `grid`: batch sizes against
priors, as in table 12, with the prior of Proposition 1 beside the best one measured; `single` is its row of single
images, which takes longest. `imagenet-resnet50` and `imagenet-efficientnet_lite0`: table 1 on a sample of ImageNet,
with what the functions of that name in the data folder's `models.py` build. `resnet20-group` trains a ResNet-20 with
group normalisation, and `resnet20-batch` one with batch normalisation in the same way; `vit` is the small transformer
of the package, with layer normalisation. Group and layer normalisation leave no statistics to adapt: only the error
without adaptation is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce.compared import IMAGENET, VIT, WITHOUT, Bench, Measured, Network, Way, measuring
from benchmarks.reproduce.normalised import TRAINED, train
from benchmarks.reproduce.record import Figures, options_of
from shiftproof import load_data, shifts
from shiftproof.comparisons.methods import compare_methods
from shiftproof.measures import ErrorLine, mce, optimal_prior
from shiftproof.measures.intervals import mean_interval
from shiftproof.models import collect_statistics, source_statistics
from shiftproof.runs import Row

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "images": 40, "norm_images": 40, "rounds": 1, "chosen_from": (8, 16),
        "corruptions": 2, "severities": (2, 5), "full": 20, "grid_images": 16,
        "batches": (2, 8), "priors": (0, 8), "statistics": 40, "single_images": 4,
        "train": 64, "epochs": 1,
    },
    "sample": {
        "images": 200, "norm_images": 200, "rounds": 1, "chosen_from": (8, 16, 32),
        "corruptions": 8, "severities": (2, 5), "full": 50, "grid_images": 64,
        "batches": (8, 64), "priors": (0, 16, 256), "statistics": 100, "single_images": 32,
        "train": 2_000, "epochs": 4,
    },
    "short": {
        "images": 10_000, "norm_images": 2_000, "rounds": 5, "chosen_from": (4, 8, 16, 32, 64, 128),
        "corruptions": 15, "severities": (1, 2, 3, 4, 5), "full": 500,
        "grid_images": 512, "batches": (2, 8, 32, 128, 512), "priors": (0, 1, 4, 8, 16, 32, 64, 128, 256, 1024),
        "statistics": 1_000, "single_images": 256,
        "train": 50_000, "epochs": 6,
    },
}  # fmt: skip
UNCHANGED = "fog@0"
"""A corruption at no severity: images as they are."""
PARTIAL = 8
"""Images of a batch in partial adaptation."""
GRID_SHIFTS = ("gaussian_noise@5", "motion_blur@5", "fog@5", "jpeg_compression@5")
"""One corruption of each category, at the highest severity."""
PARTS = ("resnet20", "resnet56", *TRAINED, VIT, "grid", "single", "imagenet-resnet50", "imagenet-efficientnet_lite0")


def main() -> None:
    """Measure one part, or what is left of it, and write its figures."""
    options = options_of(__doc__, tuple(SIZES), part={"choices": PARTS, "default": PARTS[0]})
    size = SIZES[options.size]
    figures = Figures(f"statistics-{options.part}", options, cuts(options.part, size))
    if options.part == "grid":
        grid(figures, size, size["batches"], size["grid_images"])
    elif options.part == "single":
        grid(figures, size, (1,), size["single_images"])
    else:
        network = Network(options.part, options.data, options.device, trained(figures, size))
        images = min(images_of(options.part, size), len(load_data(network.images)))
        some = size["statistics"] // (4 if network.side else 1)
        bench = Bench(network, images, options.seed, some, figures.stop_at)
        with measuring(bench, options.runs / figures.name, options.workers) as measured:
            table(figures, size, measured)


def images_of(part: str, size: Mapping[str, Any]) -> int:
    """Return how many images a network is measured on: those that are beside each other for their norms, on fewer."""
    return int(size["norm_images" if part in (*TRAINED, VIT) else "images"])


def trained(figures: Figures, size: Mapping[str, Any]) -> Path | None:
    """Train the network of a part that has to be, and write how; return its folder."""
    options = figures.options
    if options.part not in TRAINED:
        return None
    out = options.runs / figures.name / "model"
    about: dict[str, Any] = {"device": options.device, "seed": options.seed}
    figures.add("training", train(options.part, options.data / "cifar10/train.npz", out, size, **about))
    return Path(out)


def cuts(part: str, size: Mapping[str, Any]) -> list[str]:
    """Say what is smaller than in the paper."""
    if part in ("grid", "single"):
        images = size["grid_images" if part == "grid" else "single_images"]
        return [f"{images} images under {len(GRID_SHIFTS)} corruptions at severity 5, ResNet-20"]
    if part.startswith(IMAGENET):
        return [
            "1,000 images, one per class (paper: 50,000)",
            f"batches of {size['full']} for full adaptation",
            "published weights, convolutions and linear layers rounded to half precision",
        ]
    cifar = "CIFAR-10 at 32 pixels (paper: ImageNet at 224)"
    some = f"{images_of(part, size):,} images"
    if part == VIT:
        return [cifar, some, "the small transformer of the package"]
    known = [f"{cifar}, batches of {size['full']} for full adaptation"]
    if part in TRAINED:
        known += [some, f"ResNet-20 trained for {size['epochs']} epochs on {size['train']:,} images, one training each"]
    return known


def table(figures: Figures, size: Mapping[str, Any], measured: Measured) -> None:
    """Write the table of one network: its prior, its errors, its distances, and its errors in a mixture."""
    names, held = shifts.names("common")[: size["corruptions"]], shifts.names("holdout")
    clean(figures, measured)
    if not measured.bench.network.has_statistics:
        unadapted(figures, size, measured, names)
        return
    tried = {prior: Way(PARTIAL, prior) for prior in size["chosen_from"]}
    rows = measured.under(labels(held, size), [WITHOUT, *tried.values()])
    prior = chosen_prior(figures, tried, measured, rows)
    if figures.late:
        return
    ways = {"without": WITHOUT, "partial": tried[prior], "full": Way(size["full"], 0)}
    common = measured.under(labels(names, size), list(ways.values()))
    adaptation(figures, measured, ways, {name: common[place] for name, place in places(names, size)})
    distances(figures, measured, {name: [*common, *rows][place] for name, place in places((*names, *held), size)})
    if not figures.late:
        mixture(figures, measured, {name: ways[name] for name in ("without", "full")}, labels(names, size), size)


def clean(figures: Figures, measured: Measured) -> None:
    """Write the error on images as they are."""
    (row,) = measured.under([UNCHANGED], [WITHOUT])
    figures.add("clean", with_interval([measured.right(row, WITHOUT)]))


def unadapted(figures: Figures, size: Mapping[str, Any], measured: Measured, names: Sequence[str]) -> None:
    """Write the errors of a network without statistics of batches, and those in a mixture."""
    ways, under = {"without": WITHOUT}, labels(names, size)
    common = measured.under(under, [WITHOUT])
    adaptation(figures, measured, ways, {name: common[place] for name, place in places(names, size)})
    if not figures.late:
        mixture(figures, measured, ways, under, size)


def labels(names: Sequence[str], size: Mapping[str, Any]) -> list[str]:
    """Return corruptions at every severity."""
    return [f"{name}@{severity:g}" for name in names for severity in size["severities"]]


def places(names: Sequence[str], size: Mapping[str, Any]) -> list[tuple[str, slice]]:
    """Return where the severities of each corruption are among the labels of all."""
    count = len(size["severities"])
    return [(name, slice(count * place, count * (place + 1))) for place, name in enumerate(names)]


def chosen_prior(figures: Figures, tried: Mapping[int, Way], measured: Measured, rows: Sequence[Row]) -> int:
    """Return the prior of the least error under the hold-out corruptions in batches of eight, and write all errors."""
    errors = {prior: error_of([measured.right(row, way) for row in rows]) for prior, way in tried.items()}
    chosen = min(errors, key=lambda prior: errors[prior])
    figures.add("prior", {"chosen": chosen, "errors": {str(prior): error for prior, error in errors.items()}})
    return chosen


def adaptation(
    figures: Figures, measured: Measured, ways: Mapping[str, Way], rows: Mapping[str, Sequence[Row]]
) -> None:
    """Write errors by corruption without, with partial and with full adaptation, the mean with its interval."""
    out: dict[str, dict[str, Any]] = {}
    for called, way in ways.items():
        hits = {name: [measured.right(row, way) for row in some] for name, some in rows.items()}
        out[called] = {
            **with_interval([each for some in hits.values() for each in some]),
            "errors": {name: [error_of([each]) for each in some] for name, some in hits.items()},
        }
        if measured.bench.network.side:
            out[called]["mce"] = mce(out[called]["errors"])
        elif called != "without":
            out[called]["mce"] = mce(out[called]["errors"], baseline=out["without"]["errors"])
    figures.add("adaptation", out)


def mixture(
    figures: Figures, measured: Measured, ways: Mapping[str, Way], under: Sequence[str], size: Mapping[str, Any]
) -> None:
    """Write errors where every image of a batch has a corruption and a severity of its own, drawn at random."""
    rounds = measured.mixed(under, list(ways.values()), size["rounds"])
    errors = {called: with_interval([measured.right(row, way) for row in rounds]) for called, way in ways.items()}
    figures.add("mixture", {**errors, "images": measured.bench.images * size["rounds"]})


def error_of(hits: Sequence[NDArray[np.bool_]]) -> float:
    """Return the mean error."""
    return float(1 - np.mean(hits))


def with_interval(hits: Sequence[NDArray[np.bool_]]) -> dict[str, Any]:
    """Return the mean error over sets of answers to the same images, and its interval over images."""
    reach = mean_interval(1 - np.mean(hits, axis=0))
    return {"error": error_of(hits), "interval": None if reach is None else [reach.low, reach.high]}


def distances(figures: Figures, measured: Measured, rows: Mapping[str, Sequence[Row]]) -> None:
    """Write the distance of statistics under every corruption, and what lines through hold-out corruptions foretell."""
    points = {
        name: [[cast(float, row["distance"]), error_of([measured.right(row, WITHOUT)])] for row in some]
        for name, some in rows.items()
    }
    common = [point for name in shifts.names("common") for point in points.get(name, [])]
    line = ErrorLine.fit(*zip(*common, strict=True))
    figures.add("distances", {"points": points, "r_squared": line.r_squared, "slope": line.slope})
    figures.add("hold-out regression", _regression(points))


def _regression(points: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, dict[str, float]]:
    """Return, by category, the errors that a line through its hold-out corruption foretells, and how far it is off."""
    out: dict[str, dict[str, float]] = {}
    for held in shifts.names("holdout"):
        category = shifts.facts(held)["category"]
        line = ErrorLine.fit(*zip(*points[held], strict=True))
        tested = [
            point
            for name, some in points.items()
            if name not in shifts.names("holdout") and shifts.facts(name)["category"] == category
            for point in some
        ]
        if tested:
            distances, errors = (np.array(column) for column in zip(*tested, strict=True))
            predicted = line.predict(distances)
            out[category] = {
                "true": float(errors.mean()),
                "predicted": float(predicted.mean()),
                "mean absolute difference": float(np.abs(predicted - errors).mean()),
                "slope": line.slope,
                "intercept": line.intercept,
            }
    return out


def grid(figures: Figures, size: Mapping[str, Any], batches: Sequence[int], images: int) -> None:
    """Write the error by batch size and prior, and the best prior as measured and as Proposition 1 has it."""
    options, data = figures.options, str(figures.options.data / "cifar10/test.npz")
    model = Network("resnet20", options.data, options.device).load()
    some, source = load_data(data).take(size["statistics"], seed=options.seed), source_statistics(model)
    targets = []
    for label in GRID_SHIFTS:
        shift = shifts.parse(label)
        shifted = [shift(batch.inputs, batch.keys) for batch in some.batches(500, device=options.device)]
        targets.append(collect_statistics(model, shifted))
    errors: dict[str, dict[str, float]] = {}
    best: dict[str, Any] = {}
    for n in sorted(batches, reverse=True):  # large batches take least time
        for prior in size["priors"]:
            if figures.late:
                return
            found = compare_methods(
                model,
                data,
                shifts=GRID_SHIFTS,
                methods=["bn"],
                images=images,
                batch_size=n,
                options={"prior": prior},
                device=options.device,
                seed=options.seed,
                out=options.runs / figures.name,
            )
            value = {
                method: float(np.mean([1 - found.accuracies[method, label].value for label in GRID_SHIFTS]))
                for method in ("source", "bn")
            }
            errors.setdefault(str(n), {"source": value["source"]})[str(prior)] = value["bn"]
        row = {int(prior): error for prior, error in errors[str(n)].items() if prior != "source"}
        best[str(n)] = {
            "measured": min(row, key=lambda prior: row[prior]),
            "upper bound": _told(optimal_prior(source, *targets, n=n, bound="upper")),
            "lower bound": _told(optimal_prior(source, *targets, n=n, bound="lower")),
        }
        figures.add("errors", errors)
        figures.add("best prior", best)


def _told(prior: float) -> float | str:
    """Return a prior as JSON can hold it; an infinite one keeps the source statistics."""
    return round(prior, 1) if math.isfinite(prior) else "infinite"


if __name__ == "__main__":
    main()
