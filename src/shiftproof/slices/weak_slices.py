"""Weak slices: groups of images, by class and columns, on which a model is worse than on those they are a part of.

Every group with enough images is tested against what it is part of: a bin against all images, two bins together
against each of them alone, so that a hard class is told once. Benjamini-Hochberg's rule keeps the expected share of
false ones among those named at `q`; where there are none, at most that share of data sets name any.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.measures.intervals import proportion_intervals
from shiftproof.runs import Json
from shiftproof.slices.binning import Attribute, attributes, attributes_of_classes
from shiftproof.slices.image_results import Column
from shiftproof.slices.image_statistics import EXTREMES

FALSE_SHARE = 0.05
"""The share of false slices that is expected among those named, at most."""
MIN_SUPPORT, MIN_SHARE, MIN_ERRORS, MIN_EFFECT = 15, 0.01, 5, 0.05
"""A slice has so many images, this share of all, so many errors, and is worse by so much."""
SAME_IMAGES = 0.8
"""Slices that share more of their images than this (Jaccard) are one, told by the simplest words."""
POWER = 0.8
CLEAN = "clean"

Bools: TypeAlias = NDArray[np.bool_]
Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class WeakSlice:
    """A group of images with lower accuracy than the rest.

    A slice is compared with the rest of `part_of`. The intervals of the accuracy and of the effect (rest - accuracy)
    control the false coverage rate over all reported slices.

    Args:
        words: Description of the slice.
        part_of: The larger group whose rest it is compared with.
        shift: The shift the images are under.
        images: Number of its images.
        errors: Number of wrong predictions.
        accuracy: Accuracy on its images.
        low: Lower end of the interval of the accuracy.
        high: Upper end of the interval of the accuracy.
        rest: Accuracy on the rest.
        effect_low: Lower end of the interval of rest - accuracy.
        effect_high: Upper end of the interval of rest - accuracy.
        p: p-value, before correction for multiple testing.
        also: Other slices of nearly the same images.
    """

    words: tuple[str, ...]
    part_of: tuple[str, ...]
    shift: str
    images: int
    errors: int
    accuracy: float
    low: float
    high: float
    rest: float
    effect_low: float
    effect_high: float
    p: float
    also: tuple[str, ...] = ()

    @property
    def effect(self) -> float:
        """Accuracy on the rest minus accuracy on the slice."""
        return self.rest - self.accuracy

    @property
    def name(self) -> str:
        """Description of the slice, with its shift."""
        return ", ".join(self.words) + ("" if self.shift == CLEAN else f", under {self.shift}")

    def __str__(self) -> str:
        whole = " ".join(["the other images", *(f"of {each}" for each in self.part_of)])
        also = f" (nearly the same images: {'; '.join(self.also)})" if self.also else ""
        return (
            f"{self.name}: accuracy {_percent(self.accuracy)} ({100 * self.low:.0f} to {_percent(self.high)}) on "
            f"{self.images:,} images, {_percent(self.rest)} on {whole}{also}"
        )

    def to_row(self) -> dict[str, Json]:
        """Return it as JSON-compatible values."""
        return {"slice": self.name, "told": str(self), **asdict(self), "effect": self.effect}


@dataclass(frozen=True)
class WeakSlices:
    """The weak slices found, the worst first, and the power of the search.

    `members` [S, N] says which images are in each.

    Args:
        slices: The slices, the worst first.
        tested: Number of groups tested.
        images: Number of images.
        accuracies: Accuracy under each shift.
        power: Smallest effect that can be detected, by number of images.
        members: Which images are in each slice, [S, N].
    """

    slices: tuple[WeakSlice, ...]
    tested: int
    images: int
    accuracies: Mapping[str, float]
    power: tuple[tuple[int, float], ...]
    members: Bools

    def __len__(self) -> int:
        return len(self.slices)

    @property
    def power_note(self) -> str:
        """A sentence on the smallest effect that can be detected."""
        if not self.tested:
            return f"No group has enough images to be tested: {self.images:,} images are too few."
        told = [
            f"of {size:,} images if its accuracy is under about {100 * accuracy:.0f}%" if accuracy > 0 else ""
            for size, accuracy in self.power
        ]
        found = ", ".join(filter(None, told)) or f"of up to {self.power[-1][0]:,} images, however bad"
        verb = "is found" if any(told) else "is never found"
        return (
            f"{self.tested:,} groups were tested. With {100 * POWER:.0f}% probability a slice {verb} {found}; "
            "a milder one may well exist."
        )

    def to_rows(self) -> list[dict[str, Json]]:
        """Return one row per slice."""
        return [each.to_row() for each in self.slices]


class _Tests(NamedTuple):
    """Groups under test, one row of each array per group: its shift, its one or two bins (-1: none), and counts.

    `whole_images` and `whole_errors` are of what it is part of: all images, or the bin `part_of` of its two.
    """

    shift: Counts
    bins: Counts
    part_of: Counts
    images: Counts
    errors: Counts
    whole_images: Counts
    whole_errors: Counts
    p: NDArray[np.float64]


@dataclass(frozen=True)
class _Bins:
    """All bins with support, of all attributes: members [B, N], words, and which attribute each is of.

    `same` are the words of bins of other attributes that have exactly the images of each, and are not tested again.
    """

    members: Bools
    words: tuple[str, ...]
    owners: Counts
    same: tuple[tuple[str, ...], ...]

    def of(self, chosen: Counts) -> Bools:
        """Return the images that are in all of some bins; -1 is no bin."""
        return np.asarray(self.members[[each for each in chosen.tolist() if each >= 0]].all(0))


def find_weak_slices(
    right: Mapping[str, ArrayLike] | ArrayLike,
    columns: Mapping[str, Column],
    *,
    labels: ArrayLike | None = None,
    classes: Sequence[str] = (),
    q: float = FALSE_SHARE,
    min_support: int = MIN_SUPPORT,
    min_effect: float = MIN_EFFECT,
) -> WeakSlices:
    """Find groups of images on which a model is less accurate than on the rest, the largest lower-bounded effect first.

    Groups are bins of one column and pairs of bins of two columns, under one shift each; numeric columns are cut into
    fifths, and the labels are a column too.

    Args:
        right: Whether each image is predicted correctly, [N]; or a mapping from shift to that, for the same images.
        columns: One value per image, such as metadata or image statistics, by the name of the column.
        labels: Class indices, [N].
        classes: Class names.
        q: False discovery rate.
        min_support: Smallest number of images in a slice.
        min_effect: Smallest loss of accuracy to look for, as a fraction.

    >>> rng = np.random.default_rng(0)
    >>> camera = np.repeat(["a", "b", "c", "d"], 250)
    >>> right = rng.random(1000) < np.where(camera == "b", 0.6, 0.9)
    >>> print(*find_weak_slices(right, {"camera": camera}).slices)
    camera b: accuracy 58% (50 to 66%) on 250 images, 90% on the other images
    """
    answers = right if isinstance(right, Mapping) else {CLEAN: right}
    wrong = np.stack([~np.asarray(each, bool) for each in answers.values()])
    shifts, images = tuple(answers), wrong.shape[1]
    known = attributes(columns, images)
    if labels is not None:
        known = [*attributes_of_classes(labels, classes, images), *known]
    support = max(min_support, int(np.ceil(MIN_SHARE * images)))
    bins = _with_support(known, images, support)
    tests = _tested(wrong, bins, support)
    named = _benjamini_hochberg(tests.p, q)
    level = 1 - q * max(1, len(named)) / max(1, len(tests.p))
    found = [(_slice(tests, place, bins, shifts, level), bins.of(tests.bins[place])) for place in named.tolist()]
    large = [each for each in found if each[0].effect >= min_effect and each[0].errors >= MIN_ERRORS]
    measured = frozenset(word for each in known if each.name in EXTREMES for word in each.words)
    kept = _told_once(sorted(large, key=lambda each: -each[0].effect_low), measured)
    return WeakSlices(
        slices=tuple(each for each, _ in kept),
        tested=len(tests.p),
        images=images,
        accuracies={shift: float(1 - errors.mean()) for shift, errors in zip(shifts, wrong, strict=True)},
        power=_powers(float(wrong[0].mean()), images, support, len(tests.p), q),
        members=np.array([inside for _, inside in kept], bool).reshape(-1, images),
    )


def _with_support(known: Sequence[Attribute], images: int, support: int) -> _Bins:
    """Return the bins that have enough images, each set of images once, with all that it is called."""
    members, owners, words = [], [], dict[bytes, list[str]]()
    for owner, attribute in enumerate(known):
        for place, word in enumerate(attribute.words):
            inside = attribute.bins == place
            if not support <= inside.sum() < images:
                continue
            if (content := inside.tobytes()) not in words:
                words[content] = []
                members.append(inside)
                owners.append(owner)
            words[content].append(word)
    return _Bins(
        np.array(members, bool).reshape(-1, images),
        tuple(first for first, *_ in words.values()),
        np.array(owners, np.int64),
        tuple(tuple(rest) for _, *rest in words.values()),
    )


def _tested(wrong: Bools, bins: _Bins, support: int) -> _Tests:
    """Test every bin and every pair of bins of two attributes, under every shift."""
    inside = bins.members.astype(np.float64)  # whose products are counts, and quick
    together = np.rint(inside @ inside.T).astype(np.int64)
    ones = np.arange(len(inside))
    apart = np.triu(bins.owners[:, None] != bins.owners[None, :]) & (together >= support)
    some, other = np.nonzero(apart & (together < np.minimum.outer(np.diag(together), np.diag(together))))
    made = []
    for shift, errors in enumerate(wrong.astype(np.float64)):
        own = np.rint(inside @ errors).astype(np.int64)
        pairs = np.rint((inside * errors) @ inside.T).astype(np.int64)
        sizes = np.diag(together)
        everything = np.full_like(ones, len(errors)), np.full_like(ones, int(errors.sum()))
        singles = _Tests(
            np.full_like(ones, shift), np.stack([ones, ones * 0 - 1], 1), ones * 0 - 1, sizes, own, *everything,
            _more_errors(own, sizes, everything[1], everything[0]),
        )  # fmt: skip
        counts = pairs[some, other], together[some, other]
        against = np.stack([_more_errors(*counts, own[parent], sizes[parent]) for parent in (some, other)])
        harder = against.argmax(0)
        parents = np.where(harder == 0, some, other)
        made += [
            singles,
            _Tests(
                np.full_like(some, shift), np.stack([some, other], 1), parents, counts[1], counts[0],
                sizes[parents], own[parents], against.max(0, initial=0.0),
            ),
        ]  # fmt: skip
    return _Tests(*(np.concatenate(parts) for parts in zip(*made, strict=True)))


def _more_errors(errors: Counts, images: Counts, whole_errors: Counts, whole_images: Counts) -> NDArray[np.float64]:
    """Return Fisher's one-sided p: how often so many errors or more fall into a part of the whole by chance."""
    from scipy.stats import hypergeom

    return np.asarray(hypergeom.sf(errors - 1, whole_images, whole_errors, images))


def _benjamini_hochberg(p: NDArray[np.float64], q: float) -> Counts:
    """Return the places of the hypotheses that are rejected at a false discovery rate of q."""
    order = np.argsort(p, kind="stable")
    below = np.nonzero(p[order] <= q * np.arange(1, len(p) + 1) / max(1, len(p)))[0]
    return order[: below[-1] + 1] if len(below) else order[:0]


def _slice(tests: _Tests, place: int, bins: _Bins, shifts: Sequence[str], level: float) -> WeakSlice:
    images, errors = int(tests.images[place]), int(tests.errors[place])
    rest = int(tests.whole_images[place]) - images
    wrong_rest = int(tests.whole_errors[place]) - errors
    low, high = proportion_intervals(images - errors, images, confidence=level)
    rest_low, rest_high = proportion_intervals(rest - wrong_rest, rest, confidence=level)
    accuracy, other = 1 - errors / images, 1 - wrong_rest / rest
    effect = other - accuracy
    parent = int(tests.part_of[place])
    own = [each for each in reversed(tests.bins[place].tolist()) if each >= 0]
    words = tuple(bins.words[each] for each in own)
    found = WeakSlice(
        words=words,
        part_of=() if parent < 0 else (bins.words[parent],),
        shift=shifts[int(tests.shift[place])],
        images=images,
        errors=errors,
        accuracy=accuracy,
        low=float(low),
        high=float(high),
        rest=other,
        # The limits of two independent shares are combined by Newcombe's square-and-add rule (1998, method 10).
        effect_low=float(effect - np.hypot(other - rest_low, high - accuracy)),
        effect_high=float(effect + np.hypot(rest_high - other, accuracy - low)),
        p=float(tests.p[place]),
    )
    others = [(*words[:at], word, *words[at + 1 :]) for at, each in enumerate(own) for word in bins.same[each]]
    return replace(found, also=tuple(replace(found, words=each).name for each in others))


def _told_once(found: Sequence[tuple[WeakSlice, Bools]], measured: Collection[str]) -> list[tuple[WeakSlice, Bools]]:
    """Return slices without those of nearly the same images as another, which is told in the simplest words.

    `measured` are words of what is computed of pixels, which are taken last; of equally simple ones the worst is told.
    """
    kept: list[tuple[WeakSlice, Bools]] = []

    def plainness(one: WeakSlice) -> tuple[int, bool, bool]:
        return len(one.words), one.shift != CLEAN, not set(one.words).isdisjoint(measured)

    for each, inside in found:
        same = next((place for place, (_, other) in enumerate(kept) if _jaccard(inside, other) > SAME_IMAGES), None)
        if same is None:
            kept.append((each, inside))
            continue
        simplest, other = sorted([kept[same][0], each], key=plainness)
        also = (*kept[same][0].also, *each.also, other.name)
        kept[same] = (replace(simplest, also=also), inside if simplest.name == each.name else kept[same][1])
    return kept


def _jaccard(one: Bools, other: Bools) -> float:
    return float((one & other).sum() / (one | other).sum())


def _powers(error: float, images: int, support: int, tested: int, q: float) -> tuple[tuple[int, float], ...]:
    """Return, for slices of several sizes, the accuracy below which one is found with probability `POWER`.

    That is where it is the only one, and is compared with all images.
    """
    from scipy.stats import binom, hypergeom

    if not tested:
        return ()
    found = []
    for size in sorted({support, 5 * support, 20 * support}):
        if size > images / 2:
            break
        errors = np.arange(MIN_ERRORS, size + 1)
        enough = errors[hypergeom.sf(errors - 1, images, max(1, round(error * images)), size) <= q / tested]
        rates = np.linspace(0, 1, 101)
        sure = rates[binom.sf(enough[0] - 1, size, rates) >= POWER] if len(enough) else rates[:0]
        found.append((size, float(1 - sure[0]) if len(sure) else 0.0))
    return tuple(found)


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"
