"""Estimates from stored outputs alone: no model and no inputs are needed, only what the model said.

A source file has `logits` or `probabilities` [N, K] and `labels` [N]; a target file has `logits` or `probabilities`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import ConfigurationError, DataError
from shiftproof.estimators.answering import answers_of
from shiftproof.estimators.calibration import Calibration
from shiftproof.estimators.evidence import Evidence
from shiftproof.estimators.fitting import begin, copies_of, finish
from shiftproof.estimators.results import LEVEL, Estimate
from shiftproof.measures.estimation import Array, probabilities

OutputsLike: TypeAlias = str | Path | ArrayLike | tuple[ArrayLike, ArrayLike]
"""An .npz file, logits or probabilities [N, K], or these with labels [N]."""

LEAST_PROBABILITY = 1e-12

NO_COPIES = "No shifted copies were calibrated on: how far off this is on other shifts is unknown."


def stored(outputs: OutputsLike, *, normalized: bool = False) -> Evidence:
    """Return stored outputs as what a model said: logits, or the logarithms of probabilities.

    Where the outputs they are compared with are probabilities, logits are `normalized` to such logarithms too.
    """
    arrays = _arrays(outputs)
    values = _scores(arrays)
    if values.ndim != 2 or values.shape[1] < 2 or not len(values) or not np.isfinite(values).all():
        raise DataError(
            "Invalid model outputs.",
            expected="finite scores of two or more classes, N x K",
            got=f"shape {values.shape}" if np.isfinite(values).all() else "NaN or infinity",
        )
    if _are_probabilities(values):
        values = np.log(np.maximum(values, LEAST_PROBABILITY))
    elif normalized:
        values = np.log(np.maximum(probabilities(values), LEAST_PROBABILITY))
    labels = arrays.get("labels")
    known = None if labels is None else _labels(labels, values.shape)
    nothing = np.empty((0, values.shape[1]))
    return Evidence(values.astype(np.float32), np.empty(0, np.int64), nothing, np.empty(0), labels=known)


def calibrate_outputs(source: OutputsLike, *, normalized: bool = False, seed: int = 0) -> Calibration:
    """Return what labelled outputs alone teach: thresholds, calibrated probabilities, and copies in other mixes."""
    found = stored(source, normalized=normalized)
    if found.labels is None:
        raise DataError("The source's outputs have no labels.", expected="an array labels, N, beside the outputs")
    begun = begin(found, found.labels)
    return finish(replace(begun, doubts=(*begun.doubts, NO_COPIES)), copies_of(begun, None, found, seed=seed))


def estimate_outputs(
    source: OutputsLike,
    target: OutputsLike,
    *,
    method: str = "auto",
    level: float = LEVEL,
    calibration: Calibration | str | Path | None = None,
    seed: int = 0,
) -> Estimate:
    """Estimate accuracy on a target of which only model outputs are stored.

    Without a `calibration`, nothing is known about shifts: the interval covers only the sampling of inputs and changes
    of the class mix, and a warning says so.

    Args:
        source: Stored outputs of labelled inputs.
        target: Stored outputs of unlabelled inputs.
        method: One of `estimators.METHODS`, or `auto`.
        level: Coverage of the interval.
        calibration: A calibration made by `Estimator.fit`, or its file. Default: none.
        seed: The seed of the bootstrap.
    """
    if calibration is None:
        normalized = any(_are_probabilities(_scores(_arrays(one))) for one in (source, target))
        learnt, found = (
            calibrate_outputs(source, normalized=normalized, seed=seed),
            stored(target, normalized=normalized),
        )
    else:
        learnt = calibration if isinstance(calibration, Calibration) else Calibration.load(calibration)
        found = stored(target)
    if learnt.mixing is not None and len(learnt.mixing.mix) != found.logits.shape[1]:
        raise DataError(
            "Source and target have different numbers of classes.",
            expected=f"{len(learnt.mixing.mix)} columns",
            got=f"{found.logits.shape[1]} columns",
        )
    answers = answers_of(learnt, found, level=level, seed=seed)
    if method not in answers:
        raise ConfigurationError(
            f"The method {method!r} cannot be used here.",
            expected=", ".join(name for name in answers if name != "auto"),
            reason="stored outputs have no views, no features, and without a calibration no shifted copies",
        )
    made = answers.pop(method)
    answers.pop("auto", None)
    others = tuple(one for one in answers.values() if one.method != made.method)
    return replace(made, others=others)


def _scores(arrays: Mapping[str, NDArray[np.generic]]) -> Array:
    name = next((each for each in ("logits", "probabilities", "scores") if each in arrays), None)
    if name is None:
        raise DataError(
            "The file has no model outputs.",
            expected="an array logits or probabilities, N x K, and of a source also labels, N",
            got=", ".join(arrays) or "nothing",
        )
    return np.asarray(arrays[name]).astype(np.float64)


def _are_probabilities(values: Array) -> bool:
    return values.ndim == 2 and bool((values >= 0).all()) and np.allclose(values.sum(1), 1.0, atol=1e-3)


def _arrays(outputs: OutputsLike) -> dict[str, NDArray[np.generic]]:
    if isinstance(outputs, tuple):
        return {"logits": np.asarray(outputs[0]), "labels": np.asarray(outputs[1])}
    if not isinstance(outputs, str | Path):
        return {"logits": np.asarray(outputs)}
    try:
        with Path(outputs).expanduser().open("rb") as file, np.load(file, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except Exception as error:  # damaged files fail in any way there is
        raise DataError(
            f"Cannot read the model outputs {str(outputs)!r}.",
            expected="an .npz file with logits or probabilities, N x K, and of a source labels, N",
            got=f"{type(error).__name__}: {error}",
        ) from error


def _labels(labels: NDArray[np.generic], shape: tuple[int, ...]) -> NDArray[np.int64]:
    known = np.asarray(labels).astype(np.int64)
    if known.shape != shape[:1] or known.min() < 0 or known.max() >= shape[1]:
        raise DataError(
            "Labels and outputs do not match.",
            expected=f"{shape[0]} labels from 0 to {shape[1] - 1}",
            got=f"shape {known.shape}" if known.shape != shape[:1] else f"from {known.min()} to {known.max()}",
        )
    return known
