"""What new images behave like: the shifts that make a labelled source look to the model as they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shiftproof.diagnoses.explaining import HIGHEST, Curves, Fit, Floats, KnownShift
from shiftproof.diagnoses.knowledge import Knowledge, Signed
from shiftproof.runs import Json

DRAWS, NULL_DRAWS = 60, 100
BETTER = 0.75
"""Two shifts are named where they leave less than this share of what one leaves, and one does not fit within error."""
OTHERS = 1.3
"""The null is of images of the source itself; other images like them are up to this much further off."""
FITS = 2.7
"""A fit is within error up to so many times the misfit that is expected of the right shifts (by the benchmark)."""
GRID = 0.1
"""What an interval of a severity reaches to either side at least, for every shift that was fitted with it."""
TRIED, CORRECTED = 4, 2
"""Pairs that are really applied to decide between them, and how often the severities of the best are corrected more."""
RUNNERS = 3
MIX_DISTANCE = 0.1
"""Predicted classes that differ in more than this share of images, beyond chance, say that the class mix changed."""

Counts: TypeAlias = NDArray[np.int64]


class Severity(NamedTuple):
    """A shift that the images behave like: its severity, and the interval of it."""

    kind: str
    severity: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.kind.replace('_', ' ')} {self.severity:.1f} ({self.low:.1f} to {self.high:.1f})"


class RunnerUp(NamedTuple):
    """Other shifts that could be it: how much more of the change they leave, and how often a resample prefers them."""

    shifts: tuple[KnownShift, ...]
    times_left: float
    chosen: float

    def __str__(self) -> str:
        return " then ".join(f"{part.kind.replace('_', ' ')} {part.severity:.1f}" for part in self.shifts)


@dataclass(frozen=True)
class Likeness:
    """What images behave like: shifts in order with severities, what they leave unexplained, and the runners-up.

    `size` is the squared change in units of its sampling error, about 1 where nothing changed but the images, and
    `threshold` what it may be then; `misfit` is what the shifts leave of it, and `within_error` what the right ones may
    leave. `unexplained` is the share of the change that the shifts leave, and `unknown_share` how much of it they may
    leave and still be said to explain it. Of a kind that is not known, others leave a share within `left_out`, nine
    times in ten.
    """

    shifts: tuple[Severity, ...]
    size: float
    threshold: float
    misfit: float
    unexplained: float
    unknown_share: float
    within_error: float
    left_out: tuple[float, float]
    runners_up: tuple[RunnerUp, ...]
    source_mix: tuple[float, ...]
    mix: tuple[float, ...]
    mix_changed: bool = False

    @property
    def nothing(self) -> bool:
        """Whether the images look like the source's, but for the class mix."""
        return self.size <= self.threshold

    @property
    def unknown(self) -> bool:
        """Whether none of the known shifts explains the change."""
        return not self.nothing and not self.exact and self.unexplained > self.unknown_share

    @property
    def exact(self) -> bool:
        """Whether the shifts explain the change but for error; otherwise it may be a kind that is not known."""
        return not self.nothing and self.misfit <= self.within_error

    @property
    def mix_distance(self) -> float:
        """The share of images whose class would have to change for the source's mix (total variation)."""
        return float(np.abs(np.subtract(self.mix, self.source_mix)).sum() / 2)

    def to_row(self) -> dict[str, Json]:
        """Return it as JSON-compatible values."""
        return {**asdict(self), "nothing": self.nothing, "unknown": self.unknown, "exact": self.exact}


Applied: TypeAlias = Callable[[Sequence[KnownShift]], Signed]
"""Shifts that are really applied, one after the other, to the first images of the source."""


def likeness(known: Knowledge, new: Signed, images: int, applied: Applied | None = None, *, seed: int = 0) -> Likeness:
    """Return what new images behave like, from averages over groups of them.

    `applied` decides between pairs by really applying them; without it the curves do.
    """
    rng = np.random.default_rng(seed)
    space = known.space
    place, threshold = space.coordinates(new.mean), _null(known, images, rng)
    mix = space.nearest_mix(place)
    off = space.without_mix(place - mix.place)
    size = float(off @ off) / (1 / images + mix.error(space.counts)) / space.dimensions
    own = tuple((space.counts / space.counts.sum()).tolist())
    error = 1 / images + 1 / len(known.labels)
    same = Likeness(
        shifts=(),
        size=size,
        threshold=threshold,
        misfit=size,
        unexplained=0.0,
        unknown_share=known.unknown_share,
        within_error=FITS,
        left_out=known.left_out_range,
        runners_up=(),
        source_mix=own,
        mix=tuple(mix.shares.tolist()),
    )
    if same.nothing:
        return replace(same, mix_changed=same.mix_distance > _mix_error(known, images))
    change = space.without_mix(place)
    scale = 1 / error / space.dimensions
    fits = _ranked(known.curves, change, scale, threshold)
    best = fits[0] if applied is None or len(fits[0].parts) == 1 else _tried(known, change, fits, applied)
    chosen, severities = _resampled(known, new, best, rng)
    size, misfit = float(change @ change) * scale, max(0.0, best.left) * scale
    with_error = misfit + known.curves.error_of(best.parts) * scale
    return replace(
        same,
        shifts=tuple(
            _severity(known.curves, part, values, with_error, GRID * len(best.parts))
            for part, values in zip(best.parts, severities, strict=True)
        ),
        size=size,
        misfit=misfit,
        unexplained=min(1.0, max(0.0, misfit - threshold) / max(size - threshold, 1e-9)),
        runners_up=_runners(fits, best, chosen, 1 / scale),
        mix=own,
    )


def with_mix(found: Likeness, labels: Counts, shifted: Counts, new: Counts) -> Likeness:
    """Return a likeness with the class mix of the new images, by what the model predicts of them.

    `shifted` are its predictions on the labelled source under the shifts that were found, [N], with `labels`; `new`
    those on the new images. The mix is the one under which the source would be predicted so (black-box shift
    estimation, Lipton et al. 2018).
    """
    from scipy.optimize import nnls

    classes = max(len(found.source_mix), int(shifted.max()) + 1, int(new.max()) + 1)
    confusion = np.zeros((classes, classes))
    np.add.at(confusion, (shifted, labels), 1.0)
    before, after = np.bincount(shifted, minlength=classes), np.bincount(new, minlength=classes)
    table = np.concatenate([confusion / np.maximum(confusion.sum(0), 1.0), np.full((1, classes), 10.0)])
    shares, _ = nnls(table, np.append(after / after.sum(), 10.0))
    distance = float(np.abs(before / before.sum() - after / after.sum()).sum() / 2)
    return replace(
        found,
        mix=tuple((shares / max(shares.sum(), 1e-9)).tolist()),
        source_mix=tuple((np.bincount(labels, minlength=classes) / len(labels)).tolist()),
        mix_changed=distance > MIX_DISTANCE + _sampling(before, after),
    )


def _sampling(before: Counts, after: Counts) -> float:
    """Return how far apart the shares of two samples are by chance, at most."""
    shares = (before + after) / (before.sum() + after.sum())
    errors = np.sqrt(shares * (1 - shares) * (1 / before.sum() + 1 / after.sum()))
    return 1.5 * float(errors.sum() / 2)


def _ranked(curves: Curves, change: Floats, scale: float, threshold: float) -> list[Fit]:
    """Return fits, the one to name first: a single shift, unless two leave much less and it alone does not fit."""
    singles = curves.singles(change)
    if len(curves.kinds) < 2:
        return singles
    pairs = curves.pairs(change)
    two = pairs[0].left < BETTER * singles[0].left and singles[0].left * scale > threshold
    return [*pairs, *singles] if two else [*singles, *pairs]


def _tried(known: Knowledge, change: Floats, fits: Sequence[Fit], applied: Applied) -> Fit:
    """Return the best of some pairs when they are really applied, their severities corrected by what that shows."""

    def left(parts: tuple[KnownShift, ...]) -> Floats:
        return change - known.change(applied(parts).mean)

    def corrected(parts: tuple[KnownShift, ...], off: Floats) -> tuple[KnownShift, ...]:
        steps = np.linalg.lstsq(known.curves.slopes(parts).T, off, rcond=None)[0].clip(-1, 1)
        moved = (float(np.clip(part.severity + step, 0.1, HIGHEST)) for part, step in zip(parts, steps, strict=True))
        return tuple(part._replace(severity=at) for part, at in zip(parts, moved, strict=True))

    found = [(fit.parts, left(fit.parts)) for fit in fits[:TRIED]]
    found += [(parts, left(parts)) for parts in (corrected(*each) for each in found)]
    best = min(found, key=lambda each: float(each[1] @ each[1]))
    for _ in range(CORRECTED):
        parts = corrected(*best)
        best = min(best, (parts, left(parts)), key=lambda each: float(each[1] @ each[1]))
    return Fit(best[0], float(best[1] @ best[1]) - known.curves.error_of(best[0]))


def _null(known: Knowledge, images: int, rng: np.random.Generator) -> float:
    """Return the size of a change that images like the source's have one time in a hundred."""
    space, rows = known.space, known.source.rows
    sizes = []
    for _ in range(NULL_DRAWS):
        place = space.coordinates(rows[rng.integers(0, len(rows), images)].mean(0))
        off = space.without_mix(place - space.nearest_mix(place).place)
        sizes.append(float(off @ off) * images / space.dimensions)
    return OTHERS * float(np.quantile(sizes, 0.99))


def _mix_error(known: Knowledge, images: int) -> float:
    """Return how far from the truth an estimated mix may be: three times the sampling error of a mix, and 0.05."""
    shares = known.space.counts / known.space.counts.sum()
    return 0.05 + 3 * float(np.sqrt(shares * (1 - shares) / images).sum() / 2)


def _resampled(
    known: Knowledge, new: Signed, best: Fit, rng: np.random.Generator
) -> tuple[Counter[frozenset[str]], Floats]:
    """Return how often each set of shifts fits best, and severities of the best ones, over resamples of all images."""
    space, curves = known.space, known.curves
    kinds = tuple(part.kind for part in best.parts)
    groups, source_groups = len(new.rows), len(next(iter(known.shifted.values())).rows)
    chosen: Counter[frozenset[str]] = Counter()
    severities = []
    for _ in range(DRAWS):
        weights = rng.multinomial(groups, [1 / groups] * groups) / groups
        change = space.without_mix(space.coordinates(weights @ new.rows))
        chosen[(curves.pairs(change) if len(kinds) == 2 else curves.singles(change))[0].kinds] += 1
        shares = rng.multinomial(source_groups, [1 / source_groups] * source_groups) / source_groups
        own = known.resampled(shares, kinds)
        fits = own.singles(change) if len(kinds) == 1 else own.pairs(change)
        fit = next(each for each in fits if tuple(part.kind for part in each.parts) == kinds)
        severities.append([part.severity for part in fit.parts])
    return chosen, np.array(severities).T


def _severity(curves: Curves, part: KnownShift, values: Floats, misfit: float, least: float) -> Severity:
    """Return a severity with its interval: by resamples, the misfit, and the distance to severities measured."""
    spread = float(np.hypot(values.std() * np.sqrt(max(1.0, misfit)), curves.interpolation_error(part.kind)))
    reach = 1.96 * spread + least
    return Severity(part.kind, part.severity, max(0.0, part.severity - reach), min(HIGHEST, part.severity + reach))


def _runners(fits: Sequence[Fit], best: Fit, chosen: Counter[frozenset[str]], error: float) -> tuple[RunnerUp, ...]:
    """Return other shifts; what is below the sampling error is not told apart from it."""
    seen = {best.kinds}
    found = []
    for fit in fits:
        if fit.kinds not in seen:
            seen.add(fit.kinds)
            times = max(fit.left, error) / max(best.left, error)
            found.append(RunnerUp(fit.parts, times, chosen[fit.kinds] / DRAWS))
    return tuple(found[:RUNNERS])
