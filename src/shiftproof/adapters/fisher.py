"""The anchor of EATA: parameters that mattered for earlier predictions are held near their start (Niu et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
import torch.nn.functional as F
from annotated_types import Predicate
from torch import Tensor

from shiftproof.adapters.method import Filter, Step
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
    fisher_at: Annotated[
        Literal["stream", "start"],
        "The weights at which the stream's images give it: those of the time, from images that are learnt from, or the "
        "start's, from all of them.",
    ] = "stream"
    fisher_weight: Annotated[NotNegative, "The weight of the anchor beside the loss."] = 2000.0


def fisher_anchor(o: FisherOptions) -> Callable[[Step, Adapter], Tensor]:
    """Return the term fisher_weight * sum F (theta - theta_start)^2.

    `fisher` says where F comes from: "stream", the first `fisher_images` images of the stream, or images given (a
    tensor, or batches of them). F is the mean over batches of the squared gradient of the batch's mean cross-entropy
    against the model's own arg max.
    """
    given = o.fisher

    def term(step: Step, adapter: Adapter) -> Tensor:
        if not isinstance(given, str) and "fisher_batches" not in step.memory:
            for images in _batches(given):
                _add(adapter.run(images), adapter.trained, step)
            if "fisher_batches" not in step.memory:
                raise ConfigurationError("There are no images for the Fisher information.", expected="1 or more")
        if isinstance(given, str) and o.fisher_at == "stream" and _wanted(o, step):
            _add(adapter.run_beside(step.images, step.logits), adapter.trained, step, keep_graph=True)
        # All parameters as one vector: they are many and small, and devices are slow to start each operation.
        information = joined(step.memory[PREFIX + name] for name in adapter.trained) / step.memory["fisher_batches"]
        moved = joined(adapter.trained.values()) - joined(adapter.starts[name] for name in adapter.trained)
        return (information * moved.square()).sum() * o.fisher_weight

    return term


def fisher_at_start(o: FisherOptions) -> Filter:
    """Return what takes F from the stream's first images at the weights of the start; it drops no image.

    The released code does so in a pass of its own before it adapts; images that are yet to come are not known here.
    """

    def gather(step: Step, adapter: Adapter) -> None:
        if _wanted(o, step):
            start = {name: adapter.starts[name].clone().requires_grad_() for name in adapter.trained}
            _add(adapter.run(step.images, start), start, step)

    return gather


def _wanted(o: FisherOptions, step: Step) -> bool:
    """Whether the stream's images so far are too few."""
    return "fisher_images" not in step.memory or bool(step.memory["fisher_images"] < o.fisher_images)


def _add(logits: Tensor, parameters: Mapping[str, Tensor], step: Step, *, keep_graph: bool = False) -> None:
    """Add one batch's squared gradients."""
    loss = F.cross_entropy(logits, logits.argmax(1))
    gradients = torch.autograd.grad(
        loss, list(parameters.values()), retain_graph=keep_graph, allow_unused=True, materialize_grads=True
    )
    for name, gradient in zip(parameters, gradients, strict=True):
        squares = gradient.square().nan_to_num()  # one overflow must not stop all later updates
        step.memory[PREFIX + name] = step.memory.get(PREFIX + name, torch.zeros_like(squares)) + squares
    nothing = torch.tensor(0.0)
    step.memory["fisher_batches"] = step.memory.get("fisher_batches", nothing) + 1
    step.memory["fisher_images"] = step.memory.get("fisher_images", nothing) + len(logits)


def joined(tensors: Iterable[Tensor]) -> Tensor:
    """Return tensors as one vector."""
    return torch.cat([tensor.flatten() for tensor in tensors])


def _batches(given: Any) -> Iterable[Tensor]:
    return torch.split(given, 64) if isinstance(given, Tensor) else given
