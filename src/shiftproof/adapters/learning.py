"""The common step of the gradient methods: predict, filter, weigh, update once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from shiftproof.adapters.method import Step

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter


def learn(adapter: Adapter, images: Tensor) -> Tensor:
    """Take the common step, and answer what was predicted before the update; no image kept is no update."""
    return learn_from(adapter, images, adapter.run(images))


def learn_from(adapter: Adapter, images: Tensor, logits: Tensor) -> Tensor:
    """Take the common step from logits that are known."""
    parts = adapter.parts
    step = Step(images, logits, adapter.memory, parts.entropy)
    for narrow in parts.keep:
        narrow(step, adapter)
    if parts.loss is not None and len(step.kept):
        adapter.update(total_loss(step, adapter))
        if parts.after:
            adapter.finite_guard.check()  # nothing follows on logits that are not finite
        for act in parts.after:
            act(step, adapter)
    return parts.answer(step, adapter) if parts.answer else step.logits


def total_loss(step: Step, adapter: Adapter) -> Tensor:
    """Return the weighted mean loss of the kept images and the regulariser."""
    parts = adapter.parts
    if parts.loss is None:
        raise RuntimeError(f"method {adapter.method.name!r} has no loss")
    each = parts.loss(step)
    if parts.weigh is not None:
        each = each * parts.weigh(step)
    loss = each.mean() if parts.divide_by is None else each.sum() / parts.divide_by(step)
    return loss if parts.regularise is None else loss + parts.regularise(step, adapter)
