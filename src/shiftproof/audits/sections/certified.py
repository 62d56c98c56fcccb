"""What is guaranteed: distances within which no change of the input changes the answer, clean and under two shifts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from shiftproof import shifts
from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import Scope, Section, Subject, Work
from shiftproof.audits.sections.measuring import rows
from shiftproof.audits.sections.wording import interval, labelled, percent, title
from shiftproof.audits.view import Action, Column, Figure, Level, Sentence, Table, Tile, View
from shiftproof.certificates import Smoothed
from shiftproof.certificates.radius import round_down
from shiftproof.errors import ModelError
from shiftproof.measures import Accuracy, average_radius, certified_accuracy
from shiftproof.runs import Cell, Json, Result, Row

SIGMAS = (0.03, 0.25)
"""Noise that most networks bear, and noise that those trained for certificates do."""
POINTS = 25
"""Distances at which certified accuracy is drawn."""
CLEAN = "clean"
DRAWN = 0.35
"""Of the samples that count a class, the share that is drawn on average: images that are wrong need none."""
GOOD, BAD, FAR = 0.5, 0.2, 0.25
LEVEL_RULE = "right, and stable in L2: good from 50% at 0.25 or further, bad under 20%"


@dataclass(frozen=True)
class Size:
    """How many images are certified, clean and under each shift, with how many samples, and how sure."""

    images: int
    shifted: int
    part: int
    n0: int
    n: int
    alpha: float


SIZES: Mapping[str, Size] = {
    "quick": Size(images=32, shifted=16, part=8, n0=20, n=250, alpha=0.01),
    "standard": Size(images=200, shifted=100, part=10, n0=100, n=2_000, alpha=0.001),
    "full": Size(images=500, shifted=250, part=10, n0=100, n=100_000, alpha=0.001),
}


class Certified(Section):
    """Certified accuracy and radii by randomized smoothing."""

    name = "certified"
    title = "What is guaranteed"
    question = "How far must an image be changed, at the least, before the answer can change?"
    numbers = (
        Number("certified_accuracy", "the share of clean images that are right and certified at the distance"),
        Number("certified_distance", "that distance, in L2 on images in [0, 1]", None, "L2"),
        Number("acr", "average certified radius of clean images", "higher", "L2"),
        Number("acr.*", "average certified radius under a shift", "higher", "L2"),
    )

    def plan(self, scope: Scope) -> Iterator[Cell]:
        """Plan parts of the images for each noise, clean and under a shift of low and one of middle frequency."""
        settings, size = scope.settings, SIZES[scope.settings.budget]
        severity = settings.severities[len(settings.severities) // 2]
        for name in (CLEAN, *_two_shifts(settings.shifts)):
            label = name if name == CLEAN else f"{name}@{severity:g}"
            images = min(scope.images, scope.scaled(size.images, 8) if name == CLEAN else scope.scaled(size.shifted, 4))
            for sigma in SIGMAS:
                for begin in range(0, images, size.part):
                    yield Cell(
                        "certified",
                        shift=label,
                        sigma=sigma,
                        begin=begin,
                        end=min(begin + size.part, images),
                        n0=size.n0,
                        n=scope.scaled(size.n, 100),
                        alpha=size.alpha,
                        seed=settings.seed,
                    )

    def measure(self, cell: Cell, subject: Subject) -> Row:
        """Certify a part of the images; radii of wrong answers and abstentions are 0."""
        begin, end = cast(int, cell["begin"]), cast(int, cell["end"])
        label, seed = cast(str, cell["shift"]), cast(int, cell["seed"])
        radii: list[Json] = []
        samples = 0
        for batch in subject.data.subset(range(begin, end)).batches(end - begin, device=subject.device):
            images = batch.images
            if label != CLEAN:
                images = shifts.parse(label)(images, batch.keys, seed=seed)
            try:
                smoothed = Smoothed(subject.model, cast(float, cell["sigma"]), seed=seed, batch_size=subject.batch_size)
                made = smoothed.certify(
                    images,
                    batch.labels,
                    keys=batch.keys,
                    n0=cast(int, cell["n0"]),
                    n=cast(int, cell["n"]),
                    alpha=cast(float, cell["alpha"]),
                )
            except ModelError as error:
                return {"applies": False, "reason": error.headline}
            radii += [round_down(each.radius) for each in made]
            samples += sum(each.samples for each in made) + len(made) * cast(int, cell["n0"])
        return {"images": len(radii), "radii": radii, "samples": samples}

    def work(self, cell: Cell) -> Work:
        """Count noisy samples; about a third of those that are allowed are drawn, as wrong answers need few."""
        images = cast(int, cell["end"]) - cast(int, cell["begin"])
        samples = images * (cast(int, cell["n0"]) + DRAWN * cast(int, cell["n"]))
        shifted = {} if cell["shift"] == CLEAN else {f"shift {cell['shift']}": float(images)}
        return {"read": images, "noise": samples, "forward": samples, **shifted}

    def per_image(self, results: Sequence[Result]) -> Mapping[str, NDArray[np.float64]]:
        """Return the certified radii of clean images under the noise that certifies most."""
        radii: dict[float, list[float]] = defaultdict(list)
        for cell, row in rows(results, "certified"):
            if cell["shift"] == CLEAN and row.get("applies", True):
                radii[cast(float, cell["sigma"])] += cast("list[float]", row["radii"])
        best = max(radii.values(), key=sum, default=[])
        return {"acr": np.array(best)} if best else {}

    def view(self, results: Sequence[Result]) -> View:
        """Tell how many images are certified at a distance, and what that means."""
        found = [(cell, row) for cell, row in rows(results, "certified") if row.get("applies", True)]
        radii: dict[tuple[str, float], list[float]] = defaultdict(list)
        for cell, row in found:
            radii[cast(str, cell["shift"]), cast(float, cell["sigma"])] += cast("list[float]", row["radii"])
        clean = {sigma: some for (label, sigma), some in radii.items() if label == CLEAN and some}
        if not clean:
            reasons = {str(row["reason"]) for _, row in rows(results, "certified") if "reason" in row}
            return View(self.name, self.title, self.question, notes=tuple(reasons) or ("Nothing was certified.",))
        best = max(clean, key=lambda sigma: (sum(clean[sigma]) / len(clean[sigma]), -sigma))
        at = best  # one standard deviation: what takes p = 0.84
        lines = {label: some for (label, sigma), some in radii.items() if sigma == best and some}
        values = {label: certified_accuracy(some, at) for label, some in lines.items()}
        averages = {key: average_radius(some) for key, some in radii.items() if some}
        here = values[CLEAN]
        stable = f"{percent(here.value)} of clean images ({interval(here)}) are provably stable"
        said = f"Within an L2 distance of {at:g}, {stable}"
        others = [f"{percent(value.value)} under {_named(label)}" for label, value in values.items() if label != CLEAN]
        level: Level = "bad" if here.value < BAD else "good" if here.value >= GOOD and at >= FAR else "watch"
        numbers = {"certified_accuracy": here.value, "certified_distance": at, "acr": averages[CLEAN, best].value}
        numbers |= {
            f"acr.{label}": average.value
            for (label, sigma), average in averages.items()
            if sigma == best and label != CLEAN
        }
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(Sentence(", ".join([said, *others]) + ".", level),),
            tiles=(Tile(f"Certified at {at:g}", percent(here.value), interval(here), level, LEVEL_RULE),),
            blocks=(_curves(lines, best), _radius_table(radii)),
            notes=_notes(found, best),
            numbers=numbers,
            actions=(_action(here, at),) if level != "good" else (),
        )


def _two_shifts(names: Sequence[str]) -> list[str]:
    """Return a shift of low and one of middle frequency, on which certified models are weak; fog where it is there."""
    chosen = []
    for frequency in ("low", "mid"):
        some = [name for name in names if shifts.facts(name)["frequency"] == frequency]
        chosen += ["fog"] if "fog" in some else some[:1]
    return chosen


def _action(here: Accuracy, at: float) -> Action:
    return Action(
        "Train with noise, for guarantees",
        f"{percent(here.value)} are certified at {at:g}. A certificate reaches as far as the noise a network bears, "
        "and it bears what it was trained with; that costs some clean accuracy.",
        "shiftproof train --data train-images/ --model model.py:build --recipe gaussian --sigma 0.25 --out robust/",
    )


def _named(label: str) -> str:
    return label if label == CLEAN else title(shifts.parse(label).name)


def _curves(lines: Mapping[str, Sequence[float]], sigma: float) -> Figure:
    reach = max(max(some) for some in lines.values()) or sigma
    distances = [round_down(distance, 4) for distance in np.linspace(0, reach, POINTS)]
    shares = {
        label: [certified_accuracy(some, distance).value for distance in distances] for label, some in lines.items()
    }
    plot = {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "name": labelled(label),
                "x": distances,
                "y": [100 * share for share in curve],
                "hovertemplate": "%{y:.1f}% at %{x:.3f}<extra></extra>",
            }
            for label, curve in shares.items()
        ],
        "layout": {
            "xaxis": {"title": {"text": "L2 distance, on [0, 1] images"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": "right and certified, %"}, "rangemode": "tozero"},
        },
    }
    table = Table(
        "Certified accuracy by distance",
        (Column("L2 distance", "number"), *(Column(labelled(label), "percent", heat=(0.0, 1.0)) for label in shares)),
        tuple((distance, *(curve[place] for curve in shares.values())) for place, distance in enumerate(distances)),
    )
    start = percent(shares[CLEAN][0])
    finding = f"With noise {sigma:g}, {start} are certified at all, none beyond {reach:.3f}"
    return Figure(
        finding,
        plot,
        table,
        caption="How many images no change of that size can turn, by any method. The curves end at the largest radius "
        "that so many samples can show.",
    )


def _radius_table(radii: Mapping[tuple[str, float], Sequence[float]]) -> Table:
    body = []
    for (label, sigma), some in radii.items():
        if some:
            average = average_radius(some)
            high = round(average.high, 4) if average.images > 1 else None
            certified = certified_accuracy(some, 0.0).value
            body.append(
                (labelled(label), sigma, len(some), certified, round(average.value, 4), round(average.low, 4), high)
            )
    return Table(
        "Average certified radius (ACR)",
        (
            Column("images"),
            Column("noise sigma", "number"),
            Column("count", "number"),
            Column("certified at all", "percent", heat=(0.0, 1.0)),
            Column("ACR", "number"),
            Column("from", "number"),
            Column("to", "number"),
        ),
        tuple(body),
        caption="Wrong answers and abstentions count 0. Intervals are over images, at 95%.",
    )


def _notes(found: Sequence[tuple[Cell, Row]], best: float) -> tuple[str, ...]:
    cell = found[0][0]
    n, alpha = cast(int, cell["n"]), cast(float, cell["alpha"])
    samples = sum(cast(int, row["samples"]) for _, row in found)
    notes = [
        "A certificate says that the model smoothed with this noise gives the same answer to every image within the "
        "distance. It says nothing of the model without noise, of larger changes, or of whether the answer is right.",
        f"Rule sequential, at most {n:,} samples an image, each certificate wrong with probability at most {alpha:g}; "
        f"{samples:,} samples in all. `shiftproof certify --sigma {best:g}` certifies all images with 100,000.",
    ]
    if best < max(SIGMAS):
        notes.append(
            f"Under noise of {max(SIGMAS):g}, usual for certified training, less is certified than at {best:g}: the "
            "model was not trained with such noise, and its certificates are small."
        )
    return tuple(notes)
