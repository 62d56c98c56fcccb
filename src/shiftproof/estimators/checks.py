"""What an estimate is refused for: a method that does not exist, and a source that is missing or does not fit."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from shiftproof.data import DataLike, Dataset, DataSpec
from shiftproof.data.images.demo import DEMOS
from shiftproof.deferred import Deferred
from shiftproof.errors import ConfigurationError, DataError, ModelError
from shiftproof.estimators.catalogue import METHODS
from shiftproof.estimators.evidence import Evidence
from shiftproof.models import Adaptive, ModelLike
from shiftproof.models.behaviour import in_training
from shiftproof.models.layers import is_of
from shiftproof.models.named import cards
from shiftproof.models.outputs import are_probabilities
from shiftproof.registry import unknown

_TWO_MODES = ("torch.nn.modules.batchnorm", "torch.nn.modules.dropout")
"""Where PyTorch has the layers that do otherwise in training."""


def check_method(method: str) -> None:
    """Refuse a method that does not exist."""
    if method != "auto":
        if method not in METHODS:
            raise unknown("method of estimation", method, ("auto", *METHODS))
        METHODS.load(method)  # what is wrong with it is told now


def source_for(model: ModelLike, data: DataLike, source: DataLike | None) -> DataLike:
    """Return the labelled source that was given; without one the demo's, for a model or data of the demo."""
    if source is not None:
        return source
    network, images = (each.given if isinstance(each, Deferred) else each for each in (model, data))
    if not _is_of(network, ("demo", *cards())) and not _is_of(images, DEMOS):
        raise ConfigurationError(
            "The labelled source is missing.",
            expected="source=, labelled inputs like those the model was trained on",
            got="none; demo-source is the default for a model or data of the demo alone",
            fix="--source FOLDER (source=)",
        )
    options = data.options if isinstance(data, DataSpec) else {}
    return DataSpec("demo-source", **{name: options[name] for name in ("size", "color") if name in options})


def _is_of(given: object, names: Collection[str]) -> bool:
    return isinstance(given, str) and given in names


def check_mode(model: object) -> None:
    """Refuse a model whose layers are in training mode: they draw at random, and learn from what is measured.

    A model that adapts decides itself in which mode its layers are.
    """
    if isinstance(model, nn.Module) and any(isinstance(part, Adaptive) for part in model.modules()):
        return
    for layer in in_training(model):
        if is_of(layer, *_TWO_MODES):
            raise ModelError(
                "The model is in training mode.",
                expected="a model in evaluation mode: model.eval()",
                got=f"a {type(layer).__name__} in training mode",
                reason="Dropout draws at random, and batch normalisation looks at the whole batch and learns from it.",
            )


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
