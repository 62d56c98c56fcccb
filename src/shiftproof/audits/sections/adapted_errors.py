"""Errors with batch statistics beside the plain ones: partial adaptation, in small batches, and full adaptation.

A part of the section `adaptation`: what Schneider et al. 2020 propose to report beside every error under corruption.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from shiftproof import shifts
from shiftproof.adapters import Adapter, make_adapter
from shiftproof.adapters import method as find
from shiftproof.audits.sections.base import READ, Measurement, Scope, Unit, Work, shifting
from shiftproof.audits.sections.measuring import check_labels, is_imagenet
from shiftproof.audits.sections.shift_names import cell_of, named
from shiftproof.audits.sections.wording import listed, title
from shiftproof.errors import ModelError
from shiftproof.measures import Accuracy, mce
from shiftproof.reports.view import Column, Table
from shiftproof.runs import Json, Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

BATCH = 8
"""Images of a batch of partial adaptation, the paper's."""
PRIORS = (0, 4, 16, 64, 256)
IMAGES: Mapping[str, int] = {"quick": 64, "standard": 1_000, "full": 5_000}
CHOICE_IMAGES: Mapping[str, int] = {"quick": 32, "standard": 256, "full": 500}
"""Images under each hold-out corruption that the prior is chosen on."""
HOLDOUT_SEVERITY = 3.0
WHOLE = 512
"""Full adaptation takes so many images as one batch, at most."""
COMMON = shifts.names("common")


@dataclass(frozen=True)
class AdaptedErrors(Measurement):
    """Shifted images with batch statistics: with a prior in small batches, and without one in a large one.

    One task, because the prior is chosen on the hold-out corruptions first, for all shifts.
    """

    kind = "adaptation.errors"
    shifts: tuple[Shift, ...]
    holdout: tuple[Shift, ...]
    images: int
    choice_images: int
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Choose the prior, then count right answers under every shift."""
        try:
            model = subject.adapted_model
            adapters = {prior: make_adapter(model, "bn", preset=None, given={"prior": prior}) for prior in PRIORS}
        except ModelError as error:
            return {"applies": False, "reason": error.headline}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a last batch of one image is told of elsewhere
            choice = dict.fromkeys(PRIORS, 0)
            for shift in self.holdout:
                images, labels = self._shifted(subject, shift, self.choice_images)
                for prior, adapter in adapters.items():
                    choice[prior] += _right(adapter, images, labels, BATCH)
            best = max(PRIORS, key=lambda prior: (choice[prior], -prior))
            partial: dict[str, Json] = {}
            full: dict[str, Json] = {}
            for shift in self.shifts:
                images, labels = self._shifted(subject, shift, self.images)
                partial[shift.label] = _right(adapters[best], images, labels, BATCH)
                full[shift.label] = _right(adapters[0], images, labels, WHOLE)
        tried = self.choice_images * len(self.holdout)
        return {
            "images": self.images,
            "prior": best,
            "choice": {str(prior): right / tried for prior, right in choice.items()},
            "partial": partial,
            "full": full,
            "imagenet": is_imagenet(subject),
        }

    def _shifted(self, subject: Subject, shift: Shift, count: int) -> tuple[Tensor, Tensor]:
        parts = [
            (shift(part.inputs, part.keys, seed=self.seed), part.labels)
            for part in subject.data.subset(range(count)).batches(WHOLE, device=subject.device)
        ]
        labels = [check_labels(labels, int(labels.max()) + 1) for _, labels in parts if labels is not None]
        return torch.cat([images for images, _ in parts]), torch.cat(labels)

    def work(self) -> Work:
        """Count images through adapters in small batches and in large ones."""
        bn, chosen, all_of = find("bn"), self.choice_images * len(self.holdout), self.images * len(self.shifts)
        shifted = [unit for shift in self.shifts for unit in shifting(shift, self.images)]
        shifted += [unit for shift in self.holdout for unit in shifting(shift, self.choice_images)]
        small, large = Unit("adapt", bn, BATCH), Unit("adapt", bn, min(WHOLE, self.images))
        return [
            (READ, chosen + all_of),
            *shifted,
            (Unit("adapter", bn), float(len(PRIORS))),
            (small, float(chosen * len(PRIORS) + all_of)),
            (large, float(all_of)),
        ]


def plan_errors(scope: Scope, strongest: tuple[Shift, ...]) -> AdaptedErrors:
    """Plan the strongest severity of every shift; where the budget is full, all of them, as mCE needs."""
    settings = scope.settings
    return AdaptedErrors(
        scope.grid() if settings.budget == "full" else strongest,
        tuple(shifts.corruption(name, HOLDOUT_SEVERITY) for name in shifts.names("holdout")),
        min(scope.images, scope.scaled(IMAGES[settings.budget], 24)),
        min(scope.images, scope.scaled(CHOICE_IMAGES[settings.budget], 8)),
        settings.seed,
    )


def errors_table(
    task: AdaptedErrors, row: Row, source: Mapping[str, Accuracy], plain: Mapping[str, float]
) -> tuple[Table, dict[str, float]]:
    """Return the table of a measured row, and its mean errors.

    `plain` are errors of the model as it is on the same images, by label of the shift, where they are known.
    """
    adapted = {
        kind: {label: 1 - right / task.images for label, right in cast("Mapping[str, int]", row[kind]).items()}
        for kind in ("partial", "full")
    }
    strongest = {named(shift): shift.label for shift in task.shifts}  # the last of a name is the strongest
    order = sorted(strongest, key=lambda name: source[name].value if name in source else 0.0)
    body = [
        (title(name), plain.get(strongest[name]), *(adapted[kind][strongest[name]] for kind in adapted))
        for name in order
    ]
    means = {kind: float(np.mean([errors[strongest[name]] for name in order])) for kind, errors in adapted.items()}
    known = [plain[strongest[name]] for name in order if strongest[name] in plain]
    whole = float(np.mean(known)) if len(known) == len(order) else None
    numbers = {f"adapted_error.{kind}": value for kind, value in means.items()}
    if bool(row.get("imagenet")):
        numbers |= {f"adapted_mce.{kind}": value for kind in adapted if (value := _mce(task.shifts, adapted[kind]))}
    prior, batch = cast(int, row["prior"]), min(WHOLE, task.images)
    table = Table(
        f"Error with batch statistics: partial adaptation ({BATCH} images at a time) and full adaptation",
        (
            Column("corruption"),
            Column("unadapted", "percent", heat=(1.0, 0.0)),
            Column(f"partial (n = {BATCH}, N = {prior})", "percent", heat=(1.0, 0.0)),
            Column(f"full (n = {batch})", "percent", heat=(1.0, 0.0)),
        ),
        (("mean", whole, *means.values()), *body),
        caption=f"Errors at the strongest severity on {task.images:,} images, as Schneider et al. 2020 propose to "
        f"report them: with the statistics of n images, in which those of the source count for N. N was chosen on "
        f"{listed([title(shift.name) for shift in task.holdout])}, none of which is in the table.",
    )
    return table, numbers


def _mce(measured: Sequence[Shift], errors: Mapping[str, float]) -> float | None:
    """Return the mean corruption error, where the fifteen corruptions are there at five severities."""
    cells = {cell_of(shift): errors[shift.label] for shift in measured}
    wanted = {name: [(name, float(severity)) for severity in range(1, 6)] for name in COMMON}
    if not all(cell in cells for some in wanted.values() for cell in some):
        return None
    return mce({name: [cells[cell] for cell in some] for name, some in wanted.items()})


def _right(adapter: Adapter, images: Tensor, labels: Tensor, batch: int) -> int:
    """Return how many answers of an adapter that keeps nothing are right."""
    answers = torch.cat([adapter(part).argmax(1).cpu() for part in torch.split(images, batch)])
    return int((answers == labels.cpu()).sum())
