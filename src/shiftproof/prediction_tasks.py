"""What labels ask of a model: a class for each input, or one for each pixel. The one place that knows the difference.

A data set names its task (`Dataset.task`). The task says how outputs are read and compared with labels, what matching
them means, what happens to labels under a shift, and how predictions are counted; whoever trains, measures or adapts
asks it. Sections of an audit are found by task too (`audits.sections.SECTIONS_BY_TASK`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.data import Dataset, matched
from shiftproof.data.images.mask_values import IGNORE, described
from shiftproof.data.images.maskset import MaskSet
from shiftproof.data.matching import shortened
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.measures.overlap import Overlap, count_overlap, unpack
from shiftproof.models import Model, class_names, logits
from shiftproof.models.class_names import folded as plain_name
from shiftproof.models.dense_outputs import answering_pixels, folded_pixels, pixel_logits, pixel_scores, resized
from shiftproof.models.folding import folded
from shiftproof.models.outputs import check_logits
from shiftproof.models.returned import answering
from shiftproof.registry import unknown
from shiftproof.runs import Json
from shiftproof.shifts import ImageShift, Shift
from shiftproof.shifts.moving import move_labels

Asked: TypeAlias = Callable[[Any], Any]


class PredictionTask(ABC):
    """What a model is asked, and how its answers are compared with labels."""

    name: ClassVar[str]
    measure: ClassVar[str]
    """What its headline number is called."""
    per_pixel: ClassVar[bool] = False
    """Whether every pixel has a label of its own."""

    @abstractmethod
    def answering(self, model: Model, inputs: Any) -> Model:
        """Return a model that gives logits, by what it returns for some inputs."""

    @abstractmethod
    def fast(self, model: Model, inputs: Tensor) -> Model:
        """Return a model with the same answers that is faster to ask."""

    @abstractmethod
    def scores(self, model: Asked, inputs: Any) -> Tensor:
        """Return checked logits, classes on axis 1, without gradients."""

    @abstractmethod
    def matched(self, data: Dataset, model: Model) -> Dataset:
        """Return a set whose labels are output indices of the model; refuse one that cannot be."""

    @abstractmethod
    def moved(self, shift: Shift, labels: Tensor, keys: Tensor, seed: int) -> Tensor:
        """Return labels as they belong to the inputs that a shift makes."""

    @abstractmethod
    def checked(self, returned: object, inputs: Tensor) -> Tensor:
        """Return what a model returned for inputs as logits, classes on axis 1; refuse anything else."""

    @abstractmethod
    def right(self, labels: Tensor, scores: Tensor) -> Tensor:
        """Return how right the answer to each input is, [N] on the CPU, from 0 to 1: what means over inputs are of."""

    @abstractmethod
    def tally(self, labels: Tensor, scores: Tensor) -> dict[str, Json]:
        """Count predictions against labels, as JSON values."""

    @abstractmethod
    def value(self, tallies: Sequence[Mapping[str, Json]], data: Dataset) -> float:
        """Return what tallies of inputs of a set come to: its measure."""


class ClassPrediction(PredictionTask):
    """A class for each input: accuracy."""

    name = "classification"
    measure = "accuracy"

    def answering(self, model: Model, inputs: Any) -> Model:
        """Open what a model returns, and take logarithms of probabilities."""
        return answering(model, inputs)

    def fast(self, model: Model, inputs: Tensor) -> Model:
        """Fold normalisation into convolutions."""
        return folded(model, inputs)

    def scores(self, model: Asked, inputs: Any) -> Tensor:
        """Return logits [N, K] on the CPU."""
        return logits(model, inputs)

    def matched(self, data: Dataset, model: Model) -> Dataset:
        """Match by class name."""
        return matched(data, model)

    def moved(self, shift: Shift, labels: Tensor, keys: Tensor, seed: int) -> Tensor:
        """Leave them: the class of an image has no place in it."""
        return labels

    def checked(self, returned: object, inputs: Tensor) -> Tensor:
        """Return logits [N, K] on the CPU."""
        return check_logits(returned, len(inputs))

    def right(self, labels: Tensor, scores: Tensor) -> Tensor:
        """Return 1 where the class is right, and 0 elsewhere."""
        known = labels.cpu()
        _check_largest(known, scores.shape[1])
        return (scores.argmax(1).cpu() == known).long()

    def tally(self, labels: Tensor, scores: Tensor) -> dict[str, Json]:
        """Count right answers."""
        return {"images": len(labels), "right": int(self.right(labels, scores).sum())}

    def value(self, tallies: Sequence[Mapping[str, Json]], data: Dataset) -> float:
        """Return the share of right answers."""
        right, images = (sum(int(str(each[name])) for each in tallies) for name in ("right", "images"))
        return right / images


class MapPrediction(PredictionTask):
    """A class for each pixel: intersection over union."""

    name = "segmentation"
    measure = "mIoU"
    per_pixel = True

    def answering(self, model: Model, inputs: Any) -> Model:
        """Open what a model returns, and bring logits to the size of images."""
        return answering_pixels(model, inputs)

    def fast(self, model: Model, inputs: Tensor) -> Model:
        """Fold normalisation into convolutions."""
        return folded_pixels(model, inputs)

    def scores(self, model: Asked, inputs: Any) -> Tensor:
        """Return logits [N, C, H, W] on the model's device."""
        return pixel_logits(model, inputs)

    def matched(self, data: Dataset, model: Model) -> Dataset:
        """Match classes by name where both have names; otherwise there must be as many as outputs."""
        return self._matched(data, model) if isinstance(data, MaskSet) else data

    def _matched(self, data: MaskSet, model: Model) -> MaskSet:
        batch = next(iter(data.subset([0]).batches(1)), None)
        if batch is None:
            return data
        outputs = self.scores(model, batch.inputs).shape[1]
        names = class_names(model)
        if described(data.classes):
            return self._by_number(data, outputs, names)
        known = names if names is not None and len(names) == outputs else None
        if known is None:
            if len(data.classes) != outputs:
                raise _other_classes(data.classes, outputs, None)
            return data
        places = {plain_name(name): place for place, name in enumerate(known)}
        numbers = [places.get(plain_name(name)) for name in data.classes]
        used = data.known_labels.tolist()
        if any(numbers[label] is None for label in used) or len(set(numbers)) < len(numbers):
            raise _other_classes([data.classes[label] for label in used if numbers[label] is None], outputs, known)
        if numbers == list(range(outputs)):
            return data
        table = torch.full((IGNORE + 1,), IGNORE, dtype=torch.uint8)
        for label, number in enumerate(numbers):
            table[label] = IGNORE if number is None else number
        return data.renumbered(table[data.labels.long()], known, "Classes of label maps were matched by name.")

    def _by_number(self, data: MaskSet, outputs: int, names: Sequence[str] | None) -> MaskSet:
        largest = int(data.known_labels.max())
        if largest >= outputs:
            raise DataError(
                "Labels and model outputs do not fit.",
                expected=f"labels from 0 to {outputs - 1}: the model has {outputs} classes",
                got=f"label {largest} in the label maps",
                fix="--ignore-label VALUE where it stands for no label; check that the data belongs to this model",
            )
        full = names if names is not None and len(names) == outputs else tuple(map(str, range(outputs)))
        return data.renumbered(data.labels, full)

    def moved(self, shift: Shift, labels: Tensor, keys: Tensor, seed: int) -> Tensor:
        """Move maps with content that moves, the nearest label each; the ignore label where it comes from outside."""
        if not isinstance(shift, ImageShift):
            raise ConfigurationError(f"{shift.label} is not a shift of images.", expected="a shift of images")
        return move_labels(shift, labels, keys, seed=seed, ignore=IGNORE)

    def checked(self, returned: object, inputs: Tensor) -> Tensor:
        """Return logits [N, C, H, W] at the size of the images."""
        return resized(pixel_scores(returned, len(inputs)).detach().float(), inputs.shape[-2:])

    def right(self, labels: Tensor, scores: Tensor) -> Tensor:
        """Return the mean intersection over union of each image over its own classes."""
        return torch.from_numpy(self._overlap(labels, scores).per_image)

    def tally(self, labels: Tensor, scores: Tensor) -> dict[str, Json]:
        """Count the pixels of each image by class: right, predicted, labelled."""
        return {"images": len(labels), "classes": scores.shape[1], "overlap": self._overlap(labels, scores).pack()}

    def value(self, tallies: Sequence[Mapping[str, Json]], data: Dataset) -> float:
        """Return the mean over the classes in the label maps of the set."""
        counts = [unpack(str(each["overlap"]), int(str(each["classes"]))) for each in tallies]
        return Overlap(np.concatenate(counts), present_classes(data) if isinstance(data, MaskSet) else None).value

    def _overlap(self, labels: Tensor, scores: Tensor) -> Overlap:
        _check_largest(labels[labels != IGNORE], scores.shape[1])
        return Overlap(count_overlap(labels.to(scores.device), scores.argmax(1), scores.shape[1], IGNORE))


CLASSES, LABEL_MAPS = ClassPrediction(), MapPrediction()
TASKS: dict[str, PredictionTask] = {task.name: task for task in (CLASSES, LABEL_MAPS)}
"""Name -> task."""


def task_of(data: Dataset | str) -> PredictionTask:
    """Return the task of a data set, or by its name.

    >>> task_of("segmentation").measure
    'mIoU'
    """
    name = data if isinstance(data, str) else data.task
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]


def _check_largest(labels: Tensor, classes: int) -> None:
    """Refuse labels that the model cannot give."""
    if len(labels) and int(labels.max()) >= classes:
        raise DataError(
            "Labels and model outputs do not fit.",
            expected=f"labels from 0 to {classes - 1}: the model has {classes} outputs",
            got=f"label {int(labels.max())}",
            fix="check that the data belongs to this model and that its classes are in the model's order",
        )


def check_task(data: Dataset, taken: Sequence[str], what: str) -> None:
    """Refuse data whose task something does not take."""
    if data.task not in taken:
        raise DataError(
            f"Not available for {data.task}: {what}.",
            expected=f"data for {' or '.join(taken)}",
            got=f"{data.name!r}, whose labels are maps" if data.task == LABEL_MAPS.name else repr(data.name),
            fix="audit, train, search, certify, spectrum, estimate, compare-methods, compare-on-stream and "
            "write-corrupted take label maps",
        )


def _other_classes(strange: Sequence[str], outputs: int, known: Sequence[str] | None) -> DataError:
    return DataError(
        "The classes of the label maps are not those of the model.",
        expected=f"{outputs} classes, as many as the model has outputs"
        if known is None
        else f"names among the model's: {shortened(list(known))}",
        got=shortened(list(strange)) if known is not None else f"{len(strange)}: {shortened(list(strange))}",
        fix="--classes FILE (classes=) lists the classes of the label maps in the order of the model's outputs",
    )


def present_classes(data: MaskSet) -> NDArray[np.bool_]:
    """Return which classes label maps contain, [C]: those that means over classes are over."""
    present = np.zeros(len(data.classes), bool)
    present[data.known_labels.numpy()] = True
    return present
