"""What a model returns, made into logits: tuples and dictionaries are opened, probabilities become their logarithms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.errors import INTERRUPTIONS, ModelError
from shiftproof.models.blackbox import BlackBox, Model
from shiftproof.models.class_names import inside
from shiftproof.models.opening import scores_in
from shiftproof.models.outputs import are_probabilities, device_of, precision_of


class Logits(nn.Module):
    """A model whose scores are taken out of what it returns, by `output`, and out of probabilities if it returns them.

    The logarithm of probabilities is a row of logits: its softmax gives them back.

    >>> two = Logits(lambda images: {"logits": images.mean((2, 3)), "features": images})
    >>> two(torch.ones(1, 2, 4, 4))
    tensor([[1., 1.]])
    """

    def __init__(self, model: Any, output: str | int | None = None, probabilities: bool = False) -> None:
        super().__init__()
        self.model = model
        self.output = output
        self.probabilities = probabilities

    def forward(self, inputs: Any) -> Tensor:
        """Return logits [N, K]."""
        scores = scores_in(self.model(inputs), self.output)
        if not isinstance(scores, Tensor):
            raise ModelError(
                "The model does not return a tensor.",
                expected="one row of at least 2 scores per image",
                got=f"a {type(scores).__name__}",
            )
        if not self.probabilities:
            return scores
        return scores.float().clamp(min=torch.finfo(torch.float32).tiny).log()


def as_logits(model: Model, output: str | int | None = None, probabilities: bool = False) -> Model:
    """Return a model that gives logits: a module as a module, a black box as a black box."""
    if isinstance(model, BlackBox):
        box = model if output is None else model.reading(output)
        return BlackBox(Logits(box, None, True), name=box.name, device=box.device) if probabilities else box
    return Logits(model, output, probabilities).train(model.training)


def answering(model: Model, inputs: Any) -> Model:
    """Return a model that gives logits, by what it returns for some inputs; the model itself where that is logits."""
    try:
        with torch.no_grad():
            if isinstance(inputs, Tensor):
                inputs = inputs.to(device_of(model), precision_of(model))
            returned = model(inputs)
            scores = scores_in(returned)
    except INTERRUPTIONS:
        raise
    except BaseException:  # whoever measures will tell it better
        return model
    if not isinstance(scores, Tensor) or scores.ndim != 2 or not scores.is_floating_point():
        return model
    probabilities = scores.shape[1] > 1 and are_probabilities(scores.float())
    return as_logits(model, None, probabilities) if probabilities or scores is not returned else model


def gives_probabilities(model: object) -> bool:
    """Whether a model is known to return probabilities, of which logarithms are taken."""
    return (isinstance(model, Logits) and model.probabilities) or any(map(gives_probabilities, inside(model)))
