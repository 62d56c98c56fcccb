"""Schneider et al. 2020: what adapting the statistics of batch normalisation wins, and what distances foretell.

    python -m benchmarks.reproduce.statistics_table --data data --part resnet20 --device cuda
    python -m benchmarks.reproduce.statistics_table --data data --part grid --device cuda

`resnet20` and `resnet56`: CIFAR-10's test images under the fifteen corruptions at five severities, without adaptation,
with partial adaptation (batches of 8, the prior chosen on the four hold-out corruptions) and with full adaptation
(batches of 500, no prior), as in table 1; full adaptation where every batch holds all corruptions; the error against
the distance of statistics, and the regression on hold-out corruptions of table 11. `grid`: batch sizes against
priors, as in table 12, with the prior of Proposition 1 beside the best one measured; `single` is its row of single
images, which takes longest. `imagenet-resnet50` and `imagenet-efficientnet_lite0`: table 1 on a sample of ImageNet,
with what the functions of that name in the data folder's `models.py` build.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.reproduce.compared import IMAGENET, Comparison, Network, Run, workers
from benchmarks.reproduce.record import Figures, options_of
from shiftproof import compare_on_stream, load_data, shifts
from shiftproof.comparisons.methods import compare_methods
from shiftproof.measures import ErrorLine, mce, mean_distance, optimal_prior
from shiftproof.measures.intervals import mean_interval
from shiftproof.models import collect_statistics, source_statistics

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "images": 40, "chosen_on": 8, "chosen_from": (8, 16),
        "corruptions": 2, "severities": (2, 5), "full": 20, "grid_images": 16,
        "batches": (2, 8), "priors": (0, 8), "statistics": 40, "single_images": 4,
    },
    "sample": {
        "images": 200, "chosen_on": 96, "chosen_from": (8, 16, 32),
        "corruptions": 15, "severities": (3,), "full": 50, "grid_images": 64,
        "batches": (8, 64), "priors": (0, 16, 256), "statistics": 100, "single_images": 32,
    },
    "short": {
        "images": 10_000, "chosen_on": 240, "chosen_from": (4, 8, 16, 32, 64, 128),
        "corruptions": 15, "severities": (1, 2, 3, 4, 5), "full": 500,
        "grid_images": 512, "batches": (2, 8, 32, 128, 512), "priors": (0, 1, 4, 8, 16, 32, 64, 128, 256, 1024),
        "statistics": 1_000, "single_images": 256,
    },
}  # fmt: skip
PARTIAL = 8
"""Images of a batch in partial adaptation."""
GRID_SHIFTS = ("gaussian_noise@5", "motion_blur@5", "fog@5", "jpeg_compression@5")
"""One corruption of each category, at the highest severity."""
PARTS = ("resnet20", "resnet56", "grid", "single", "imagenet-resnet50", "imagenet-efficientnet_lite0")


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
        network = Network(options.part, options.data, options.device)
        size = {**size, "images": min(size["images"], len(load_data(network.images)))}
        with workers(options.workers) as run:
            adaptation(figures, size, network, run)
            distances(figures, size, network, run)


def cuts(part: str, size: Mapping[str, Any]) -> list[str]:
    """Say what is smaller than in the paper."""
    if part in ("grid", "single"):
        images = size["grid_images" if part == "grid" else "single_images"]
        return [f"{images} images under {len(GRID_SHIFTS)} corruptions at severity 5, ResNet-20"]
    if part.startswith(IMAGENET):
        return [
            "1,000 images, one per class (paper: 50,000)",
            f"batches of {size['full']} for full adaptation; priors chosen on {size['chosen_on']} of the images",
            "weights as published, those of convolutions and linear layers rounded to half precision",
        ]
    return [f"batches of {size['full']} for full adaptation; priors chosen on {size['chosen_on']} images"]


def adaptation(figures: Figures, size: Mapping[str, Any], network: Network, run: Run) -> None:
    """Write errors by corruption without, with partial and with full adaptation, and full adaptation to a mixture."""
    names = shifts.names("common")[: size["corruptions"]]
    prior = chosen_prior(figures, size, network, run)
    out: dict[str, Any] = {"without": {}}
    for way, batch, held in (("full", size["full"], 0), ("partial", PARTIAL, prior)):
        if figures.late:
            return
        found = run(comparison(figures, network, labels(names, size), way, size["images"], batch, held))
        for method, called in (("source", "without"), ("bn", way)):
            errors = {name: [found.errors[method, label] for label in labels([name], size)] for name in names}
            reach = mean_interval(1 - found.right[method])
            out[called] = {
                "error": float(np.mean(list(errors.values()))),
                "interval": None if reach is None else [reach.low, reach.high],
                "errors": errors,
            }
        against = {} if network.side else {"baseline": out["without"]["errors"]}
        for called in (way, *(("without",) if network.side else ())):
            out[called]["mce"] = mce(out[called]["errors"], **against)
        figures.add("adaptation", out)
    figures.add("mixture", mixture(figures, size, network))


def comparison(
    figures: Figures, network: Network, under: Sequence[str], name: str, images: int, batch: int, prior: int
) -> Comparison:
    """Return a comparison that has its run directory by its name."""
    options = figures.options
    out = options.runs / figures.name / name
    return Comparison(network, tuple(under), images, batch, prior, options.seed, out)


def labels(names: Sequence[str], size: Mapping[str, Any]) -> list[str]:
    """Return corruptions at every severity."""
    return [f"{name}@{severity:g}" for name in names for severity in size["severities"]]


def chosen_prior(figures: Figures, size: Mapping[str, Any], network: Network, run: Run) -> int:
    """Return the prior of the least error under the hold-out corruptions in batches of eight, and write all errors."""
    under, errors = labels(shifts.names("holdout"), size), {}
    for prior in size["chosen_from"]:
        found = run(comparison(figures, network, under, "prior", size["chosen_on"], PARTIAL, prior))
        errors[prior] = float(np.mean([found.errors["bn", label] for label in under]))
    chosen: int = min(errors, key=lambda prior: errors[prior])
    figures.add("prior", {"chosen": chosen, "errors": {str(prior): error for prior, error in errors.items()}})
    return chosen


def mixture(figures: Figures, size: Mapping[str, Any], network: Network) -> dict[str, Any]:
    """Return errors where every image of a batch has a corruption and a severity of its own, drawn at random."""
    options = figures.options
    found = compare_on_stream(
        network.load(),
        network.images,
        stream="mixed",
        methods=["bn"],
        shifts=list(shifts.names("common")[: size["corruptions"]]),
        options={"prior": 0},
        images=size["images"] * size["corruptions"],
        batch_size=size["full"],
        device=options.device,
        seed=options.seed,
        out=options.runs / figures.name / "mixture",
    )
    errors = {called: 1 - found.traces[name].accuracy for name, called in (("source", "without"), ("bn", "full"))}
    return {**errors, "images": size["images"] * size["corruptions"]}


def distances(figures: Figures, size: Mapping[str, Any], network: Network, run: Run) -> None:
    """Write the distance of statistics under every corruption, and what lines through hold-out corruptions foretell."""
    options, model = figures.options, network.load()
    names = (*shifts.names("common")[: size["corruptions"]], *shifts.names("holdout"))
    found = run(comparison(figures, network, labels(names, size), "full", size["images"], size["full"], 0))
    count = size["statistics"] // (4 if network.side else 1)
    some, source = load_data(network.images).take(count, seed=options.seed), source_statistics(model)
    points: dict[str, list[list[float]]] = {}
    for name in names:
        for severity in size["severities"]:
            shift = shifts.parse(f"{name}@{severity:g}")
            shifted = [shift(batch.inputs, batch.keys) for batch in some.batches(100, device=options.device)]
            distance = mean_distance(source, collect_statistics(model, shifted))
            error = found.errors["source", shift.label]
            points.setdefault(name, []).append([distance, error])
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
