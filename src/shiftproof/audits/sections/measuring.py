"""What several sections measure: right and wrong predictions on a slice of the images, under a shift or none."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.audits.suite_cells import SuiteCell
from shiftproof.data.images.imageset import SMALL_SIDE
from shiftproof.errors import DataError
from shiftproof.measures import Accuracy
from shiftproof.models import Model, class_names, imagenet
from shiftproof.models.outputs import are_probabilities, check_finite, device_logits
from shiftproof.models.texts import Text, parts
from shiftproof.runs import AnyTask, Json, Result, Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

PICTURE_SIDE = 128
EXCERPT = 200
"""Letters shown of a text."""
Kind = TypeVar("Kind", bound=AnyTask)
_CLASSES: WeakKeyDictionary[Model, int] = WeakKeyDictionary()
"""Number of classes of the models of this process."""


def predictions(subject: Subject, places: Sequence[int], shift: Shift | None, seed: int) -> tuple[Tensor, ...]:
    """Return labels, predicted classes and confidences of the inputs at some places, each [n], after the shift.

    Confidences are not a number where scores are probabilities: their softmax would be no confidence.
    """
    parts, scores = [], []
    for batch in subject.data.subset(places).batches(subject.batch_size, device=subject.device):
        images = batch.inputs if shift is None else shift(batch.inputs, batch.keys, seed=seed)
        scores.append(device_logits(subject.fast_model, images, wait=False))
        parts.append(batch.labels)
    if not scores:
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64), torch.empty(0)
    check_finite(*scores)
    found = torch.cat(scores)
    given = [labels for labels in parts if labels is not None]
    labels = check_labels(torch.cat(given) if given else None, found.shape[1])
    confidence, classes = found.softmax(1).max(1)
    known = torch.full_like(confidence, torch.nan) if are_probabilities(found) else confidence
    return labels, classes.cpu(), known.cpu()


def measured_under(subject: Subject, condition: Shift | SuiteCell | None) -> tuple[Subject, Shift | None]:
    """Return what is measured under a condition: the subject under its shift, or the suite's own files as they are."""
    if not isinstance(condition, SuiteCell):
        return subject, condition
    from shiftproof.audits.suite_subjects import SuiteSubject

    if not isinstance(subject, SuiteSubject):
        raise TypeError(f"{condition.label} is a part of a suite, and {type(subject).__name__} has none")
    return subject.part(condition), None


def naming(subject: Subject) -> Callable[[int], str]:
    """Return what gives a class its name: the data's, or the model's where those of the data only count."""
    names: Sequence[str] = subject.data.classes
    if all(name == str(place) for place, name in enumerate(names)):
        names = class_names(subject.model) or names
    return lambda label: names[label] if label < len(names) else str(label)


def preset_for(subject: Subject) -> str:
    """Return the preset of methods of adaptation that suits the model; a network is asked for its classes once."""
    from shiftproof.adapters import choose_preset

    model = subject.model
    if model not in _CLASSES:
        (one,) = subject.data.subset([0]).batches(1, device=subject.device)
        _CLASSES[model] = subject.task.scores(model, one.inputs).shape[1]
    return choose_preset(model, _CLASSES[model])


def check_labels(labels: Tensor | None, classes: int) -> Tensor:
    """Return the labels on the CPU; refuse a set without labels, or with labels the model cannot give."""
    if labels is None:
        raise DataError(
            "The images have no labels.",
            expected="a folder with one sub-folder per class, a CSV of labels, or an .npz with labels",
            fix="sort them so, or give a CSV with --labels; shiftproof estimate works without labels",
        )
    labels = labels.cpu()
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        from_one = low == 1 and high == classes
        raise DataError(
            "Labels and model outputs do not fit.",
            expected=f"labels from 0 to {classes - 1}: the model has {classes} outputs",
            got=f"labels from {low} to {high}",
            fix="subtract 1 from every label, if class 1 is the model's first output: outputs are counted from 0"
            if from_one
            else "check that the data belongs to this model and that its classes are in the model's order",
        )
    return labels


def is_imagenet(subject: Subject) -> bool:
    """Whether a model of ImageNet's classes is measured on images of all of them, and not on tiny ones."""
    data = subject.labelled_data
    if data.labels is None or data.labels.ndim > 1 or (data.side or 0) <= SMALL_SIDE:
        return False
    if len(set(data.labels.tolist())) != imagenet.CLASSES:
        return False
    return any(
        names is not None and len(names) == imagenet.CLASSES and all(imagenet.meanings(names))
        for names in (data.classes, class_names(subject.model))
    )


def tally(labels: Tensor, predicted: Tensor, confidences: Tensor) -> dict[str, Json]:
    """Return counts, the mean confidence, and who was right as a string of hexadecimal digits, first image first.

    The confidence is None where it is not known of every image.
    """
    right = predicted == labels
    known = bool(confidences.isfinite().all())
    return {
        "images": len(labels),
        "right": int(right.sum()),
        "confidence": (round(float(confidences.double().mean()), 6) if len(labels) else 0.0) if known else None,
        "hits": np.packbits(right.numpy()).tobytes().hex(),
    }


def rows(results: Iterable[Result], kind: type[Kind]) -> list[tuple[Kind, Row]]:
    """Return the tasks of a type that have a row."""
    return [(result.task, result.row) for result in results if type(result.task) is kind and result.row is not None]


def applying(results: Iterable[Result], kind: type[Kind]) -> list[tuple[Kind, Row]]:
    """Return the tasks of a type that have a row and did not find that what they try does not apply to the model."""
    return [(task, row) for task, row in rows(results, kind) if row.get("applies", True)]


def accuracy(found: Sequence[Row]) -> Accuracy | None:
    """Return the accuracy over rows of `tally`; None where there is no image."""
    images = sum(_whole(row["images"]) for row in found)
    return Accuracy(sum(_whole(row["right"]) for row in found), images) if images else None


def image_means(conditions: Iterable[Sequence[Row]]) -> NDArray[np.float64] | None:
    """Return how often each image is right over conditions, [N]; each is the rows of `tally` of the same images.

    None where a condition lacks images, or where rows do not tell who was right.
    """
    columns = [np.concatenate([hits_of(row) for row in some]) for some in conditions if some]
    if not columns or not len(columns[0]) or len({len(column) for column in columns}) > 1:
        return None
    means: NDArray[np.float64] = np.mean(columns, axis=0, dtype=np.float64)
    return means


def hits_of(row: Row) -> NDArray[np.uint8]:
    """Return who was right, [n]: 1 or 0."""
    packed = np.frombuffer(bytes.fromhex(str(row.get("hits", ""))), np.uint8)
    return np.unpackbits(packed)[: _whole(row["images"])]


def hits_at(places: Sequence[int], found: Iterable[tuple[Sequence[int], Row]]) -> NDArray[np.bool_] | None:
    """Return who was right at some places, [n], by rows of `tally` with theirs; None where one is in no row."""
    known: dict[int, int] = {}
    for some, row in found:
        if len(some) == row["images"]:  # all could be read
            known.update(zip(some, hits_of(row).tolist(), strict=True))
    return np.array([known[place] for place in places], bool) if known.keys() >= set(places) else None


def mean_confidence(found: Sequence[Row]) -> float | None:
    """Return the mean confidence over the images of several rows; None where it is not known of all."""
    if any(row["confidence"] is None for row in found):
        return None
    weighted = [(float(str(row["confidence"])), _whole(row["images"])) for row in found]
    return sum(value * images for value, images in weighted) / sum(images for _, images in weighted)


def picture(image: Tensor, side: int = PICTURE_SIDE) -> str:
    """Return one image, [C, H, W] in [0, 1], as a PNG of at most so many pixels a side, in base64."""
    from PIL import Image

    array = (image.cpu().permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
    made = Image.fromarray(array.squeeze(2) if array.shape[2] == 1 else array)
    made.thumbnail((side, side), Image.Resampling.BOX)
    buffer = io.BytesIO()
    made.save(buffer, "PNG", compress_level=1)  # a quarter of the time of the best, for a tenth more bytes
    return base64.b64encode(buffer.getvalue()).decode()


def excerpt(text: Text) -> str:
    """Return the beginning of a text, or of both texts of a pair."""
    return " / ".join(part if len(part) <= EXCERPT else part[: EXCERPT - 3] + "..." for part in parts(text))


def _whole(value: Json) -> int:
    if not isinstance(value, int):
        raise TypeError(f"a count is a whole number; got {value!r}")
    return value
