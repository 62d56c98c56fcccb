"""An estimator of accuracy: calibrated on shifted copies of a labelled set, asked about any number of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from shiftproof.data import DataLike, load_data, matched
from shiftproof.errors import ConfigurationError
from shiftproof.estimators import families, neighborhoods
from shiftproof.estimators.answering import answers_of
from shiftproof.estimators.calibration import Calibration
from shiftproof.estimators.catalogue import METHODS
from shiftproof.estimators.checks import check_method, check_mode, check_outputs, check_source
from shiftproof.estimators.confidence import agreement
from shiftproof.estimators.evidence import BATCH_SIZE, Evidence, as_batches, observe, shifted
from shiftproof.estimators.fitting import CalibrationPlan, begin, copies_of, crossed_shifts, finish
from shiftproof.estimators.neighborhoods import NeighborhoodLike
from shiftproof.estimators.results import LEVEL, Estimate
from shiftproof.estimators.resuming import Kept
from shiftproof.estimators.source_copies import Copy
from shiftproof.models import device_of, fingerprint
from shiftproof.models.identity import digest, plugin_codes
from shiftproof.shifts import Shift, as_shift

COPY_IMAGES, COPY_VIEWED = 300, 30
"""How many inputs each shifted copy of the source has, and how many of these get views."""

VIEW_COST = 0.2
"""Views of a set to estimate may cost so much of a forward pass over it."""


@dataclass(frozen=True, eq=False)
class Estimator:
    """Estimates the accuracy of one model on any number of unlabelled sets.

    `Estimator.fit(model, source)` calibrates on shifted copies of the source; `calibration` can be saved and loaded.

    Args:
        model: A callable from inputs to logits.
        calibration: A calibration on the labelled source.
        seed: Seed of the augmented views.
        batch_size: Inputs per batch.

    >>> from shiftproof import load_data, load_model
    >>> estimator = Estimator.fit(load_model("demo"), load_data("demo").take(40), shifts=["contrast@3", "fog@3"], n=2)
    >>> 0 <= estimator(load_data("demo").take(40)).accuracy <= 1
    True
    """

    model: Callable[..., Any]
    calibration: Calibration
    seed: int = 0
    batch_size: int = BATCH_SIZE

    @classmethod
    def fit(
        cls,
        model: Callable[..., Any],
        source: DataLike,
        *,
        shifts: Sequence[str | Shift] | None = None,
        sets: Sequence[DataLike] = (),
        neighborhood: NeighborhoodLike | None = None,
        n: int = 10,
        images: int = COPY_IMAGES,
        temperature: float | None = None,
        methods: Sequence[str] = (),
        seed: int = 0,
        batch_size: int = BATCH_SIZE,
        out: str | Path | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        on_plan: Callable[[CalibrationPlan], None] | None = None,
    ) -> Estimator:
        """Calibrate an estimator on shifted copies of labelled inputs.

        `source` and `sets` are anything that `load_data` takes. A copy has up to `images` inputs of the source.
        `shifts` defaults to those of `estimators.families`; `sets` are labelled sets of your own, each of which counts
        as a family. `temperature` divides the logits; None fits it to the labels. `neighborhood` defaults to
        RandAugment for images and EDA for texts. `methods` names estimators of plugins to use as well. `out` is a run
        directory, which the same call resumes. `on_plan` is called with a `CalibrationPlan`, and `on_progress` as
        on_progress(done, total).
        """
        for name in methods:
            check_method(name)
        others = tuple(dict.fromkeys(name for name in methods if name in METHODS.added))
        check_mode(model)
        given = [load_data(one) for one in (source, *sets)]
        for one in given:
            check_source(one)
        identity = "" if out is None else fingerprint(model)
        labelled, *conditions = [matched(one, model) for one in given]
        neighborhood = neighborhood or neighborhoods.default(labelled)
        chosen = families.shifts_of(labelled) if shifts is None else [as_shift(one) for one in shifts]
        made = neighborhoods.neighborhood(neighborhood)
        batches = as_batches(labelled, batch_size=batch_size, device=device_of(model))
        clean = observe(model, batches, batch_size=batch_size, drift=True)
        begun = begin(
            clean,
            check_outputs(clean),
            temperature=temperature,
            neighborhood=neighborhood,
            n=n,
            others=others,
            classes=labelled.classes,
        )
        some = labelled.take(images, seed=seed)
        own = [one.take(images, seed=seed) for one in conditions]
        also = {f"set {number}: {one.name}": one for number, one in enumerate(own, 1)}
        crossed = crossed_shifts(chosen)
        if on_plan is not None:
            groups = {families.family_of(one) for one in chosen} | {families.CLASS_MIX} | set(also)
            each = [len(some)] * (1 + len(chosen)) + list(map(len, own))
            passes = len(labelled) + sum(count + min(COPY_VIEWED, count) * n for count in each)
            on_plan(CalibrationPlan(len(each), len(groups), passes))

        def copied(what: Shift | str | None) -> list[Copy]:
            given, shift = (also[what], None) if isinstance(what, str) else (some, what)
            found = observe(
                model,
                shifted(as_batches(given, batch_size=batch_size, device=device_of(model)), shift, seed),
                neighborhood=made,
                n=n,
                share=COPY_VIEWED / len(given),
                seed=seed,
                batch_size=batch_size,
                drift=True,
            )
            return copies_of(begun, what, found, crossed=crossed, seed=seed)

        codes = plugin_codes(METHODS, " ".join(others))
        told = [begun.source.temperature, made, n, len(some), seed, others, codes, [one.fingerprint for one in own]]
        terms = {"calibration": digest([*told, crossed])}
        kept = Kept(None if out is None else Path(out), model, identity, labelled, terms, copied)
        copies = kept.copies([None, *chosen, *also], on_progress)
        return cls(model, finish(begun, copies), seed, batch_size)

    def __call__(
        self,
        inputs: Any,
        *,
        method: str = "auto",
        level: float = LEVEL,
        keys: Tensor | None = None,
        other: Callable[..., Any] | None = None,
    ) -> Estimate:
        """Return the estimated accuracy on a `Dataset`, images [N, C, H, W] in [0, 1], or texts.

        `method` is one of `METHODS`, or `auto`: the method with the smallest error on held-out families of shifts, or
        `cbpe` if only the class mix changed. `level` is the coverage of the intervals. `other` is a second model for
        the method `agreement`.
        """
        check_method(method)
        found = self.observe(inputs, keys=keys)
        answers = answers_of(self.calibration, found, level=level, seed=self.seed)
        if other is not None:
            second = observe(other, as_batches(inputs, keys=keys, device=device_of(other)), batch_size=self.batch_size)
            answers["agreement"] = agreement(found.logits, second.logits, seed=self.seed)
        if method not in answers:
            raise ConfigurationError(
                f"The method {method!r} cannot be used here.",
                expected=", ".join(name for name in answers if name != "auto"),
                reason="bn_distance needs a PyTorch module with batch norms, agreement a second model, calibrated "
                "methods shifts of four kinds or more, and those of others to be named in Estimator.fit(methods=...)",
            )
        made = answers.pop(method)
        answers.pop("auto", None)
        return replace(made, others=tuple(one for one in answers.values() if one.method != made.method))

    def observe(self, inputs: Any, *, keys: Tensor | None = None) -> Evidence:
        """Return the model's outputs on the inputs, and on augmented views of a share of them."""
        return observe(
            self.model,
            as_batches(inputs, keys=keys, batch_size=self.batch_size, device=device_of(self.model)),
            neighborhood=neighborhoods.chosen(self.calibration.neighborhood, inputs),
            n=self.calibration.n,
            share=VIEW_COST / self.calibration.n,
            seed=self.seed,
            batch_size=self.batch_size,
            drift=COPY_IMAGES,  # as many as the copies have
        )
