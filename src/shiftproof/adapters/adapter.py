"""The stateful shell of every method: predict and adapt, reset, save and load.

One adapter serves one stream: what it learns from a batch shapes its answers to the next.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from shiftproof.adapters.checks import check_images, check_logits, is_program
from shiftproof.adapters.diagnostics import Counts, diagnose
from shiftproof.adapters.learning import learn
from shiftproof.adapters.method import Memory, Method
from shiftproof.adapters.method_options import MethodOptions
from shiftproof.adapters.norms import NormPolicy, SourceStatistics, commit_all, replace_batch_norms
from shiftproof.adapters.pixel_rows import as_maps, as_rows, check_per_pixel
from shiftproof.adapters.recording import Recorded, recordable
from shiftproof.adapters.soundness import FiniteGuard, NotFiniteError
from shiftproof.errors import DataError, ModelError
from shiftproof.keyed import Keyed
from shiftproof.models.adaptive import Adaptive
from shiftproof.models.identity import digest, fingerprint

DIAGNOSED_AFTER = 100
"""After so many batches an adapter warns if it hardly learns."""


class Adapter(Adaptive):
    """A model that adapts while it predicts: `adapted(images)` returns logits and learns from the images.

    `source` is the model as it was given, never touched and never run; `model` is the adapted copy, always in
    evaluation mode, whatever `train()` is told. Which of its parameters learn is the method's choice, not that of their
    `requires_grad`. `state_dict()` is a copy of everything that changes: loading it, here or in another adapter of the
    same method, options and model, continues the stream bit for bit.

    Counts: `steps` batches answered, `updates` made, `resets`, and `skipped` batches that could not be learnt from: not
    finite logits, which are answered by the source, or not finite gradients. `diagnosis` says in words where these mean
    that it hardly learns, or keeps nothing; after 100 batches that is a warning.

    Args:
        model: The module to adapt; it is copied.
        method: What adapts it.
        options: The method's options.
    """

    source: nn.Module

    def __init__(self, model: nn.Module, method: Method, options: MethodOptions) -> None:
        super().__init__()
        self.method, self.options = method, options
        self.parts = method.parts(options)
        self.reset_policy = options.reset
        object.__setattr__(self, "source", model)  # not a submodule: it is not part of the state
        self.model = _own(model)
        self.norms = replace_batch_norms(self.model, self.parts.norm)
        self.trained = _distinct(self.parts.trains(self.model)) if self.parts.trains else {}
        if self.parts.trains and not self.trained:
            raise ModelError(
                f"Method {method.name!r} has nothing to train in this model.",
                expected="normalisation layers with a scale and a shift (affine)",
                got=f"{type(model).__name__}, whose layers have none",
                fix="use bn, which needs only batch statistics",
            )
        for parameter in self.trained.values():
            parameter.requires_grad_(True)
        self.memory: Memory = {}
        self.recorded = Recorded(self.model, options.amp) if options.graph and recordable(self.parts.norm) else None
        self.finite_guard = FiniteGuard()
        self.steps = self.resets = 0
        self.shape: tuple[int, ...] | None = None
        self.map_size: tuple[int, int] | None = None
        self.shift: str | None = None
        self.adapted_to: str | None = None
        if self.parts.start:
            self.parts.start(self)
        self.starts = {name: tensor.detach().clone() for name, tensor in self.changing().items()}
        self._new_optimizer()
        self.register_state_dict_post_hook(_copy_tensors)  # type: ignore[no-untyped-call]

    @cached_property
    def _identity(self) -> str:
        """Digest of the source's tensors, made when a state is first saved or loaded: a large model takes long."""
        return digest(dict(self.source.state_dict()))

    def identity(self) -> str:
        """Return what tells it apart from others as it begins: its source, method and options."""
        return digest([fingerprint(self.source), self.method, self.options.to_dict()])

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, C], or [N, C, H, W] of a segmenter, of images [N, ...] and adapt to them."""
        check_images(images, self)
        if self.reset_policy.due(self):
            self.reset()
        self.shape, self.adapted_to = tuple(images.shape[1:]), self.shift
        before = dict(self.memory)
        self.finite_guard.begin()
        if self.recorded:
            self.recorded.begin()
        with torch.inference_mode(mode=False), torch.set_grad_enabled(bool(self.trained)):
            joined = self._joined(images.clone() if images.is_inference() else images)
            try:
                logits = (self.parts.learn or learn)(self, joined).detach()
                self.finite_guard.check()
            except NotFiniteError:
                self.memory = before
                return self._answer_with_source(images)
            except BaseException:
                self.memory = before
                raise
            self._finish(joined, logits)
        return self._answer(logits, joined)[-len(images) :]

    def predict(self, images: Tensor) -> Tensor:
        """Return the logits the method would answer, without learning from the images; nothing changes."""
        check_images(images, self)
        self.finite_guard.begin()
        with torch.no_grad():
            try:
                joined = self._joined(images)
                logits = (self.parts.predict or Adapter.run)(self, joined)
                self.finite_guard.check()
                return self._answer(logits, joined)[-len(images) :]
            except NotFiniteError:
                return self.source_logits(images)

    def run(self, images: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Run the adapted copy, in reduced precision where that was chosen, with other tensors in place if given.

        `weights` replaces parameters and buffers by name, for teachers and anchors. Whether the logits are finite is
        asked, and heard by `soundness.check`. Of a segmenter the logits are rows, one for each pixel.
        """
        for norm in self.norms.values():
            norm.pending = None
        if self.recorded and not weights and self.recorded.fits(images):
            logits = self.recorded(images)
        else:
            with self._precision(images):
                logits = functional_call(self.model, dict(weights), (images,)) if weights else self.model(images)
        logits = check_logits(logits, images)
        self.finite_guard.note_logits(logits)
        if logits.ndim == 2:
            return logits
        check_per_pixel(self.method)
        self.map_size = (logits.shape[2], logits.shape[3])
        return as_rows(logits)

    def run_beside(self, images: Tensor, logits: Tensor) -> Tensor:
        """Return logits to take gradients of beside those of the update: these, or where they were replayed new ones.

        The way back through a recorded pass can be gone once: the second time it reads what the first wrote over.
        """
        return self.run(images) if self.recorded and self.recorded.used else logits

    def _answer(self, logits: Tensor, images: Tensor) -> Tensor:
        """Return logits as the model has them: one row for each image, or maps of a segmenter."""
        return logits if self.map_size is None else as_maps(logits, images, self.map_size)

    def anchor(self, images: Tensor) -> Tensor:
        """Return the logits of the start, under the method's norm policy: what no learning would have answered."""
        with torch.no_grad():
            logits = self.run(images, self.starts)
        self.finite_guard.check()
        return logits

    def source_logits(self, images: Tensor) -> Tensor:
        """Return the logits of the source model in evaluation mode, finite or not."""
        with torch.no_grad(), self.normalising(SourceStatistics()), self._precision(images):
            logits = functional_call(self.model, self.starts, (images,)) if self.starts else self.model(images)
        return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits  # type: ignore[no-any-return]

    def update(self, loss: Tensor) -> None:
        """Take one optimiser step on a loss."""
        self.descend(torch.autograd.grad(loss, list(self.trained.values()), allow_unused=True))

    def descend(self, gradients: Sequence[Tensor | None]) -> None:
        """Take one optimiser step along gradients, one per trained parameter; along none that is not finite."""
        if self.optimizer is None:
            raise RuntimeError(f"method {self.method.name!r} has no optimiser")
        made = self.finite_guard.usable([gradient for gradient in gradients if gradient is not None])
        for parameter, gradient in zip(self.trained.values(), gradients, strict=True):
            parameter.grad = _laid_out_as(parameter, gradient)
        if self.optimizer.param_groups[0].get("fused"):
            # The device itself decides whether to step: asking it would leave it idle.
            self.optimizer.found_inf = 1.0 - made.float()  # type: ignore[attr-defined]
            self.optimizer.step()
        else:
            self.finite_guard.check()
            if made:
                self.optimizer.step()
        self.finite_guard.note_update(made)
        self.optimizer.zero_grad(set_to_none=True)

    @property
    def updates(self) -> int:
        """How many updates were made."""
        return self.finite_guard.updates

    @property
    def skipped(self) -> int:
        """How many batches could not be learnt from."""
        return self.finite_guard.skipped

    @property
    def diagnosis(self) -> tuple[str, ...]:
        """What is wrong with how often it updates and resets, in words; nothing where all is well."""
        counts = Counts(self.steps, self.updates, self.resets)
        return diagnose(self.method, self.reset_policy, counts) if self.trained else ()

    def reset(self, *, optimizer: bool = True) -> None:
        """Go back to the start: parameters, gathered statistics, memory and (unless told otherwise) the optimiser."""
        self.restart(optimizer=optimizer)
        self.memory = {}
        self.resets += 1

    def restart(self, *, optimizer: bool = True) -> None:
        """Put parameters, gathered statistics and the optimiser back; keep the memory, and count nothing."""
        changing = self.changing()
        if changing:  # of a model without batch norms, where nothing is learnt, there is nothing to put back
            with torch.no_grad():
                torch._foreach_copy_(list(changing.values()), [self.starts[name] for name in changing])
        for norm in self.norms.values():
            norm.pending = None
        if optimizer:
            self._new_optimizer()

    def announce(self, shift: str) -> None:
        """Say which shift the next images are under, for the reset policy `each_shift`."""
        self.shift = shift

    def rng(self, name: str, count: int) -> Keyed:
        """Return a generator of `count` rows for this step, keyed by (seed, name, step)."""
        device = next((tensor.device for tensor in self.model.parameters()), None)
        return Keyed(self.options.seed, torch.arange(count), device=device).fork(f"{name}/{self.steps}")

    @contextmanager
    def normalising(self, policy: NormPolicy) -> Iterator[None]:
        """Use another norm policy for a while."""
        known = [norm.policy for norm in self.norms.values()]
        for norm in self.norms.values():
            norm.policy = policy
        try:
            yield
        finally:
            for norm, old in zip(self.norms.values(), known, strict=True):
                norm.policy = old

    def changing(self) -> dict[str, Tensor]:
        """Return the tensors of the adapted copy that can change, by name: what learns and what is gathered."""
        found: dict[str, Tensor] = dict(self.trained)
        for name, norm in self.norms.items():
            found |= {f"{name}.{part}": getattr(norm, part) for part in norm.gathered._fields}
        return found

    def gathered(self) -> dict[str, Tensor]:
        """Return the statistics gathered, with those of the last forward pass, by name."""
        return {
            f"{name}.{part}": value
            for name, norm in self.norms.items()
            for part, value in norm.gathered._asdict().items()
        }

    def train(self, mode: bool = True) -> Self:
        """Set the flag of the adapter alone: dropout and stochastic depth of the adapted copy stay off."""
        self.training = mode
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """Return what is not a parameter or a buffer of the adapted copy."""
        return {
            "method": self.method.name,
            "source": self._identity,
            "memory": dict(self.memory),
            "optimizer": copy.deepcopy(self.optimizer.state_dict()) if self.optimizer else None,
            "counts": [self.steps, self.updates, self.resets, self.skipped],
            "shape": self.shape,
            "shifts": [self.shift, self.adapted_to],
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `get_extra_state` returned."""
        for key, own in (("method", self.method.name), ("source", self._identity)):
            if state[key] != own:
                what = "method" if key == "method" else "source model"
                raise DataError(f"This state belongs to another {what}.", expected=own, got=str(state[key]))
        device = next((tensor.device for tensor in self.model.parameters()), None)
        self.memory = {name: tensor.to(device) for name, tensor in state["memory"].items()}
        self._new_optimizer(state["optimizer"])
        self.steps, updates, self.resets, skipped = state["counts"]
        self.finite_guard.set_counts(updates, skipped)
        self.shape = None if state["shape"] is None else tuple(state["shape"])
        self.shift, self.adapted_to = state["shifts"]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or cast the start, the memory and the optimiser with the adapted copy."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.recorded:
            self.recorded.forget()
        self.starts = {name: fn(tensor) for name, tensor in self.starts.items()}
        self.memory = {name: fn(tensor) for name, tensor in self.memory.items()}
        if self.optimizer:
            self._new_optimizer(self.optimizer.state_dict())
        return self

    def _finish(self, images: Tensor, logits: Tensor) -> None:
        """Keep what the batch taught, now that it is known to be sound, and show it to the reset policy."""
        commit_all(self.norms.values())
        if self.options.window:
            self.memory["recent"] = images[-self.options.window :].detach().clone()
        self.steps += 1
        with torch.no_grad(), suppress(NotFiniteError):
            self.reset_policy.observe(self, images, logits)
        if self.steps == DIAGNOSED_AFTER:
            for said in self.diagnosis:
                warnings.warn(said, stacklevel=5)

    def _answer_with_source(self, images: Tensor) -> Tensor:
        """Count a batch that cannot be learnt from and answer it with the source model."""
        self.steps += 1
        self.finite_guard.skip()
        if not all(bool(parameter.isfinite().all()) for parameter in self.trained.values()):
            self.reset()
        return self.source_logits(images)

    def _joined(self, images: Tensor) -> Tensor:
        """Put recent images before a batch smaller than the window, so that statistics have enough to go by."""
        if not self.options.window:
            return images
        recent = self.memory.get("recent", images[:0])
        return torch.cat([recent, images])[-max(self.options.window, len(images)) :]

    def _new_optimizer(self, state: Mapping[str, Any] | None = None) -> None:
        """Start the optimiser anew, or where another was, moved and cast; how it computes is this device's choice."""
        make = self.parts.optimizer
        self.optimizer = make(list(self.trained.values())) if make and self.trained else None
        if self.optimizer and state:
            fused = [group.get("fused") for group in self.optimizer.param_groups]
            self.optimizer.load_state_dict(copy.deepcopy(dict(state)))
            for group, own in zip(self.optimizer.param_groups, fused, strict=True):
                group["fused"] = own

    def _precision(self, images: Tensor) -> AbstractContextManager[Any]:
        amp = self.options.amp
        return torch.autocast(images.device.type, getattr(torch, amp)) if amp else nullcontext()


def _own(model: nn.Module) -> nn.Module:
    """Return a copy in evaluation mode that does not learn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's own, on copying exported programs
        copied = copy.deepcopy(model)
    if is_program(model):  # which cannot learn anyway, and whose mode may be fixed
        return copied
    return copied.requires_grad_(False).eval()


def _distinct(named: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """Name a parameter that several layers share once."""
    first = {id(parameter): name for name, parameter in reversed(list(named.items()))}
    return {name: parameter for name, parameter in named.items() if first[id(parameter)] == name}


def _laid_out_as(parameter: nn.Parameter, gradient: Tensor | None) -> Tensor | None:
    """Return a gradient in its parameter's order of memory, which fused optimisers take for granted.

    Images that hold channels last give a convolution's weights gradients that do.
    """
    if gradient is None or gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def _copy_tensors(module: nn.Module, state: dict[str, Any], prefix: str, metadata: dict[str, Any]) -> None:
    """Make a state dict independent of the module it came from."""
    for name, value in state.items():
        if name.startswith(prefix) and isinstance(value, Tensor):
            state[name] = value.detach().clone()
