"""`estimate`: the accuracy to expect on inputs without labels, from a labelled set of the same kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.data import Batch, DataLike, Dataset, load_data, matched
from shiftproof.errors import ConfigurationError, DataError, ModelError
from shiftproof.estimators import neighborhoods
from shiftproof.estimators.calibration import LARGEST_ERROR, Calibration, Copy
from shiftproof.estimators.catalogue import METHODS, summary, values_for
from shiftproof.estimators.confidence import agreement, few, threshold_doubts
from shiftproof.estimators.evidence import BATCH_SIZE, Evidence, as_batches, observe
from shiftproof.estimators.invariance import destroyed
from shiftproof.estimators.neighborhoods import NeighborhoodLike
from shiftproof.estimators.references import Reference, common_class, doubts
from shiftproof.estimators.results import Estimate
from shiftproof.estimators.resuming import Kept
from shiftproof.measures.estimation import Array, fit_temperature, score
from shiftproof.models import ModelLike, device_of, fingerprint, load_model
from shiftproof.models.identity import digest, plugin_codes
from shiftproof.models.outputs import are_probabilities
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
"""Corruptions to calibrate on: none of the fifteen common ones, on which audits and benchmarks test."""

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

SEVERITIES = (1, 3, 5)
IMAGES, COPY_IMAGES, COPY_VIEWED = 1000, 300, 60
"""How many inputs are estimated, how many each shifted copy of the source has, and how many of these get views."""


@dataclass(frozen=True, eq=False)
class Estimator:
    """A model with a labelled source, ready to answer for any number of unlabelled sets.

    `Estimator.fit(model, source)` shifts the source in known ways and keeps what it learns in `calibration`.
    """

    model: Callable[..., Any]
    source: Evidence
    calibration: Calibration
    seed: int
    batch_size: int

    @classmethod
    def fit(
        cls,
        model: Callable[..., Any],
        source: Dataset,
        *,
        shifts: Sequence[str | Shift] | None = None,
        neighborhood: NeighborhoodLike | None = None,
        n: int = 10,
        images: int = COPY_IMAGES,
        temperature: float | None = None,
        methods: Sequence[str] = (),
        seed: int = 0,
        batch_size: int = BATCH_SIZE,
        out: str | Path | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Estimator:
        """Learn what outputs say of accuracy from shifted copies of labelled images.

        A copy has up to `images` of the source. `temperature` divides the logits; None fits it to the labels. Without a
        `neighborhood`, it is RandAugment for images and EDA for texts. `methods` names those of others that shall
        answer beside ours. `out` is a run directory: what each copy says is kept there, and the same call resumes.
        `on_progress(done, all)` hears of progress.
        """
        for name in methods:
            check_method(name)
        others = tuple(dict.fromkeys(name for name in methods if name in METHODS.added))
        check_source(source)
        identity = "" if out is None else fingerprint(model)
        source = matched(source, model)
        neighborhood = neighborhood or neighborhoods.default(source)
        wanted = default_shifts(source) if shifts is None else shifts
        chosen = [as_shift(one) for one in wanted]
        made = neighborhoods.neighborhood(neighborhood)
        batches = as_batches(source, batch_size=batch_size, device=device_of(model))
        clean = observe(model, batches, batch_size=batch_size, drift=True)
        labels = check_outputs(clean)
        heat = fit_temperature(clean.logits, labels) if temperature is None else temperature
        reference = Reference.of(clean, temperature=heat)
        some = source.take(images, seed=seed)

        def copied(shift: Shift | None) -> Copy:
            found = observe(
                model,
                shifted(as_batches(some, batch_size=batch_size, device=device_of(model)), shift, seed),
                neighborhood=made,
                n=n,
                share=COPY_VIEWED / len(some),
                seed=seed,
                batch_size=batch_size,
                drift=True,
            )
            return Copy.of("clean" if shift is None else shift.label, found, reference, others)

        codes = plugin_codes(METHODS, " ".join(others))
        terms = {"calibration": digest([heat, made, n, len(some), seed, others, codes])}
        kept = Kept(None if out is None else Path(out), model, identity, source, terms, copied)
        copies = kept.copies([None, *chosen], on_progress)
        return cls(model, clean, Calibration(reference, copies, neighborhood, n, others), seed, batch_size)

    def __call__(
        self, inputs: Any, *, method: str = "auto", keys: Tensor | None = None, other: Callable[..., Any] | None = None
    ) -> Estimate:
        """Return the accuracy to expect on a `Dataset`, images [N, C, H, W] in [0, 1], or texts.

        `method` is one of `METHODS`, or `auto`: the one with the least error on shifts it has not seen, among those
        that nothing speaks against. Where that is not the one with the least error at all, the answer keeps the
        warnings of those it left out, and its interval spans theirs. `other` is a second model for the method
        `agreement`.
        """
        check_method(method)
        found = self.observe(inputs, keys=keys)
        values = values_for(found, self.calibration.source, self.calibration.others)
        answers = {name: self._answer(name, found, values) for name in self.calibration.methods()}
        if other is not None:
            second = observe(other, as_batches(inputs, keys=keys, device=device_of(other)), batch_size=self.batch_size)
            answers["agreement"] = agreement(found.logits, second.logits, seed=self.seed)
        if method != "auto" and method not in answers:
            raise ConfigurationError(
                f"The method {method!r} cannot be used here.",
                expected=", ".join(answers),
                reason="bn_distance needs a PyTorch module with batch norms, agreement a second model, calibrated "
                "methods shifts of four kinds or more, and those of others to be named in Estimator.fit(methods=...)",
            )
        made = self.calibration.auto(summary(values), answers.__getitem__) if method == "auto" else answers[method]
        return replace(made, others=tuple(one for name, one in answers.items() if name != made.method))

    def observe(self, inputs: Any, *, keys: Tensor | None = None) -> Evidence:
        """Return what the model says of inputs and their views."""
        return observe(
            self.model,
            as_batches(inputs, keys=keys, batch_size=self.batch_size, device=device_of(self.model)),
            neighborhood=neighborhoods.chosen(self.calibration.neighborhood, inputs),
            n=self.calibration.n,
            seed=self.seed,
            batch_size=self.batch_size,
            drift=True,
        )

    def _answer(self, method: str, found: Evidence, values: Mapping[str, Array]) -> Estimate:
        source = self.calibration.source
        made = self.calibration.estimate(method, values, inputs=len(found), seed=self.seed)
        warnings = few(len(self.source), "source inputs") + doubts(common_class(found), source)
        if method.startswith("atc_"):
            scores = score(self.source.logits, method.removeprefix("atc_"), source.temperature)
            warnings += threshold_doubts(scores, self.source.correct)
        if method.startswith("invariance"):
            warnings += destroyed(found.entropy_difference, str(self.calibration.neighborhood))
        error = self.calibration.errors[method]
        if error > LARGEST_ERROR:
            warnings += (f"On shifted copies of the source it is {100 * error:.1f} points off on average.",)
        return replace(made, warnings=made.warnings + warnings)


def estimate(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    source: DataLike = "demo-source",
    method: str = "auto",
    other: ModelLike | None = None,
    neighborhood: NeighborhoodLike | None = None,
    views: int = 10,
    shifts: Sequence[str | Shift] | None = None,
    temperature: float | None = None,
    images: int | None = IMAGES,
    seed: int = 0,
    device: str = "auto",
    batch_size: int | None = None,
    out: str | Path | None = None,
    on_progress: OnProgress | None = None,
) -> Estimate:
    """Estimate a model's accuracy on inputs without labels, with caveats.

    The interval is for shifts like those it is calibrated on: where the inputs are unlike every shifted copy, warnings
    say so, and it spans what all methods say. To ask for several sets, keep an `Estimator`.

    Args:
        model: What `load_model` takes or returned.
        data: Inputs without labels: what `load_data` takes or returned. Labels it may have are never looked at.
        source: Labelled inputs like those the model was made for.
        method: auto, the one with the least error on shifts it has not seen, or a method, such as combined, invariance,
            atc_entropy or bn_distance; the answers of the others are in the result's `others`.
        other: A second model, for the method agreement.
        neighborhood: randaugment, translate, erase, ..., eda, or any shift. Default: randaugment; eda for texts.
        views: Views of every input.
        shifts: Shifts to calibrate on, such as fog@3. Default: ten corruptions at three severities.
        temperature: What divides the logits. Default: fitted to the source's labels.
        images: Use this many inputs, drawn in proportion to the classes; 0 is all.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto is CUDA where there is one.
        batch_size: Inputs per forward pass. Default: 128.
        out: Run directory; the same call resumes it. Writes estimate.json.
        on_progress: Called as on_progress(done, all, result).

    >>> result = estimate("demo", "demo", images=60, views=2, shifts=[f"{name}@5" for name in KINDS[:4]])
    >>> result.low <= result.accuracy <= result.high
    True
    """
    check_method(method)
    if method == "agreement" and other is None:
        raise ConfigurationError("Agreement needs a second model.", expected="other= a model of the same classes")
    subject = Subject.of(
        model, data, images=images or None, seed=seed, device=device, batch_size=batch_size or BATCH_SIZE, texts=True
    )
    tested, labelled = subject.model, load_data(source)
    identity = "" if out is None else fingerprint(tested)
    estimator = Estimator.fit(
        tested,
        labelled,
        shifts=shifts,
        neighborhood=neighborhood,
        n=views,
        temperature=temperature,
        methods=[] if method == "auto" else [method],
        seed=seed,
        batch_size=subject.batch_size,
        out=out,
        on_progress=None if on_progress is None else lambda done, total: on_progress(done, total, None),
    )
    chosen = subject.unmatched_data
    second = None if other is None else load_model(other, device=subject.device)

    def answer(method: str) -> Estimate:
        return estimator(chosen, method=method, other=second)

    if out is None:
        return answer(method)
    learnt = digest([asdict(estimator.calibration), neighborhoods.chosen(estimator.calibration.neighborhood, chosen)])
    terms = {"calibration": learnt, "data": chosen.fingerprint, "other": "" if second is None else fingerprint(second)}
    found = Kept(expand(out), tested, identity, matched(labelled, tested), terms, answer).answer(method)
    content = {**found.to_row(), "others": [one.to_row() for one in found.others]}
    write_atomically(expand(out) / FILE, json.dumps(content, indent=1) + "\n")
    return found


def default_shifts(source: Dataset) -> list[str]:
    """Return the shifts to calibrate on."""
    kinds = TEXT_KINDS if source.kind == "texts" else KINDS
    return [f"{name}@{severity}" for name in kinds for severity in SEVERITIES]


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
