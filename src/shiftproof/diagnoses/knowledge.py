"""What is known before new images are looked at: how a labelled source looks to a model, as it is and under shifts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftproof.data import as_images
from shiftproof.diagnoses.asking import packed, unpacked
from shiftproof.diagnoses.explaining import TOGETHER, Curves, Floats, KnownShift, left_out_shares
from shiftproof.diagnoses.signature_space import SignatureSpace
from shiftproof.diagnoses.signatures import signatures
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.runs import Executor, OnProgress, Plan, Row, Store, Task, drive
from shiftproof.shifts import Shift
from shiftproof.shifts.catalogue import corruption
from shiftproof.shifts.chain import ImageChain
from shiftproof.shifts.image_shift import ImageShift
from shiftproof.subjects import Measurer, Subject

KINDS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
"""The fifteen common corruptions."""
SEVERITIES = (1.0, 2.0, 3.0, 4.0, 5.0)
KNOWN, PAIRED, PART = 256, 128, 256
"""Images of the source that every shift, and every two of them, are measured on; images in a task."""
GROUPS, GROUP = 8, 32
"""Averages that are kept of a shift's images, and images in one."""
LEAST_IMAGES = 10
UNKNOWN, HALF = 0.9, 0.5
"""Nothing known explains a change of which more is left than of left-out kinds nine times in ten, or than half."""


@dataclass(frozen=True)
class SignedSlice(Task[Subject]):
    """Signatures of a slice of the images under a shift: image by image, or averages over runs of `group` images."""

    kind = "signatures"
    shift: Shift | None
    start: int
    stop: int
    group: int
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Return the signatures, packed, and the predicted classes."""
        rows, predicted = [], []
        chosen = as_images(subject.data).subset(range(self.start, self.stop))
        for batch in chosen.batches(subject.batch_size, device=subject.device):
            images = batch.inputs if self.shift is None else self.shift(batch.inputs, batch.keys, seed=self.seed)
            found, scores = signatures(subject.model, images)
            rows.append(found)
            predicted.append(scores.argmax(1).numpy())
        made = np.concatenate(rows)
        cuts = range(self.group, len(made), self.group)
        averages = np.stack([part.mean(0) for part in np.split(made, cuts)]) if self.group > 1 else made
        answers = np.concatenate(predicted).tolist()
        return {"rows": len(averages), "signatures": packed(averages), "predicted": answers}


@dataclass(frozen=True, eq=False)
class Signed:
    """Signatures of images, or averages over groups of them, [G, 2 C], and the predicted classes, [N]."""

    rows: NDArray[np.float32]
    predicted: NDArray[np.int64]

    @cached_property
    def mean(self) -> NDArray[np.float32]:
        """The signature of all of them."""
        return np.asarray(self.rows.mean(0))


def chain(parts: Sequence[KnownShift]) -> ImageShift:
    """Return shifts one after the other as one."""
    steps = tuple(corruption(part.kind, min(5.0, round(part.severity, 2))) for part in parts)
    return steps[0] if len(steps) == 1 else ImageChain(steps=steps)


@dataclass(frozen=True, eq=False)
class Measuring:
    """Where signatures are measured: a subject, its run directory, and who runs what is missing."""

    subject: Subject
    out: Path
    executor: Executor
    seed: int = 0
    on_progress: OnProgress | None = None

    def signed(self, shifts: Sequence[Shift | None], images: int, group: int) -> list[Signed]:
        """Return the signatures of the first images under each shift; what the run directory lacks is measured."""
        images = min(images, len(self.subject.data))
        cuts = list(range(0, images, PART))
        tasks = tuple(
            SignedSlice(shift, start, min(start + PART, images), group, self.seed) for shift in shifts for start in cuts
        )
        with Store(self.out, self.subject.identity) as store:
            self.subject.check_answers(store)
            plan = Plan(tasks, self.subject.fingerprints)
            setup = partial(Measurer, self.subject)
            results = drive(
                plan, store, setup, executor=self.executor, on_progress=self.on_progress, essential="A measurement"
            )
        found = {result.task: result.row for result in results if result.row is not None}
        rows = [found[task] for task in tasks]
        return [_joined(rows[number : number + len(cuts)]) for number in range(0, len(rows), len(cuts))]


def _joined(rows: Sequence[Row]) -> Signed:
    parts = [unpacked(row["signatures"], int(str(row["rows"])), -1) for row in rows]
    answers: list[int] = []
    for row in rows:
        held = row["predicted"]
        assert isinstance(held, Sequence)
        answers += [int(str(each)) for each in held]
    return Signed(np.concatenate(parts), np.array(answers, np.int64))


@dataclass(frozen=True, eq=False)
class Knowledge:
    """A labelled source as a model sees it: its space, and the curves of all known shifts in it."""

    space: SignatureSpace
    source: Signed
    labels: NDArray[np.int64]
    kinds: tuple[str, ...]
    shifted: Mapping[KnownShift, Signed]
    together: Mapping[tuple[str, str], Signed]

    @classmethod
    def of(cls, measuring: Measuring, *, kinds: Sequence[str] = KINDS, pairs: bool = True) -> Knowledge:
        """Measure what is not known yet of a labelled source."""
        data = as_images(measuring.subject.data)
        if not kinds:
            raise ConfigurationError("No shifts to look for.", expected="corruptions such as fog", got="none")
        if data.labels is None or len(data) < LEAST_IMAGES:
            raise DataError(
                "The source is too small, or has no labels.",
                expected=f"at least {LEAST_IMAGES} labelled images like those the model was trained on",
                got="images without labels" if data.labels is None else f"{len(data)} images",
            )
        (source,) = measuring.signed([None], len(data), 1)
        singles = [KnownShift(kind, severity) for kind in kinds for severity in SEVERITIES]
        shifted = measuring.signed([chain([each]) for each in singles], KNOWN, GROUP)
        both = list(permutations(kinds, 2)) if pairs else []
        chains = [chain([KnownShift(kind, TOGETHER) for kind in each]) for each in both]
        together = measuring.signed(chains, PAIRED, PAIRED) if both else []
        labels = data.labels.numpy()
        return cls(
            SignatureSpace.of(source.rows, labels),
            source,
            labels,
            tuple(kinds),
            dict(zip(singles, shifted, strict=True)),
            dict(zip(both, together, strict=True)),
        )

    @cached_property
    def curves(self) -> Curves:
        """The curves of all kinds."""
        return self.resampled(None, self.kinds)

    @cached_property
    def unknown_share(self) -> float:
        """The share of a change that may stay unexplained, by what left-out kinds leave."""
        return min(HALF, float(np.quantile(self._left_out, UNKNOWN)))

    @property
    def left_out_range(self) -> tuple[float, float]:
        """Within which the share of a change is that other kinds leave of a left-out one, from the least to the most.

        Of a kind that is not known it is too, nine times in ten: with fifteen kinds that takes all of the range.
        """
        return float(self._left_out.min()), float(self._left_out.max())

    @cached_property
    def _left_out(self) -> Floats:
        return left_out_shares(self.curves)

    def resampled(self, weights: Floats | None, kinds: tuple[str, ...]) -> Curves:
        """Return the curves of some kinds, with weights on the groups of images that they were measured on."""
        clean = self._clean_groups
        shares = np.full(len(clean), 1 / len(clean)) if weights is None else weights
        before = self.space.coordinates(shares @ clean)
        points = np.stack(
            [
                [
                    self.space.coordinates(shares @ self.shifted[KnownShift(kind, severity)].rows) - before
                    for severity in SEVERITIES
                ]
                for kind in kinds
            ]
        )
        errors = self._errors[[self.kinds.index(kind) for kind in kinds]]
        return Curves(kinds, SEVERITIES, self.space.without_mix(points), self._together(kinds), errors)

    @cached_property
    def _clean_groups(self) -> NDArray[np.float32]:
        """The signatures of the groups of images that shifts were measured on, as they are."""
        count = min(KNOWN, len(self.labels))
        return np.stack([part.mean(0) for part in np.split(self.source.rows[:count], range(GROUP, count, GROUP))])

    @cached_property
    def _errors(self) -> Floats:
        """The squared errors of all points, by how far groups of images are apart, [kinds, severities]."""
        before, groups = self.space.coordinates(self._clean_groups), len(self._clean_groups)
        if groups < 2:
            return np.zeros((len(self.kinds), len(SEVERITIES)))

        def error(kind: str, severity: float) -> float:
            rows = self.shifted[KnownShift(kind, severity)].rows
            moved = self.space.without_mix(self.space.coordinates(rows) - before)
            return float(moved.var(0, ddof=1).sum()) / groups

        return np.array([[error(kind, severity) for severity in SEVERITIES] for kind in self.kinds])

    def change(self, signature: NDArray[np.floating]) -> Floats:
        """Return how the first images of the source changed that a signature of them, shifted, is of."""
        before = self.space.coordinates(self.source.rows[: min(KNOWN, len(self.labels))].mean(0))
        return self.space.without_mix(self.space.coordinates(signature) - before)

    def _together(self, kinds: tuple[str, ...]) -> Floats | None:
        """Return what two shifts change beyond the sum of both, [kinds, kinds, D]."""
        if not self.together:
            return None
        made = np.zeros((len(kinds), len(kinds), len(self.space.error)))
        for (one, other), change in self._joint.items():
            if one in kinds and other in kinds:
                made[kinds.index(one), kinds.index(other)] = change
        return made

    @cached_property
    def _joint(self) -> dict[tuple[str, str], Floats]:
        images = min(PAIRED, len(self.labels))
        before = self.space.coordinates(self.source.rows[:images].mean(0))

        def moved(signature: NDArray[np.floating]) -> Floats:
            return self.space.coordinates(signature) - before

        runs = -(-images // GROUP)
        sizes = np.minimum(GROUP, images - GROUP * np.arange(runs))
        alone = {
            kind: moved(np.average(self.shifted[KnownShift(kind, TOGETHER)].rows[:runs], axis=0, weights=sizes))
            for kind in self.kinds
        }
        return {
            (one, other): self.space.without_mix(moved(found.mean) - alone[one] - alone[other])
            for (one, other), found in self.together.items()
        }
