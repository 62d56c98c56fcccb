"""Is a known shift recovered from new images? On CIFAR-10 test images that the demo does not have.

    python -m benchmarks.diagnosis --data cifar10/test.npz --out runs/diagnosis   # makes what is missing, prints
    python -m benchmarks.diagnosis --data cifar10/test.npz --out runs/diagnosis --device cuda

2,000 images are the labelled source; sets of 1,000 others are shifted: 75 by one of the fifteen common corruptions, 60
by two of different families one after the other, at severities 1 to 4. Clean sets, and clean sets of other class mixes,
are drawn from the signatures of all other images. Forward passes are kept, and the same call resumes. `--left-out`
takes every kind out of what is known in turn, and asks whether its sets are called unknown; the limit of what is called
so is also set on every other kind and reported on those between, and the other way round.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftproof import load_data
from shiftproof.data import ImageSet, as_images
from shiftproof.data.images.arrays import from_arrays
from shiftproof.diagnoses.diagnosis import Likeness, likeness, with_mix
from shiftproof.diagnoses.explaining import KnownShift
from shiftproof.diagnoses.knowledge import KINDS, KNOWN, Knowledge, Measuring, Signed, chain
from shiftproof.runs import Inline
from shiftproof.subjects import Subject

SOURCE, IMAGES, GROUP = 2000, 1000, 50
SEVERITIES = (1.0, 1.5, 2.5, 3.5, 4.5)
PAIRS, CLEAN, MIXES = 60, 100, 100
WITHIN = 0.95
"""The share of sets of known kinds whose misfit is within the limit where that is set."""
COSTS = (-1.0, 0.01, 0.02, 0.05, 1.0)
"""Sets are told apart by the accuracy that they lose, between these."""
FAMILIES = {
    kind: number for number, some in enumerate((KINDS[:3], KINDS[3:7], KINDS[7:11], KINDS[11:])) for kind in some
}


@dataclass(frozen=True)
class Planted:
    """A set of new images: which of the others they are, and the shifts that they went through."""

    places: tuple[int, ...]
    parts: tuple[KnownShift, ...]

    @property
    def name(self) -> str:
        """What it is called."""
        return " + ".join(f"{part.kind}@{part.severity:g}" for part in self.parts)


def planted(others: int, seed: int = 1) -> tuple[list[Planted], list[Planted]]:
    """Return the sets with one shift, and those with two."""
    rng = np.random.default_rng(seed)

    def draw() -> tuple[int, ...]:
        return tuple(sorted(rng.permutation(others)[:IMAGES].tolist()))

    singles = [Planted(draw(), (KnownShift(kind, severity),)) for kind in KINDS for severity in SEVERITIES]
    pairs: list[Planted] = []
    while len(pairs) < PAIRS:
        one, other = rng.choice(KINDS, 2, replace=False)
        severities = rng.uniform(1, 4, 2).round(1)
        if FAMILIES[one] != FAMILIES[other]:
            both = zip((str(one), str(other)), severities.tolist(), strict=True)
            pairs.append(Planted(draw(), tuple(KnownShift(kind, severity) for kind, severity in both)))
    return singles, pairs


class Bench:
    """The source, what is known of it, and the other images with their labels."""

    def __init__(self, model: str, data: Path, out: Path, device: str, seed: int = 1) -> None:
        with np.load(data) as held:
            images, labels = held["images"], held["labels"].astype(np.int64).ravel()
        used = {image.tobytes() for name in ("demo", "demo-source") for image in _pixels(as_images(load_data(name)))}
        free = np.array([place for place, image in enumerate(images) if image.tobytes() not in used])
        free = np.random.default_rng(seed - 1).permutation(free)
        self.model, self.out, self.device, self.seed = model, out, device, seed
        self.images, self.labels = images[free[SOURCE:]], labels[free[SOURCE:]]
        self.source = self._measuring(images[free[:SOURCE]], labels[free[:SOURCE]], "source")
        self.known = Knowledge.of(self.source)

    def _measuring(self, images: NDArray[np.uint8], labels: NDArray[np.int64], name: str) -> Measuring:
        subject = Subject.of(self.model, from_arrays(images, labels), device=self.device)
        return Measuring(subject, self.out / name, Inline())

    @cached_property
    def others(self) -> Signed:
        """The signatures of all other images, image by image, in their own order."""
        at = self._measuring(self.images, self.labels, "others")
        (found,) = at.signed([None], len(self.images), 1)
        place = np.argsort(at.subject.places.numpy())
        return Signed(found.rows[place], found.predicted[place])

    def new(self, each: Planted) -> tuple[Signed, NDArray[np.int64]]:
        """Return the signatures of a set, and its labels in the same order."""
        places = list(each.places)
        at = self._measuring(self.images[places], self.labels[places], f"sets/{each.name.replace(' ', '')}")
        (found,) = at.signed([chain(each.parts)], IMAGES, GROUP)
        labels = at.subject.data.labels
        assert labels is not None
        return found, labels.numpy()

    def applied(self, parts: Sequence[KnownShift]) -> Signed:
        """Apply shifts to the source."""
        return self.source.signed([chain(parts)], KNOWN, KNOWN)[0]

    def drawn(self, mix: NDArray[np.float64] | None, rng: np.random.Generator) -> Signed:
        """Return the signatures of clean images, of a class mix where one is given."""
        if mix is None:
            chosen = rng.permutation(len(self.labels))[:IMAGES]
        else:
            wanted = rng.multinomial(IMAGES, mix)
            by_class = [rng.permutation(np.nonzero(self.labels == number)[0]) for number in range(len(mix))]
            chosen = rng.permutation(np.concatenate([some[:n] for some, n in zip(by_class, wanted, strict=True)]))
        rows = np.stack([part.mean(0) for part in np.split(self.others.rows[chosen], range(GROUP, len(chosen), GROUP))])
        return Signed(rows, self.others.predicted[chosen])


def _pixels(data: ImageSet) -> Iterator[NDArray[np.uint8]]:
    for batch in data.batches(500):
        yield from (batch.inputs * 255).round().byte().permute(0, 2, 3, 1).contiguous().numpy()


def diagnosed(bench: Bench, each: Planted) -> tuple[Likeness, float, float]:
    """Return what a set behaves like, the points that explains, and those that were lost."""
    new, labels = bench.new(each)
    found = likeness(bench.known, new, IMAGES, bench.applied)
    right = bench.known.source.predicted == bench.known.labels
    shifted = bench.known.source.predicted
    if found.shifts:
        parts = [KnownShift(part.kind, part.severity) for part in found.shifts]
        shifted = bench.source.signed([chain(parts)], IMAGES, IMAGES)[0].predicted
        known = bench.known.labels[: len(shifted)]
        found = with_mix(found, known, shifted, new.predicted)
        explained = float(right[: len(shifted)].mean() - (shifted == known).mean())
    else:
        explained = 0.0
    clean = bench.others.predicted[list(each.places)] == bench.labels[list(each.places)]
    return found, explained, float(clean.mean() - (new.predicted == labels).mean())


def report_shifted(bench: Bench, every: int) -> None:
    """Print how sets with one shift and with two are diagnosed."""
    singles, pairs = (some[::every] for some in planted(len(bench.labels), bench.seed))
    for title, sets in (("singles", singles), ("pairs", pairs)):
        rows = []
        for each in sets:
            found, explained, lost = diagnosed(bench, each)
            named = {part.kind: part for part in found.shifts}
            true = {part.kind: part.severity for part in each.parts}
            hits = named.keys() & true.keys()
            off = [abs(named[kind].severity - true[kind]) for kind in hits]
            held = [named[kind].low <= true[kind] <= named[kind].high for kind in hits]
            strongest = max(found.shifts, key=lambda part: part.severity).kind if found.shifts else ""
            rows.append((hits, len(named), strongest, off, held, abs(explained - lost), found, true, lost))
            told = ", ".join(map(str, found.shifts)) or "nothing"
            points = f"explained {100 * explained:5.1f} lost {100 * lost:5.1f}{' mix' * found.mix_changed}"
            print(f"{each.name:45} -> {told:75} misfit {found.misfit:6.1f} {points}", flush=True)
        print(f"{title}: {len(rows)} sets")
        print(f"  named, the strongest first: {np.mean([row[2] in row[7] for row in rows]):.0%}")
        print(f"  at least one named {np.mean([bool(row[0]) for row in rows]):.0%}, "
              f"all {np.mean([len(row[0]) == len(row[7]) for row in rows]):.0%}, "
              f"exactly these {np.mean([len(row[0]) == len(row[7]) == row[1] for row in rows]):.0%}")  # fmt: skip
        for low, high in pairwise(COSTS):
            some = [row for row in rows if low < row[8] <= high]
            told = f"{np.mean([row[2] in row[7] for row in some]):.0%} named" if some else "none"
            nothing = sum(row[6].nothing for row in some)
            print(f'    of {len(some)} that cost {100 * low:g} to {100 * high:g} points: {told}, {nothing} "nothing"')
        print(f"  severity off by {np.mean([value for row in rows for value in row[3]]):.2f}; "
              f"interval covers {np.mean([value for row in rows for value in row[4]]):.0%}")  # fmt: skip
        print(f"  points explained off by {100 * np.mean([row[5] for row in rows]):.1f}, "
              f"90th percentile {100 * np.quantile([row[5] for row in rows], 0.9):.1f}")  # fmt: skip
        print(f"  called unknown {np.mean([row[6].unknown for row in rows]):.0%}, "
              f"not exactly these {np.mean([not row[6].nothing and not row[6].exact for row in rows]):.0%}, "
              f"class mix said to have changed {np.mean([row[6].mix_changed for row in rows]):.0%}")  # fmt: skip


def report_clean(bench: Bench) -> None:
    """Print how clean sets are diagnosed, with the class mix of the source and with others."""
    rng = np.random.default_rng(2)
    most = np.bincount(bench.labels).min() / IMAGES  # no image is drawn twice
    clean = [likeness(bench.known, bench.drawn(None, rng), IMAGES) for _ in range(CLEAN)]
    print(f"clean: nothing in {np.mean([found.nothing for found in clean]):.0%} of {CLEAN}, "
          f"mix said to have changed {np.mean([found.mix_changed for found in clean]):.0%}")  # fmt: skip
    for alpha in (0.2, 0.5, 1.0, 5.0):
        drawn = (rng.dirichlet([alpha] * 10) for _ in range(100 * MIXES))
        mixes = list(islice((mix for mix in drawn if mix.max() < 0.95 * most), MIXES // 4))
        likes = [likeness(bench.known, bench.drawn(mix, rng), IMAGES) for mix in mixes]
        far = [np.abs(np.subtract(one.mix, mix)).sum() / 2 for one, mix in zip(likes, mixes, strict=True)]
        nothing, changed = (np.mean([getattr(one, name) for one in likes]) for name in ("nothing", "mix_changed"))
        print(
            f"class mixes, Dirichlet({alpha:g}): nothing {nothing:.0%}, told {changed:.0%}, off by {np.mean(far):.2f}"
        )


def left_out(bench: Bench, every: int) -> None:
    """Print how sets of a kind that is not known are told, and whether what is left of them is as was said."""
    singles = planted(len(bench.labels), bench.seed)[0][::every]
    found, known = [], []
    for kind in dict.fromkeys(each.parts[0].kind for each in singles):
        others = Knowledge.of(bench.source, kinds=tuple(other for other in KINDS if other != kind))
        for each in (each for each in singles if each.parts[0].kind == kind):
            new = bench.new(each)[0]
            like = likeness(others, new, IMAGES, bench.applied)
            found.append(like)
            known.append(likeness(bench.known, new, IMAGES, bench.applied))
            told = ", ".join(str(part) for part in like.shifts)
            print(f"{each.name:25} -> {told:75} misfit {like.misfit:6.1f} of {like.within_error:.1f}, known "
                  f"{known[-1].misfit:.1f}, left {like.unexplained:.1%}, expected {like.left_out[0]:.1%} to "
                  f"{like.left_out[1]:.1%}", flush=True)  # fmt: skip
    inside = [like.left_out[0] <= like.unexplained <= like.left_out[1] for like in found]
    print(f"kinds left out, {len(found)} sets: called unknown {np.mean([like.unknown for like in found]):.0%}, "
          f"unknown or not exactly what is known {np.mean([not like.exact for like in found]):.0%}; "
          f"left {np.median([like.unexplained for like in found]):.0%} (median), "
          f"within the range told {np.mean(inside):.0%}")  # fmt: skip
    half = np.array([KINDS.index(each.parts[0].kind) % 2 for each in singles])
    strange, ours = (np.array([like.misfit for like in some]) for some in (found, known))
    limits = np.array([np.quantile(ours[half == other], WITHIN) for other in (1, 0)])  # of each half, by the other
    print(f"limits set on the other half of the kinds, {limits[0]:.1f} and {limits[1]:.1f}: told of "
          f"{np.mean(strange > limits[half]):.0%} of the kinds left out and {np.mean(ours > limits[half]):.0%} of "
          "the same when known")  # fmt: skip


def main() -> None:
    """Make what is missing, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="CIFAR-10's test images, .npz of images and labels")
    parser.add_argument("--out", type=Path, default=Path("runs/diagnosis"))
    parser.add_argument("--model", default="demo")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--every", type=int, default=1, help="of sets with shifts, take every so many")
    parser.add_argument("--clean", action="store_true", help="only clean sets and class mixes")
    parser.add_argument("--left-out", action="store_true", help="only kinds that are not known")
    parser.add_argument("--seed", type=int, default=1, help="another source, other sets; with an --out of its own")
    given = parser.parse_args()
    bench = Bench(given.model, given.data, given.out, given.device, given.seed)
    if given.left_out:
        return left_out(bench, given.every)
    if not given.clean:
        report_shifted(bench, given.every)
    return report_clean(bench)


if __name__ == "__main__":
    main()
