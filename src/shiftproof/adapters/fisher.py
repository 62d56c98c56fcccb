"""The anchor of EATA: parameters that mattered for earlier predictions are held near their start (Niu et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import torch
import torch.nn.functional as F
from annotated_types import Predicate
from torch import Tensor

from shiftproof.adapters.method import Step
from shiftproof.adapters.method_options import GradientOptions
from shiftproof.errors import ConfigurationError
from shiftproof.options import Count, NotNegative, Words

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

PREFIX = "fisher/"


def stream_or_images(given: Any) -> bool:
    """Whether images are those of the stream, by that word, or given."""
    return given == "stream" if isinstance(given, str) else isinstance(given, Iterable)


StreamOrImages = Annotated[Any, Predicate(stream_or_images), Words("stream, or images")]


class FisherOptions(GradientOptions):
    """Options of the anchor."""

    fisher: Annotated[
        StreamOrImages,
        "Where the Fisher information comes from: the stream's first images, or images given.",
    ] = "stream"
    fisher_images: Annotated[Count, "How many of the stream's first images it comes from."] = 2000
    fisher_weight: Annotated[NotNegative, "The weight of the anchor beside the loss."] = 2000.0


def fisher_anchor(o: FisherOptions) -> Callable[[Step, Adapter], Tensor]:
    """Return the term fisher_weight * sum F (theta - theta_start)^2.

    `fisher` says where F comes from: "stream", the first `fisher_images` images of the stream, or images given (a
    tensor, or batches of them). F is the mean over batches of the squared gradient of the batch's mean cross-entropy
    against the model's own arg max.
    """
    given = o.fisher

    def term(step: Step, adapter: Adapter) -> Tensor:
        if "fisher_batches" not in step.memory:
            step.memory["fisher_batches"] = step.memory["fisher_images"] = torch.tensor(0.0)
            if not isinstance(given, str):
                for images in _batches(given):
                    _add(adapter, adapter.run(images), step)
                if not step.memory["fisher_batches"]:
                    raise ConfigurationError("There are no images for the Fisher information.", expected="1 or more")
        if isinstance(given, str) and step.memory["fisher_images"] < o.fisher_images:
            _add(adapter, step.logits, step, keep_graph=True)
        # All parameters as one vector: they are many and small, and devices are slow to start each operation.
        information = _joined(step.memory[PREFIX + name] for name in adapter.trained) / step.memory["fisher_batches"]
        moved = _joined(adapter.trained.values()) - _joined(adapter.starts[name] for name in adapter.trained)
        return (information * moved.square()).sum() * o.fisher_weight

    return term


def _add(adapter: Adapter, logits: Tensor, step: Step, *, keep_graph: bool = False) -> None:
    """Add one batch's squared gradients."""
    loss = F.cross_entropy(logits, logits.argmax(1))
    parameters = list(adapter.trained.values())
    gradients = torch.autograd.grad(
        loss, parameters, retain_graph=keep_graph, allow_unused=True, materialize_grads=True
    )
    for name, gradient in zip(adapter.trained, gradients, strict=True):
        squares = gradient.square().nan_to_num()  # one overflow must not stop all later updates
        step.memory[PREFIX + name] = step.memory.get(PREFIX + name, torch.zeros_like(squares)) + squares
    step.memory["fisher_batches"] = step.memory["fisher_batches"] + 1
    step.memory["fisher_images"] = step.memory["fisher_images"] + len(logits)


def _joined(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def _batches(given: Any) -> Iterable[Tensor]:
    return torch.split(given, 64) if isinstance(given, Tensor) else given
