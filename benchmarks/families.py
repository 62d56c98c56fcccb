"""What must hold of estimates on shifts of families they were not calibrated on.

python -m benchmarks.families --images cifar10/test.npz --natural imagenet-as-cifar10.npz --weights resnet56.safetensors
python -m benchmarks.families --fresh --mnist mnist/ --usps usps.npz --images ...   # sets that nothing was tuned on

More than sixty hand-made test sets in eleven families, none of them a corruption of the catalogue, on three models:
those of `family_sets`, with which the rules were chosen, or with --fresh those of `fresh_sets`, on other images, which
were made afterwards. For each set the calibration has none of its family. With --mnist there is also a network of
digits, trained here in a minute or two, with USPS as its natural shift. Forward passes are made once for each model and
set and kept under --store, so that a run that is stopped resumes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import family_sets, fresh_sets
from benchmarks.family_sets import mixed
from shiftproof import load_data, load_model, train
from shiftproof.data import Batch, Dataset
from shiftproof.estimators import Calibration, Estimate, Monitor
from shiftproof.estimators.answering import answers_of
from shiftproof.estimators.evidence import Evidence, observe, shifted
from shiftproof.estimators.families import family_of, shifts_of
from shiftproof.estimators.fitting import begin, copies_of, crossed_shifts, finish
from shiftproof.estimators.results import LEVEL
from shiftproof.estimators.source_copies import at_places

BATCH = 250
DIGITS = "digits"


def main() -> None:
    """Make or read the passes, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, help="a labelled .npz of CIFAR-10's test images")
    parser.add_argument("--natural", help="a labelled .npz (x, y) of other images of the same classes")
    parser.add_argument("--weights", help="the weights of the ResNet-56")
    parser.add_argument("--fresh", action="store_true", help="sets and images that nothing was tuned on")
    parser.add_argument("--mnist", help="folder of MNIST's train.npz and test.npz, for a network of digits")
    parser.add_argument("--usps", help="USPS's .npz, the natural shift of that network")
    parser.add_argument("--store", default="families-store", help="where the passes are kept")
    parser.add_argument("--per-set", type=int, default=500, help="images of each test set")
    parser.add_argument("--models", default="demo,cifar10-gaussian-jsd,resnet56")
    parser.add_argument("--level", type=float, default=LEVEL, help="the level of the intervals")
    parser.add_argument("--mixes", type=int, default=0, help="draws of class mixes of clean images, Dirichlet(1)")
    parser.add_argument("--methods", action="store_true", help="print how far off every method is, by model and family")
    parser.add_argument("--each", action="store_true", help="print a line for each set")
    options = parser.parse_args()
    options.models = [*options.models.split(","), *([DIGITS] if options.mnist else [])]
    found = [row for name in options.models for row in rows_of(name, options)]
    for row in found if options.each else ():
        print(row)
    print(table(found, options.level))
    if options.methods:
        print(methods_table(found))
    for name in options.models if options.mixes else ():
        print(mix_study(name, options))


@dataclass(frozen=True)
class Row:
    """The answer for a test set, by a calibration that has none of its family."""

    model: str
    family: str
    name: str
    truth: float
    clean: float
    answer: Estimate
    said: Mapping[str, float]

    @property
    def held(self) -> bool:
        """Whether the interval holds the truth."""
        return self.answer.low <= self.truth <= self.answer.high

    def __str__(self) -> str:
        told = "" if self.answer.trusted else f"  {self.answer.warnings[0][:60]}"
        return (
            f"{self.model:<22}{self.family:<20}{self.name:<26}{100 * self.truth:>6.1f}"
            f"{100 * self.answer.accuracy:>7.1f} ({100 * self.answer.low:5.1f} to {100 * self.answer.high:5.1f}) "
            f"{self.answer.method:<18}{'' if self.held else 'MISSED'}{told}"
        )


def rows_of(name: str, options: argparse.Namespace) -> Iterator[Row]:
    """Yield the answers for all test sets of a model."""
    shifts = {shift.label: shift for shift in shifts_of(load_data("demo-source"))}
    crossed = crossed_shifts(tuple(shifts.values()))
    begun, copies, clean = None, [], 0.0
    for each in passes(name, options):
        if begun is None:
            assert each.found.labels is not None
            begun = begin(each.found, each.found.labels)
        if not each.test:
            copies += copies_of(begun, shifts.get(each.name), each.found, crossed=crossed)
            continue
        if each.family == "pool":
            continue
        clean = each.found.accuracy if each.family == "clean" else clean
        calibration = left_out(finish(begun, copies), each.family)
        answers = answers_of(calibration, each.found, level=options.level)
        said = {method: one.accuracy for method, one in answers.items()}
        yield Row(name, each.family, each.name, each.found.accuracy, clean, answers["auto"], said)


_calibrations: dict[tuple[int, str], Calibration] = {}


def left_out(whole: Calibration, family: str) -> Calibration:
    """Return the calibration without a family, made once."""
    key = (hash(whole.source), family)
    if key not in _calibrations:
        _calibrations[key] = whole.without(family)
    return _calibrations[key]


def table(found: list[Row], level: float) -> str:
    """Return the figures over all sets and by model: coverage among answers without a warning, widths, answers."""
    lines = [
        f"| at {100 * level:.0f}% | sets | no warning | covered of those | median width | near clean, no warning | "
        "MAE | MAE, warned | largest miss, no warning |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    groups = {"all": found} | {
        name: [r for r in found if r.model == name] for name in dict.fromkeys(r.model for r in found)
    }
    groups |= {f"left out: {f}": [r for r in found if r.family == f] for f in dict.fromkeys(r.family for r in found)}
    for title, rows in groups.items():
        sure = [row for row in rows if row.answer.trusted]
        near = [row for row in rows if row.truth >= row.clean - 0.1]
        off = [abs(row.truth - row.answer.accuracy) for row in rows]
        warned = [abs(row.truth - row.answer.accuracy) for row in rows if not row.answer.trusted]
        widths = [row.answer.high - row.answer.low for row in sure]
        outside = [max(row.answer.low - row.truth, row.truth - row.answer.high, 0.0) for row in sure]
        lines.append(
            f"| {title} | {len(rows)} | {_percent(len(sure), len(rows))} | "
            f"{_percent(sum(row.held for row in sure), len(sure))} | {100 * np.median(widths) if widths else 0:.0f} | "
            f"{_percent(sum(row.answer.trusted for row in near), len(near))} | {100 * np.mean(off):.1f} | "
            f"{100 * np.mean(warned) if warned else 0:.1f} | {100 * max(outside, default=0):.1f} |"
        )
    return "\n".join(lines)


def methods_table(found: list[Row]) -> str:
    """Return how far off every method is on average, in points, by model and by family, `auto` first."""
    columns = {name: [row for row in found if row.model == name] for name in dict.fromkeys(row.model for row in found)}
    families = dict.fromkeys(row.family for row in found if row.family != "clean")
    columns |= {family: [row for row in found if row.family == family] for family in families}

    def off(method: str, rows: list[Row]) -> float:
        return float(100 * np.mean([abs(row.said[method] - row.truth) for row in rows]))

    methods = [method for method in found[0].said if all(method in row.said for row in found)]
    lines = [f"| method | all | {' | '.join(columns)} |", "|---|" + "---:|" * (1 + len(columns))]
    for method in sorted(methods, key=lambda name: (name != "auto", off(name, found))):
        each = " | ".join(f"{off(method, rows):.1f}" for rows in columns.values())
        lines.append(f"| {method} | {off(method, found):.1f} | {each} |")
    return "\n".join(lines)


def mix_study(name: str, options: argparse.Namespace) -> str:
    """Return how far off estimates are on class mixes of clean images, and how often the monitor cries accuracy."""
    shifts = {shift.label: shift for shift in shifts_of(load_data("demo-source"))}
    made = list(passes(name, options))
    assert made[0].found.labels is not None
    begun = begin(made[0].found, made[0].found.labels)
    crossed = crossed_shifts(tuple(shifts.values()))
    copies = [copies_of(begun, shifts.get(one.name), one.found, crossed=crossed) for one in made if not one.test]
    calibration = finish(begun, [copy for some in copies for copy in some]).without("class mix")
    (pool,) = (one.found for one in made if one.family == "pool")
    off, cried, told = [], 0, 0
    for seed in range(options.mixes):
        assert pool.labels is not None
        some = at_places(pool, mixed(torch.from_numpy(pool.labels), 1.0, 400, 1000 + seed).numpy())
        answer = answers_of(calibration, some)["auto"]
        off.append(abs(answer.accuracy - some.accuracy))
        told += answer.low <= some.accuracy <= answer.high
        monitor = Monitor(None, calibration, window=400)
        monitor.observe(outputs=some.logits)
        cried += monitor.watch.detectors["accuracy"].raised
    return (
        f"{name}: {options.mixes} Dirichlet(1) mixes of 400 clean images: {100 * np.mean(off):.1f} points off, "
        f"{_percent(told, options.mixes)} covered, alarms of accuracy {_percent(cried, options.mixes)}"
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "-"


@dataclass(frozen=True, eq=False)
class Pass:
    """What a model said of a set of a family: a copy to calibrate on, or a test set."""

    family: str
    name: str
    test: bool
    found: Evidence


@dataclass(frozen=True, eq=False)
class Studied:
    """A model, the labelled source it is calibrated on, other images like those, and images of a natural shift."""

    model: Any
    source: Dataset
    others: Dataset
    natural: Dataset | None
    natural_name: str


def studied(name: str, options: argparse.Namespace) -> Studied:
    """Return a model with its data; the network of digits is trained where it is not yet."""
    if name == DIGITS:
        at: dict[str, Any] = {"size": 32, "color": "rgb"}
        digits = load_data(str(Path(options.mnist) / "test.npz"), **at).take(10_000, seed=0)
        place = Path(options.store) / "digits-network"
        if not (place / "model.safetensors").exists():
            learnt = load_data(str(Path(options.mnist) / "train.npz"), **at)
            train("convnet", learnt, images=20_000, epochs=4, batch_size=64, lr=0.1, device="cpu", out=place)
        usps = None if options.usps is None else load_data(options.usps, split="test", **at).take(options.per_set)
        whole = digits.subset(range(500, len(digits)))
        return Studied(load_model(str(place)), digits.subset(range(500)), whole, usps, "USPS as MNIST")
    resnet = {"weights": options.weights, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    model = load_model(name, **resnet) if name.startswith("resnet") else load_model(name)
    source, whole = load_data("demo-source"), load_data(options.images)
    others = whole.subset((~torch.isin(whole.keys, source.keys)).nonzero()[:, 0])
    natural = None
    if options.natural:
        with np.load(options.natural) as held:
            x, y = held["x"], held["y"]
        natural = load_data((x if x.shape[-1] == 3 else x.transpose(0, 2, 3, 1), y))
    return Studied(model, source, others, natural, "ImageNet as CIFAR")


def passes(name: str, options: argparse.Namespace) -> Iterator[Pass]:
    """Yield all sets of a model, from the store where they are."""
    folder = Path(options.store) / name
    folder.mkdir(parents=True, exist_ok=True)
    of = studied(name, options)
    model, source = of.model, of.source
    sets = fresh_sets if options.fresh else family_sets
    begun = "fresh" if options.fresh else "test"

    def kept(key: str, make: Iterator[Batch]) -> Evidence:
        file = folder / f"{key.replace('/', ' ')}.npz"
        if not file.exists():
            found = observe(model, make, drift=True, batch_size=BATCH)
            arrays: dict[str, Any] = {"logits": found.logits, "labels": found.labels, "drift": found.drift}
            arrays["features"] = found.features
            with file.with_suffix(".part").open("wb") as part:
                np.savez(part, **{each: value for each, value in arrays.items() if value is not None})
            file.with_suffix(".part").rename(file)
        with np.load(file) as held:
            return Evidence(
                held["logits"], np.empty(0, np.int64), np.empty((0, held["logits"].shape[1])), np.empty(0),
                float(held["drift"]) if "drift" in held else None, held["labels"],
                held.get("features"),
            )  # fmt: skip

    yield Pass("source", "clean", False, kept("source", source.batches(BATCH)))
    for shift in shifts_of(source):
        made = kept(f"copy {shift.label}", shifted(source.batches(BATCH), shift, 0))
        yield Pass(family_of(shift), shift.label, False, made)
    pooled = 6 * options.per_set
    data = of.others.take(2 * pooled).in_memory()  # any first part of it is a sample: the rest has other images
    data = data.subset(range(pooled, len(data)) if options.fresh else range(min(pooled, len(data))))
    labels = data.labels
    assert labels is not None
    batch = next(iter(data.batches(len(data))))
    images, keys = batch.inputs, batch.keys

    def some(places: Tensor, change: object = None, seed: int = 0) -> Iterator[Batch]:
        chosen = images[places]
        if change is not None:
            chosen = change(chosen, torch.Generator().manual_seed(seed))  # type: ignore[operator]
        chosen = (chosen.clamp(0, 1) * 255).round() / 255
        for start in range(0, len(places), BATCH):
            part = slice(start, start + BATCH)
            yield Batch(chosen[part], labels[places[part]], keys[places[part]])

    if options.mixes:
        yield Pass("pool", "pool", True, kept(f"{begun} pool", some(torch.arange(len(data)))))
    first = torch.arange(options.per_set)
    yield Pass("clean", "clean", True, kept(f"{begun} clean", some(first)))
    for number, (family, changes) in enumerate(sets.FAMILIES.items()):
        for place, (title, change) in enumerate(changes.items()):
            found = kept(f"{begun} {family} {title}", some(first, change, 100 * number + place))
            yield Pass(family, title, True, found)
    for number, (title, mix) in enumerate(sets.MIXES.items()):
        places = mixed(labels, mix, options.per_set, number)
        yield Pass("class mix", title, True, kept(f"{begun} mix {title}", some(places)))
    if of.natural is not None:
        yield Pass("natural", of.natural_name, True, kept("test natural", of.natural.batches(BATCH)))


if __name__ == "__main__":
    main()
