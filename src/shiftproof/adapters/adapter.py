"""The stateful shell of every method: predict and adapt, reset, save and load.

One adapter serves one stream: what it learns from a batch shapes its answers to the next.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.adapters import resets
from shiftproof.adapters.method import Method, Options, Step
from shiftproof.adapters.norms import AdaptiveBatchNorm, BatchStatistics, replace_batch_norms
from shiftproof.errors import DataError


class Adapter(nn.Module):
    """A model that adapts while it predicts: `adapted(images)` returns logits and learns from the images.

    `source` is the model as it was given, untouched; `model` is the adapted copy. `state_dict()` holds everything
    that changes: loading it continues the stream bit for bit. Counts: `steps` batches answered, `updates` made,
    `resets`, and `skipped` batches whose logits were not finite (answered by the source).
    """

    def __init__(self, model: nn.Module, method: Method, options: Options) -> None:
        super().__init__()
        self.method, self.options = method, options
        self.parts = method.parts(options)
        object.__setattr__(self, "source", model)  # not a submodule: it is not part of the state
        self.model = copy.deepcopy(model).eval()
        self.model.requires_grad_(False)
        replace_batch_norms(self.model, self.parts.norm)
        self.trained = dict(self.parts.trains(self.model)) if self.parts.trains else {}
        for parameter in self.trained.values():
            parameter.requires_grad_(True)
        self.reset_policy = resets.parse(options.reset)
        self.memory: dict[str, Tensor] = {}
        self.steps = self.updates = self.resets = self.skipped = 0
        self.shift: str | None = None
        self.shift_is_new = False
        self._shape: tuple[int, ...] | None = None
        self._start = self._changing()
        self._new_optimizer()

    source: nn.Module

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, C] of images [N, ...] and adapt to them."""
        self._check(images)
        if self.reset_policy.due(self):
            self.reset()
        self.shift_is_new = False
        joined = self._joined(images)
        with torch.enable_grad() if self.trained else torch.no_grad():
            logits = (self.parts.learn or learn)(self, joined)
        self.steps += 1
        return logits[-len(images) :].detach()

    def predict(self, images: Tensor) -> Tensor:
        """Return logits of the adapted model without learning from the images."""
        with torch.no_grad():
            return self.run(images)

    def run(self, images: Tensor) -> Tensor:
        """Run the adapted copy, in reduced precision where that was chosen."""
        with self._precision(images):
            logits: Tensor = self.model(images)
        return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits

    def update(self, loss: Tensor) -> None:
        """Take one optimiser step on a loss."""
        if self.optimizer is None:
            raise RuntimeError(f"method {self.method.name!r} has no optimiser")
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.updates += 1

    def reset(self, *, optimizer: bool = True) -> None:
        """Go back to the start: parameters, gathered statistics, memory and (unless told otherwise) the optimiser."""
        with torch.no_grad():
            for name, tensor in self._changing(copied=False).items():
                tensor.copy_(self._start[name])
        self.memory = {}
        if optimizer:
            self._new_optimizer()
        self.resets += 1

    def start(self, name: str) -> Tensor:
        """Return a trained parameter as it was at the start."""
        return self._start[name]

    def announce(self, shift: str) -> None:
        """Say which shift the next images are under, for the reset policy `each_shift`."""
        self.shift_is_new = self.shift is not None and shift != self.shift
        self.shift = shift

    def answer_with_source(self, images: Tensor) -> Tensor:
        """Count a batch that cannot be learnt from and answer it with the source model."""
        self.skipped += 1
        if not all(bool(parameter.isfinite().all()) for parameter in self.trained.values()):
            self.reset()
        with torch.no_grad():
            logits: Tensor = self.source(images)
        return logits

    def get_extra_state(self) -> dict[str, Any]:
        """Return what is not a parameter or a buffer of the adapted copy."""
        return {
            "method": self.method.name,
            "memory": dict(self.memory),
            "optimizer": self.optimizer.state_dict() if self.optimizer else None,
            "counts": [self.steps, self.updates, self.resets, self.skipped],
            "shift": self.shift,
            "shape": self._shape,
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `get_extra_state` returned."""
        if state["method"] != self.method.name:
            raise DataError(
                "This state belongs to another method.", expected=self.method.name, came=str(state["method"])
            )
        self.memory = dict(state["memory"])
        self._new_optimizer()
        if self.optimizer and state["optimizer"]:
            self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        self.steps, self.updates, self.resets, self.skipped = state["counts"]
        self.shift, self._shape = state["shift"], state["shape"]

    def _changing(self, *, copied: bool = True) -> dict[str, Tensor]:
        """Return every tensor of the adapted copy that can change, by name."""
        found: dict[str, Tensor] = dict(self.trained)
        for name, module in self.model.named_modules():
            if isinstance(module, AdaptiveBatchNorm):
                found |= {
                    f"{name}.{buffer}": getattr(module, buffer) for buffer in ("target_mean", "target_var", "seen")
                }
        return {name: tensor.detach().clone() for name, tensor in found.items()} if copied else found

    def _new_optimizer(self) -> None:
        make = self.parts.optimizer
        self.optimizer = make(list(self.trained.values())) if make and self.trained else None

    def _joined(self, images: Tensor) -> Tensor:
        """Put recent images before a batch smaller than the window, so that statistics have enough to go by."""
        window = self.options.window
        if not window:
            return images
        recent = self.memory.get("recent", images[:0])
        joined = torch.cat([recent, images])[-max(window, len(images)) :]
        self.memory["recent"] = joined[-window:].detach().clone()
        return joined

    def _check(self, images: Tensor) -> None:
        if not isinstance(images, Tensor) or images.ndim < 2 or not images.is_floating_point() or not len(images):
            raise DataError(
                "This is not a batch of images.", expected="a float tensor, N x C x H x W, N > 0", came=_what(images)
            )
        if self._shape is None:
            self._shape = tuple(images.shape[1:])
        elif self._shape != tuple(images.shape[1:]):
            raise DataError(
                "The images changed their shape in mid-stream.",
                expected=f"images of shape {self._shape}, as before",
                came=f"shape {tuple(images.shape[1:])}",
                instead="use one adapter per stream",
            )
        lonely = len(images) == 1 and self.options.window < 2 and self.parts.norm == BatchStatistics()
        if lonely and self.steps == 0 and any(isinstance(module, AdaptiveBatchNorm) for module in self.model.modules()):
            warnings.warn(
                f"{self.method.name} normalises a batch of one image with its own statistics alone; give a prior "
                "(prior=16), a window (window=16) or larger batches",
                stacklevel=3,
            )

    def _precision(self, images: Tensor) -> AbstractContextManager[Any]:
        amp = self.options.amp
        return torch.autocast(images.device.type, getattr(torch, amp)) if amp else nullcontext()


def learn(adapter: Adapter, images: Tensor) -> Tensor:
    """Take the common step: predict, filter, weigh, update once; answer what was predicted before the update."""
    parts = adapter.parts
    logits = adapter.run(images)
    if not bool(logits.isfinite().all()):
        return adapter.answer_with_source(images)
    step = Step(images, logits, adapter.memory)
    for narrow in parts.keep:
        narrow(step, adapter)
    if parts.loss is not None and len(step.kept):
        adapter.update(total_loss(step, adapter))
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


def _what(images: object) -> str:
    return f"{images.dtype} of shape {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
