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
    """A model with a calibration, ready to answer for any number of unlabelled sets.

    `Estimator.fit(model, source)` shifts the source in known ways and keeps what it learns in `calibration`, which can
    be saved and loaded.

    Args:
        model: From inputs to logits.
        calibration: What was learnt on the labelled source.
        seed: The seed of views.
        batch_size: Inputs in a batch.

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
        """Learn what outputs say of accuracy from shifted copies of labelled inputs.

        A copy has up to `images` of the source. `shifts` are by default those of `estimators.families`; `sets` are
        further labelled sets of the user's own, each a family. `temperature` divides the logits; None fits it to the
        labels. Without a `neighborhood`, it is RandAugment for images and EDA for texts. `methods` names those of
        others that shall answer beside ours. `out` is a run directory: what each copy says is kept there, and the same
        call resumes. `on_plan` is told what it will take, and `on_progress(done, all)` hears of progress.
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
        """Return the accuracy to expect on a `Dataset`, images [N, C, H, W] in [0, 1], or texts.

        `method` is one of `METHODS`, or `auto`: the one with the least error on families of shifts it has not seen, and
        where nothing but the class mix changed, `cbpe`. `level` is that of the intervals. `other` is a second model for
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
        """Return what the model says of inputs, and of views of a share of them."""
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
    """Estimate a model's accuracy on inputs without labels, with caveats.

    The model is calibrated on shifted copies of the source, in families; the reported error and interval are those of
    families it has not seen. Inputs unlike anything calibrated on get a wide interval and a warning. For several sets,
    keep an `Estimator`, or a file of its calibration. With label maps in the source, the mIoU of a segmenter is
    estimated.

    Args:
        model: What `load_model` takes or returned.
        data: Inputs without labels: what `load_data` takes or returned. Any labels in it are ignored.
        source: Labelled inputs like those the model was made for.
        method: auto, the one with the least error on families of shifts it has not seen, or a method, such as combined,
            calibrated_cot, invariance or atc_entropy; the answers of the others are in the result's `others`.
        level: Coverage of the interval; K families of shifts support K / (K + 1) at most.
        other: A second model, for the method agreement.
        neighborhood: randaugment, translate, erase, ..., eda, or any shift. Default: randaugment; eda for texts.
        views: Augmented views per input; only a share of the inputs is viewed.
        shifts: Shifts to calibrate on, such as fog@3. Default: ten families of several shifts each.
        sets: Labelled sets of your own under other conditions to calibrate on as well, each a family.
        calibration: File of the calibration: read if it exists, written if not.
        outputs: Two .npz files instead of a model and data: logits or probabilities and labels of the source, and
            logits or probabilities of the target.
        temperature: Temperature that divides the logits. Default: fitted to the source's labels.
        images: Use this many inputs, drawn in proportion to the classes; 0 is all.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Inputs per forward pass. Default: 128.
        out: Run directory; the same call resumes it. Writes estimate.json.
        on_progress: Called as on_progress(done, all, result).
        on_plan: Called with a `CalibrationPlan` before a calibration is made.

    >>> result = estimate("demo", "demo", images=60, views=2, shifts=[f"{name}@5" for name in KINDS[:4]])
    >>> result.low <= result.accuracy <= result.high
    True
    """
    check_method(method)
    if method == "agreement" and other is None:
        raise ConfigurationError("Agreement needs a second model.", expected="other= a model of the same classes")
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
            "Outputs of two sets are needed.",
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
            f"The calibration in {str(path)!r} is of another model.",
            expected="a calibration of this model, or a file that is not there yet",
            got="one that was made with other weights or another preprocessing",
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
            expected="labelled images like those the model was made for: a folder with one sub-folder per class, a CSV "
            "of labels, or an .npz with labels",
            fix="without any labels, neighborhood_invariance still ranks models and finds strange inputs",
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
