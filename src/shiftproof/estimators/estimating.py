"""`estimate`: the accuracy to expect on inputs without labels, from a labelled set of the same kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.data import Batch, DataLike, Dataset, load_data, matched
from shiftproof.errors import ConfigurationError, DataError, ModelError
from shiftproof.estimators import families, neighborhoods
from shiftproof.estimators.answering import answers_of
from shiftproof.estimators.calibration import Calibration
from shiftproof.estimators.catalogue import METHODS
from shiftproof.estimators.confidence import agreement
from shiftproof.estimators.evidence import BATCH_SIZE, Evidence, as_batches, observe
from shiftproof.estimators.fitting import CalibrationPlan, begin, copies_of, crossed_shifts, finish
from shiftproof.estimators.from_outputs import estimate_outputs
from shiftproof.estimators.map_estimates import check_map_options, estimate_maps
from shiftproof.estimators.neighborhoods import NeighborhoodLike
from shiftproof.estimators.results import LEVEL, Estimate
from shiftproof.estimators.resuming import Kept
from shiftproof.estimators.source_copies import Copy
from shiftproof.models import ModelLike, device_of, fingerprint, load_model
from shiftproof.models.identity import digest, plugin_codes
from shiftproof.models.outputs import are_probabilities
from shiftproof.prediction_tasks import task_of
from shiftproof.registry import unknown
from shiftproof.runs import OnProgress, write_atomically
from shiftproof.runs.files import expand
from shiftproof.shifts import Shift, as_shift
from shiftproof.subjects import Subject

FILE = "estimate.json"
KINDS = (
    "speckle_noise",
    "gaussian_blur",
    "spatter",
    "saturate",
    "blue_noise_sample",
    "caustic_refraction",
    "cocentric_sine_waves",
    "pinch_and_twirl",
    "plasma_noise",
    "sparkles",
)
"""Corruptions that are none of the fifteen common ones, on which audits and benchmarks test."""

TEXT_KINDS = (
    "synonym_replacement",
    "random_insertion",
    "random_swap",
    "random_deletion",
    "random_replacement",
    "typos",
    "ocr_confusions",
    "spacing",
)
"""Edits of texts to calibrate on; the last three make words that nobody has seen."""

IMAGES, COPY_IMAGES, COPY_VIEWED = 1000, 300, 30
"""How many inputs are estimated, how many each shifted copy of the source has, and how many of these get views."""

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
        source: Dataset,
        *,
        shifts: Sequence[str | Shift] | None = None,
        sets: Sequence[Dataset] = (),
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

        A copy has up to `images` inputs of the source. `shifts` defaults to those of `estimators.families`; `sets` are
        labelled sets of your own, each of which counts as a family. `temperature` divides the logits; None fits it to
        the labels. `neighborhood` defaults to RandAugment for images and EDA for texts. `methods` names estimators of
        plugins to use as well. `out` is a run directory, which the same call resumes. `on_plan` is called with a
        `CalibrationPlan`, and `on_progress` as on_progress(done, total).
        """
        for name in methods:
            check_method(name)
        others = tuple(dict.fromkeys(name for name in methods if name in METHODS.added))
        for one in (source, *sets):
            check_source(one)
        identity = "" if out is None else fingerprint(model)
        source = matched(source, model)
        neighborhood = neighborhood or neighborhoods.default(source)
        chosen = families.shifts_of(source) if shifts is None else [as_shift(one) for one in shifts]
        made = neighborhoods.neighborhood(neighborhood)
        batches = as_batches(source, batch_size=batch_size, device=device_of(model))
        clean = observe(model, batches, batch_size=batch_size, drift=True)
        begun = begin(
            clean,
            check_outputs(clean),
            temperature=temperature,
            neighborhood=neighborhood,
            n=n,
            others=others,
            classes=source.classes,
        )
        some = source.take(images, seed=seed)
        own = [matched(one, model).take(images, seed=seed) for one in sets]
        also = {f"set {number}: {one.name}": one for number, one in enumerate(own, 1)}
        crossed = crossed_shifts(chosen)
        if on_plan is not None:
            groups = {families.family_of(one) for one in chosen} | {families.CLASS_MIX} | set(also)
            each = [len(some)] * (1 + len(chosen)) + list(map(len, own))
            passes = len(source) + sum(count + min(COPY_VIEWED, count) * n for count in each)
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
        kept = Kept(None if out is None else Path(out), model, identity, source, terms, copied)
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


def estimate(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    source: DataLike = "demo-source",
    method: str = "auto",
    level: float = LEVEL,
    other: ModelLike | None = None,
    neighborhood: NeighborhoodLike | None = None,
    views: int = 10,
    shifts: Sequence[str | Shift] | None = None,
    sets: Sequence[DataLike] = (),
    calibration: str | Path | None = None,
    outputs: Sequence[str | Path] = (),
    temperature: float | None = None,
    images: int | None = IMAGES,
    seed: int = 0,
    device: str = "auto",
    batch_size: int | None = None,
    out: str | Path | None = None,
    on_progress: OnProgress | None = None,
    on_plan: Callable[[CalibrationPlan], None] | None = None,
) -> Estimate:
    """Estimate a model's accuracy on unlabelled inputs.

    The estimator is calibrated on shifted copies of the source, in families; the reported error and interval are for
    families left out of the calibration. Inputs unlike anything in the calibration get a wide interval and a warning.
    For several sets, keep an `Estimator`, or a file of its calibration. If the source has label maps, the mIoU of a
    segmentation model is estimated.

    Args:
        model: Anything `load_model` accepts.
        data: Unlabelled inputs: anything `load_data` accepts. Labels are ignored.
        source: Labelled inputs like those the model was trained on.
        method: An estimation method, such as combined, calibrated_cot, invariance or atc_entropy (`shiftproof list
            estimators` names all), or auto: the one with the smallest error on held-out families of shifts.
        level: Coverage of the interval; K families of shifts support K / (K + 1) at most.
        other: A second model, for the method agreement. Default: none.
        neighborhood: randaugment, translate, erase, ..., eda, or any shift. Default: randaugment; eda for texts.
        views: Augmented views per input; they are made of a share of the inputs only.
        shifts: Shifts to calibrate on, such as fog@3. Default: ten families of several shifts each.
        sets: Labelled sets of your own under other conditions to calibrate on as well; each counts as a family.
        calibration: File of the calibration; read if it exists, written if not.
        outputs: Two .npz files instead of a model and data: one with logits or probabilities and labels of the source,
            one with logits or probabilities of the target.
        temperature: Temperature that divides the logits. Default: fitted to the source's labels.
        images: Number of inputs to use, drawn in proportion to the classes; 0 means all.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Inputs per forward pass. Default: 128.
        out: Run directory; the same call resumes it. Writes estimate.json.
        on_progress: Called as on_progress(done, total, result).
        on_plan: Called with a `CalibrationPlan` before a calibration is made.

    >>> result = estimate("demo", "demo", images=60, views=2, shifts=[f"{name}@5" for name in KINDS[:4]])
    >>> result.low <= result.accuracy <= result.high
    True
    """
    check_method(method)
    if method == "agreement" and other is None:
        raise ConfigurationError(
            "The method agreement needs a second model.", expected="other= a model of the same classes"
        )
    if outputs:
        return estimate_outputs(*_two(outputs), method=method, level=level, calibration=calibration, seed=seed)
    labelled = load_data(source)
    if task_of(labelled).per_pixel:
        check_map_options(method, other, neighborhood, sets, calibration, temperature)
        found = estimate_maps(
            model,
            data,
            labelled,
            shifts=None if shifts is None else [as_shift(one) for one in shifts],
            level=level,
            images=images or None,
            seed=seed,
            device=device,
            batch_size=batch_size,
            out=None if out is None else expand(out),
            on_progress=on_progress,
            on_plan=on_plan,
        )
        return found if out is None else _written(found, expand(out))
    subject = Subject.of(
        model, data, images=images or None, seed=seed, device=device, batch_size=batch_size or BATCH_SIZE, texts=True
    )
    tested = subject.model
    identity = "" if out is None and calibration is None else fingerprint(tested)

    def fitted() -> Calibration:
        return Estimator.fit(
            tested,
            labelled,
            shifts=shifts,
            sets=[load_data(one) for one in sets],
            neighborhood=neighborhood,
            n=views,
            temperature=temperature,
            methods=[] if method == "auto" else [method],
            seed=seed,
            batch_size=subject.batch_size,
            out=out,
            on_progress=None if on_progress is None else lambda done, total: on_progress(done, total, None),
            on_plan=on_plan,
        ).calibration

    learnt = fitted() if calibration is None else kept_calibration(expand(calibration), identity, fitted)
    estimator = Estimator(tested, learnt, seed, subject.batch_size)
    chosen = subject.unmatched_data
    second = None if other is None else load_model(other, device=subject.device)

    def answer(method: str) -> Estimate:
        return estimator(chosen, method=method, level=level, other=second)

    if out is None:
        return answer(method)
    made = digest([learnt.to_row(), level, neighborhoods.chosen(learnt.neighborhood, chosen)])
    terms = {"calibration": made, "data": chosen.fingerprint, "other": "" if second is None else fingerprint(second)}
    found = Kept(expand(out), tested, identity, matched(labelled, tested), terms, answer).answer(method)
    return _written(found, expand(out))


def _written(found: Estimate, folder: Path) -> Estimate:
    """Write an estimate, with those of other methods, to a run directory."""
    content = {**found.to_row(), "others": [one.to_row() for one in found.others]}
    write_atomically(folder / FILE, json.dumps(content, indent=1) + "\n")
    return found


def _two(outputs: Sequence[str | Path]) -> tuple[str | Path, str | Path]:
    if len(outputs) != 2:
        raise ConfigurationError(
            "outputs= needs two files.",
            expected="the source's file, then the target's",
            got=f"{len(outputs)} files",
        )
    return outputs[0], outputs[1]


def kept_calibration(path: Path, model: str, fit: Callable[[], Calibration]) -> Calibration:
    """Return the calibration in a file; where there is none, make and write it. That of another model is refused."""
    if not path.exists():
        made = replace(fit(), model=model)
        made.save(path)
        return made
    found = Calibration.load(path)
    if found.model != model:
        raise ConfigurationError(
            f"The calibration in {str(path)!r} was made for another model.",
            expected="a calibration of this model, or a file that does not exist yet",
            got="a calibration of other weights or preprocessing",
            fix="name another file, or remove this one",
        )
    return found


def shifted(batches: Iterator[Batch], shift: Shift | None, seed: int) -> Iterator[Batch]:
    """Return batches after a shift, or as they are."""
    for batch in batches:
        yield batch if shift is None else replace(batch, inputs=shift(batch.inputs, batch.keys, seed=seed))


def check_method(method: str) -> None:
    """Refuse a method that does not exist."""
    if method != "auto":
        if method not in METHODS:
            raise unknown("method of estimation", method, ("auto", *METHODS))
        METHODS.load(method)  # what is wrong with it is told now


def check_source(source: Dataset) -> None:
    """Refuse a source that cannot tell right from wrong."""
    if source.labels is None:
        raise DataError(
            "The source has no labels.",
            expected="labelled images like those the model was trained on: a folder with one sub-folder per class, a "
            "CSV of labels, or an .npz with labels",
            fix="without labels, estimators.neighborhood_invariance ranks models and finds unusual inputs",
        )
    if int(source.labels.min()) == int(source.labels.max()):
        raise DataError(
            "All source images have the same label.",
            expected="two classes or more",
            got=f"{len(source.labels)} images of one class",
        )


def check_outputs(source: Evidence) -> NDArray[np.int64]:
    """Return the labels of the source; refuse those that do not fit the model, and probabilities for logits."""
    out, labels = source.logits, source.labels
    if labels is None or labels.min() < 0 or labels.max() >= out.shape[1]:
        raise DataError(
            "Labels and model outputs do not fit.",
            expected=f"labels from 0 to {out.shape[1] - 1}: the model has {out.shape[1]} outputs",
            got="none" if labels is None else f"labels from {labels.min()} to {labels.max()}",
        )
    if are_probabilities(torch.from_numpy(out)):
        raise ModelError(
            "The model returns probabilities, not logits.",
            expected="scores before the softmax: confidences are computed from them",
            got="rows that are positive and sum to 1",
            fix="remove the last softmax, or return its logarithm",
        )
    return labels
