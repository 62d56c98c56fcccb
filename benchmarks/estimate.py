"""Estimation without labels: what it costs, and how far it is from the truth.

python benchmarks/estimate.py speed                      invariance, monitor and estimate against forward passes
python benchmarks/estimate.py table --natural FILE.npz   every estimator over the 75 common corruptions of the demo
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from shiftproof import load_model, shifts
from shiftproof.data import ImageSet, load_images
from shiftproof.estimators import Calibration, Estimator, Monitor, neighborhood_invariance
from shiftproof.estimators.evidence import observe, shifted
from shiftproof.estimators.fitting import begin, copies_of, finish
from shiftproof.estimators.neighborhoods import chosen
from shiftproof.estimators.source_copies import Copy
from shiftproof.measures.estimation import kendall_tau, mean_absolute_error, r_squared, spearman_rho


def main() -> None:
    """Run one of the two parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("speed", "table"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=None, help="images per forward pass; 128 on a CPU, 1024 on CUDA")
    parser.add_argument("--images", type=int, default=1000, help="images of each cell of the table")
    parser.add_argument("--viewed", type=int, default=200, help="of how many of them views are taken")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--natural", help="a labelled .npz of a natural shift, as the last row of the table")
    options = parser.parse_args()
    options.batch = options.batch or (128 if options.device == "cpu" else 1024)
    (speed if options.part == "speed" else table)(options)


def speed(options: argparse.Namespace) -> None:
    """Print throughput as shares of a plain forward pass over the same number of images, measured in turn."""
    model = load_model("demo", device=options.device)
    inputs = _images(load_images("demo"), options.device)
    n = 10
    some = inputs[: 256 if options.device == "cpu" else 1000]
    many = some.repeat(n + 1, 1, 1, 1)

    def forward() -> None:
        with torch.no_grad():
            for part in torch.split(many, options.batch):
                model(part)

    plain, invariance = _in_turn(
        [forward, lambda: neighborhood_invariance(model, some, n=n, batch_size=options.batch)], options
    )
    print(f"{'forward pass':<34}{len(many) / plain:>12,.0f} images/s")
    print(f"{'neighborhood_invariance, n=10':<34}{len(many) / invariance:>12,.0f} images/s  {plain / invariance:.2f}")
    batches = torch.split(inputs.repeat(4, 1, 1, 1), options.batch)
    monitor = Monitor(model, _calibration(model))

    def serve() -> None:
        with torch.no_grad():
            for part in batches:
                model(part)

    def watched() -> None:
        for part in batches:
            monitor(part)

    plain, observed = _in_turn([serve, watched], options)
    print(f"\n{'serving':<34}{plain * 1e3 / len(batches):>12.2f} ms a batch of {options.batch}")
    print(f"{'serving under a Monitor':<34}{observed * 1e3 / len(batches):>12.2f} ms  {observed / plain:.2f} times")
    estimator = Estimator.fit(model, load_images("demo-source"), images=60, batch_size=options.batch)
    estimator(inputs[:100])  # what is known of families is summed up once, with the first answer
    whole = torch.split(inputs, options.batch)

    def passes() -> None:
        with torch.no_grad():
            for part in whole:
                model(part)

    plain, estimated = _in_turn([passes, lambda: estimator(inputs)], options)
    print(f"\n{f'forward passes of {len(inputs):,} images':<34}{plain:>12.2f} s")
    print(f"{'an estimate for them':<34}{estimated:>12.2f} s   {estimated / plain:.2f} times")


def table(options: argparse.Namespace) -> None:
    """Print estimated against true accuracy over the common corruptions, by estimator."""
    model = load_model("demo", device=options.device)
    estimator = Estimator.fit(model, load_images("demo-source"), batch_size=options.batch)
    calibration = estimator.calibration
    data = load_images("demo").take(options.images).in_memory()
    labels = [f"{name}@{severity}" for name in shifts.names("common") for severity in range(1, 6)]
    sets = [_measured(estimator, data, label, options) for label in labels]
    natural = None
    if options.natural:
        natural = _measured(estimator, load_images(options.natural), "natural", options)
    truth = [one.accuracy for one in sets]
    chosen = [calibration.say("auto", one.statistics).method for one in sets]
    print(f"{len(sets)} sets of {len(data)} images, accuracies {min(truth):.3f} to {max(truth):.3f}")
    last = "" if natural is None else f" natural shift (true {100 * natural.accuracy:.1f}%) |"
    print(f"| estimator | MAE, points | Spearman | Kendall | R2 | points off on unseen families |{last}")
    print("|---|---:|---:|---:|---:|---:|" + ("---:|" if natural else ""))
    for method in ("auto", *sorted(calibration.errors, key=lambda name: calibration.errors[name])):
        used = chosen if method == "auto" else [method] * len(sets)
        found = [calibration.predict(name, one.statistics) for name, one in zip(used, sets, strict=True)]
        row = [
            method,
            f"{100 * mean_absolute_error(found, truth):.1f}",
            f"{spearman_rho(found, truth):.3f}",
            f"{kendall_tau(found, truth):.3f}",
            f"{r_squared(found, truth):.3f}",
            f"{100 * (calibration.auto_error if method == 'auto' else calibration.errors[method]):.1f}",
        ]
        if natural is not None:
            name = calibration.say(method, natural.statistics).method
            row.append(f"{100 * calibration.predict(name, natural.statistics):.1f}")
        print(f"| {' | '.join(row)} |", flush=True)
    print(f"chosen by auto: { {name: chosen.count(name) for name in dict.fromkeys(chosen)} }")


def _measured(estimator: Estimator, data: ImageSet, label: str, options: argparse.Namespace) -> Copy:
    """Return the accuracy and the statistics of a set under a shift."""
    shift = None if label == "natural" else shifts.parse(label)
    found = observe(
        estimator.model,
        shifted(data.batches(options.batch, device=options.device), shift, seed=0),
        neighborhood=chosen(estimator.calibration.neighborhood, data),
        n=estimator.calibration.n,
        share=options.viewed / len(data),
        batch_size=options.batch,
        drift=True,
    )
    return estimator.calibration.copy_of(label, label, found)


def _images(data: ImageSet, device: str) -> torch.Tensor:
    return torch.cat([batch.inputs for batch in data.batches(256, device=device)])


def _calibration(model: Callable[..., Any]) -> Calibration:
    """Return a calibration without shifted copies: the monitor's cost does not depend on these."""
    found = observe(model, load_images("demo-source").batches(250))
    assert found.labels is not None
    begun = begin(found, found.labels)
    return finish(begun, copies_of(begun, None, found))


def _in_turn(works: list[Callable[[], Any]], options: argparse.Namespace) -> list[float]:
    """Return the median seconds of each work, measured in turn; on a CPU nothing else may run beside."""
    cuda = options.device != "cpu"
    spent: list[list[float]] = [[] for _ in works]
    for repeat in range(options.repeats + 1):
        for place, work in enumerate(works):
            if cuda:
                torch.cuda.synchronize()
            start = time.perf_counter()
            work()
            if cuda:
                torch.cuda.synchronize()
            if repeat:  # the first time warms up
                spent[place].append(time.perf_counter() - start)
    return [statistics.median(times) for times in spent]


if __name__ == "__main__":
    main()
