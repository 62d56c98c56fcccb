"""`estimate`: the accuracy to expect on inputs without labels, from a labelled set of the same kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from shiftproof.data import DataLike, load_data, matched
from shiftproof.errors import ConfigurationError
from shiftproof.estimators import neighborhoods
from shiftproof.estimators.calibration import Calibration
from shiftproof.estimators.checks import check_method, source_for
from shiftproof.estimators.estimator import Estimator
from shiftproof.estimators.evidence import BATCH_SIZE
from shiftproof.estimators.fitting import CalibrationPlan
from shiftproof.estimators.from_outputs import estimate_outputs
from shiftproof.estimators.map_estimates import check_map_options, estimate_maps
from shiftproof.estimators.neighborhoods import NeighborhoodLike
from shiftproof.estimators.results import LEVEL, Estimate
from shiftproof.estimators.resuming import Kept
from shiftproof.models import ModelLike, fingerprint, load_model
from shiftproof.models.identity import digest
from shiftproof.prediction_tasks import task_of
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

IMAGES = 1000
"""How many inputs are estimated."""


def estimate(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    source: DataLike | None = None,
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
        source: Labelled inputs like those the model was trained on. Default: demo-source, for a model or data of the
            demo alone.
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
    labelled = load_data(source_for(model, data, source))
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
