"""Are planted weak slices found, and is nothing found where nothing is? On CIFAR-10's 10,000 test images.

    python -m benchmarks.slices --data cifar10/test.npz --store runs/slices

The demo model answers every image as it is, darkened and blurred, in several strengths, once; what it says is kept in
the store. A planting takes 3 to 10% of the images: some of a class are darkened, those of one camera are blurred, or
some labels of one sub-folder are wrong, as much as costs 10 to 30 points on them. It is found where one of the first
three slices has at least half of its images planted, and at least half of the planted images in it. With answers and
columns shuffled, nothing may be named.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof import load_model
from shiftproof.models import logits
from shiftproof.shifts import corruption
from shiftproof.slices import WeakSlices, find_weak_slices, image_statistics

STRENGTHS: dict[Change, tuple[float, ...]] = {"clean": (0.0,), "dark": (2, 2.8, 4, 5.6, 8), "blurred": (1, 2, 3, 4, 5)}
"""Images are divided by so much, or blurred at a severity."""
BATCH = 64
PLANTINGS, FIRST, EFFECTS, SHARES = 100, 3, (0.10, 0.30), (0.03, 0.10)
CAMERAS, FOLDERS = 16, 16
KINDS: tuple[Kind, ...] = ("dark class", "blurred camera", "mislabelled folder")

Kind: TypeAlias = Literal["dark class", "blurred camera", "mislabelled folder"]
Change: TypeAlias = Literal["clean", "dark", "blurred"]


@dataclass(frozen=True)
class Answers:
    """What the model says of every image in each strength, the first clean, [1 + S, N], and its statistics then."""

    labels: NDArray[np.int64]
    predicted: dict[Change, NDArray[np.int64]]
    statistics: dict[Change, dict[str, NDArray[np.float64]]]


def measured(data: Path, store: Path) -> Answers:
    """Return what the demo model says of all images in all strengths; what the store lacks is measured."""
    with np.load(data) as held:
        images = torch.from_numpy(held["images"]).permute(0, 3, 1, 2)
        labels = held["labels"].astype(np.int64).ravel()
    store.mkdir(parents=True, exist_ok=True)
    parts: dict[Change, list[dict[str, NDArray[np.float64]]]] = {}
    for change, strengths in STRENGTHS.items():
        for strength in strengths:
            path = store / f"{change}-{strength:g}.npz"
            if not path.exists():
                np.savez_compressed(path, allow_pickle=False, **_answers(images, change, strength))
            with np.load(path) as held:
                parts.setdefault(change, []).append({name: held[name] for name in held})
            print(f"{change} {strength:g}: {(parts[change][-1]['predicted'] == labels).mean():.3f}", flush=True)
    rows = {change: [*parts["clean"], *parts[change]] for change in STRENGTHS}
    stacked = {
        change: {name: np.stack([row[name] for row in some]) for name in some[0]} for change, some in rows.items()
    }
    return Answers(labels, {change: some.pop("predicted").astype(int) for change, some in stacked.items()}, stacked)


def _answers(images: Tensor, change: Change, strength: float) -> dict[str, NDArray[np.float64]]:
    model, parts = load_model("demo"), []
    for start in range(0, len(images), BATCH):
        some = _changed(images[start : start + BATCH].float() / 255, change, strength, start)
        parts.append({"predicted": logits(model, some).argmax(1).double().numpy(), **image_statistics(some)})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _changed(images: Tensor, change: Change, strength: float, start: int) -> Tensor:
    if change == "dark":
        return (images / strength * 255).round() / 255
    if change == "blurred":
        return corruption("gaussian_blur", strength)(images, torch.arange(start, start + len(images)))
    return images


def plant(answers: Answers, kind: Kind, seed: int) -> tuple[WeakSlices, NDArray[np.bool_], float]:
    """Return what is found of a planting, which images are planted, and how many points it costs them."""
    rng = np.random.default_rng((seed, KINDS.index(kind)))
    labels, predicted = answers.labels.copy(), answers.predicted["clean"][0].copy()
    count = len(labels)
    columns: dict[str, NDArray[np.generic]] = {
        name: rows[0].copy() for name, rows in answers.statistics["clean"].items()
    }
    size = int(rng.uniform(*SHARES) * count)
    cameras, folders = rng.integers(0, CAMERAS, count), rng.integers(0, FOLDERS, count)
    wanted = rng.uniform(*EFFECTS)
    if kind == "dark class":
        # The class that the model falls back on in the dark loses nothing: another is taken.
        losing = [number for number in range(labels.max() + 1) if _most_lost(answers, number) >= wanted]
        chosen = rng.permutation(np.nonzero(labels == rng.choice(losing))[0])[:size]
        change: Change = "dark"
    else:
        chosen = rng.permutation(count)[:size]
        (cameras if kind == "blurred camera" else folders)[:] += 1
        (cameras if kind == "blurred camera" else folders)[chosen] = 0
        change = "blurred"
    before = float((predicted[chosen] == labels[chosen]).mean())
    if kind == "mislabelled folder":
        flipped = rng.permutation(chosen)[: int(wanted / before * len(chosen))]
        labels[flipped] = (labels[flipped] + rng.integers(1, labels.max() + 1, len(flipped))) % (labels.max() + 1)
    else:
        strength = _strengths(
            before - (answers.predicted[change][:, chosen] == labels[chosen]).mean(1), wanted, size, rng
        )
        predicted[chosen] = answers.predicted[change][strength[: len(chosen)], chosen]
        for name, values in columns.items():
            values[chosen] = answers.statistics[change][name][strength[: len(chosen)], chosen]
    cost = before - float((predicted[chosen] == labels[chosen]).mean())
    planted = np.zeros(count, bool)
    planted[chosen] = True
    columns |= {"camera": np.char.mod("C%d", cameras), "folder": np.char.mod("F%d", folders)}
    return find_weak_slices(predicted == labels, columns, labels=labels), planted, cost


def _most_lost(answers: Answers, number: int) -> float:
    """Return the share of a class's images that the strongest darkening costs, at most."""
    right = (answers.predicted["dark"] == answers.labels)[:, answers.labels == number].mean(1)
    return float(right[0] - right.min()) - 0.05  # some of its images may lose less than all


def _strengths(losses: NDArray[np.float64], wanted: float, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a strength for each image, one of two neighbours, so that together they lose what is wanted."""
    above = int(np.nonzero(losses >= wanted)[0][0])
    share = (wanted - losses[above - 1]) / (losses[above] - losses[above - 1])
    return np.asarray(above - 1 + (rng.random(size) < share))


def place_of(found: WeakSlices, planted: NDArray[np.bool_]) -> int | None:
    """Return the place, from 1, of the first slice that is the planting; None where there is none."""
    for place, inside in enumerate(found.members, start=1):
        both = (inside & planted).sum()
        if both >= inside.sum() / 2 and both >= planted.sum() / 2:
            return place
    return None


def shuffled(answers: Answers, seed: int) -> WeakSlices:
    """Return what is found where answers belong to other images, and columns to others again."""
    rng = np.random.default_rng((seed, 99))
    right = rng.permutation(answers.predicted["clean"][0] == answers.labels)
    count = len(right)
    columns: dict[str, NDArray[np.generic]] = {
        name: rng.permutation(rows[0]) for name, rows in answers.statistics["clean"].items()
    }
    columns |= {"camera": rng.integers(0, CAMERAS, count), "folder": rng.integers(0, FOLDERS, count)}
    return find_weak_slices(right, columns, labels=rng.permutation(answers.labels))


def main() -> None:
    """Print how many plantings are found, by kind, and how many shuffled runs name a slice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="CIFAR-10's test images, .npz of images and labels")
    parser.add_argument(
        "--store", type=Path, default=Path("runs/slices"), help="folder of what the model said; it resumes"
    )
    parser.add_argument("--plantings", type=int, default=PLANTINGS)
    given = parser.parse_args()
    answers = measured(given.data, given.store)
    places: dict[str, list[int | None]] = {kind: [] for kind in KINDS}
    costs = []
    for number in range(given.plantings):
        kind = KINDS[number % len(KINDS)]
        found, planted, cost = plant(answers, kind, number)
        places[kind].append(place_of(found, planted))
        costs.append(cost)
    everything = [place for some in places.values() for place in some]
    print(f"{given.plantings} plantings that cost {100 * min(costs):.0f} to {100 * max(costs):.0f} points")
    for name, some in (*places.items(), ("all", everything)):
        first = [place is not None and place <= FIRST for place in some]
        print(f"{name:20} in the first {FIRST}: {100 * np.mean(first):.0f}%, first: {some.count(1)}, of {len(some)}")
    named = [bool(len(shuffled(answers, seed))) for seed in range(given.plantings)]
    print(f"{'shuffled':20} runs that name a slice: {sum(named)} of {len(named)}")


if __name__ == "__main__":
    main()
