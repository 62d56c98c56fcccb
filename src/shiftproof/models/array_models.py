"""Models of other libraries: functions of NHWC arrays, and scikit-learn's classifiers of pixels or of texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shiftproof.errors import ModelError
from shiftproof.models.blackbox import BlackBox, Model
from shiftproof.models.class_names import with_class_names
from shiftproof.models.texts import Text

_ANSWERS = ("predict_proba", "decision_function")


class _ChannelsLast:
    """A function of NHWC arrays, as one of NCHW tensors."""

    def __init__(self, function: Callable[[NDArray[np.float32]], Any]) -> None:
        self.function = function

    def __call__(self, images: Tensor) -> Any:
        return self.function(np.ascontiguousarray(images.permute(0, 2, 3, 1).cpu().numpy()))


class _Rows:
    """A classifier of rows of numbers as a function of images, or one of texts as a function of texts."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def __call__(self, inputs: Tensor | list[Text]) -> Tensor:
        rows = inputs.permute(0, 2, 3, 1).flatten(1).cpu().numpy() if isinstance(inputs, Tensor) else inputs
        answer = next(name for name in _ANSWERS if hasattr(self.estimator, name))
        scores = torch.from_numpy(np.asarray(getattr(self.estimator, answer)(rows), np.float64))
        if scores.ndim == 1:  # one number for two classes: half of it for one, half against the other
            scores = torch.stack([-scores, scores], dim=1) / 2
        classes = getattr(self.estimator, "classes_", None)
        if classes is not None and scores.shape[1:] != (len(classes),):
            raise ModelError(
                f"The classifier's {answer} has another number of columns than it has classes.",
                expected=f"{len(classes)} columns",
                got=f"shape {tuple(scores.shape)}",
                fix="decision_function_shape='ovr', or a function of your own",
            )
        if answer == _ANSWERS[0]:
            scores = scores.clamp(min=float(torch.finfo(torch.float32).tiny)).log()
        return scores.float()


def channels_last(function: Callable[[NDArray[np.float32]], Any], *, name: str | None = None) -> BlackBox:
    """Wrap a function of channels-last images, a float32 array [N, H, W, C] in [0, 1], as a model.

    Args:
        function: Function from a float32 array [N, H, W, C] in [0, 1] to scores [N, K].
        name: Name in reports.

    >>> box = channels_last(lambda images: images.mean(axis=(1, 2)))
    >>> box(torch.ones(2, 3, 8, 8)).shape
    torch.Size([2, 3])
    """
    return BlackBox(_ChannelsLast(function), name=name or getattr(function, "__name__", None))


def is_estimator(made: object) -> bool:
    """Whether something is a classifier as scikit-learn has them: it scores rows of numbers, or texts."""
    return not isinstance(made, type) and any(callable(getattr(made, name, None)) for name in _ANSWERS)


def from_estimator(estimator: Any) -> BlackBox:
    """Return a model of a classifier as scikit-learn has them, which takes each image as one row of its pixels.

    A row has the values of an image [H, W, C] in [0, 1] one after another. Texts are passed on as a list, to a pipeline
    that begins with a vectorizer. `predict_proba` is used where there is one,
    otherwise `decision_function`. Classes that are texts name the outputs; numbers are the labels that they stand for.
    """
    box = BlackBox(_Rows(estimator), name=type(estimator).__name__)
    classes = [one.item() if isinstance(one, np.generic) else one for one in getattr(estimator, "classes_", ())]
    if all(isinstance(one, int) for one in classes):
        if classes != list(range(len(classes))):
            box.label_numbers = tuple(int(one) for one in classes)  # type: ignore[attr-defined]
        return box
    return with_class_names(box, [str(one) for one in classes])


def as_model(made: Any) -> Model:
    """Return a module or a black box as it is, and any other function or classifier as a black box."""
    if isinstance(made, nn.Module | BlackBox):
        return made
    return from_estimator(made) if is_estimator(made) else BlackBox(made)
