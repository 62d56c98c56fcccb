"""The one loop: forward, backward, step, average, by steps that depend on their number alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.errors import RunError
from shiftproof.keyed import key_of
from shiftproof.runs import Json
from shiftproof.training.dense import labelled
from shiftproof.training.feed import Feed, Views
from shiftproof.training.objectives import Moment
from shiftproof.training.schedules import rate_at
from shiftproof.training.seeding import seeded
from shiftproof.training.state import Average
from shiftproof.training.tuples import TupleSearch

Note = Callable[[dict[str, Json]], None]


class Loop:
    """A network in training: what changes over steps, and how it changes.

    `feed` says what steps are fed, by which recipe and settings; `search` finds the tuples of rsda and esda, and is
    needed in the leading process only.
    """

    def __init__(self, network: nn.Module, feed: Feed, *, sigma: float, search: TupleSearch | None = None) -> None:
        self.feed, self.settings, self.recipe = feed, feed.settings, feed.recipe
        self.device, self.team, self.sigma, self.search = feed.device, feed.team, sigma, search
        self.network = network.to(self.device).train()
        self.parallel = self.team.parallel(self.network, self.device)
        self.optimizer = _optimizer(self.network, feed)
        self.average = Average(self.network, self.settings.ema) if self.settings.ema else None
        self.found: list[tuple[int, ...]] = []
        self.step = 0
        low = "bf16" if self.device.type == "cuda" else "float32"
        self.low = (low if self.settings.precision == "auto" else self.settings.precision) == "bf16"

    def boundaries(self) -> list[int]:
        """Return the steps where a checkpoint is due: every so many, at the end, and at every search."""
        tuples, steps = self.recipe.tuples, self.feed.steps
        every = self.settings.checkpoint_every or self.feed.steps_per_epoch
        searches = [] if tuples is None else tuples.search_steps(steps, self.feed.steps_per_epoch)
        return sorted({*range(every, steps, every), *searches, steps})

    def run(self, stop: int, note: Note) -> None:
        """Go on to step `stop`; a search that is due at the step it starts from comes first.

        `note` hears of every `log_every` steps: step, epoch, mean loss, learning rate, seconds.
        """
        self._extend()
        losses: list[Tensor] = []
        begun = time.perf_counter()
        # Layers that draw for themselves, such as dropout, are seeded anew from every checkpoint on: so a run that goes
        # on draws as one that was not interrupted.
        with _fast(self.device), seeded(key_of(f"{self.settings.seed}/{self.step}/{self.team.rank}")):
            for batch in self.feed.batches(self.step, stop, tuple(self.found)):
                losses.append(self._update(batch))
                self.step += 1
                if self.step % self.settings.log_every == 0 or self.step == stop:
                    loss = float(self.team.mean(torch.stack(losses).mean()))
                    self._check(loss)
                    seconds = time.perf_counter() - begun
                    note({**self._now(), "loss": loss, "steps": len(losses), "seconds": round(seconds, 4)})
                    losses, begun = [], time.perf_counter()

    def _now(self) -> dict[str, Json]:
        epoch = self.step / self.feed.steps_per_epoch
        return {"step": self.step, "epoch": round(epoch, 4), "lr": self.optimizer.param_groups[0]["lr"]}

    def _update(self, batch: Views) -> Tensor:
        """Make one step and return its loss, on the device."""
        settings, per_epoch = self.settings, self.feed.steps_per_epoch
        share = rate_at(
            self.step, self.feed.steps, schedule=settings.schedule, warmup=round(settings.warmup * per_epoch)
        )
        for group in self.optimizer.param_groups:
            group["lr"] = settings.lr * share
        labels, pixels = labelled(batch.labels)
        with self._precision():
            moment = Moment(
                self.parallel,
                self._fixed,
                batch.inputs,
                labels,
                self.feed.noise(batch, self.sigma, self.step // per_epoch),
                self.sigma,
                self.step / per_epoch,
                pixels,
            )
            loss = self.recipe.objective.loss(moment).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if settings.clip is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
        self.optimizer.step()
        if self.average is not None:
            self.average.update()
        return loss.detach()

    def _fixed(self, images: Tensor) -> Tensor:
        """Return the logits of the network in evaluation mode, which leaves its statistics alone."""
        with evaluating(self.network):
            logits: Tensor = self.network(images)
        return logits

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.low else nullcontext()

    def _extend(self) -> None:
        """Add the tuple that the network is weakest to now, where a search is due."""
        tuples = self.recipe.tuples
        if tuples is None or self.step not in tuples.search_steps(self.feed.steps, self.feed.steps_per_epoch):
            return
        found = None
        if self.search is not None:  # only the leader has one
            found = self.search(self.network, len(self.found))
        genes = self.team.tell(found)
        if genes is None:
            raise RuntimeError("the search for tuples gave nothing")
        self.found.append(tuple(genes))

    def _check(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise RunError(
                f"The loss is not finite at step {self.step}.",
                got=f"{loss} with a learning rate of {self.optimizer.param_groups[0]['lr']:g}",
                fix="lower --lr, bound the gradient with --clip 1, or add --warmup 1, and choose another folder "
                "with --out",
            )

    def weights(self) -> dict[str, Tensor]:
        """Return what is worth keeping: the average of the weights where there is one, else the weights."""
        values = self.network.state_dict() if self.average is None else self.average.values
        return {name: value.detach().clone() for name, value in values.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return everything that changes over steps."""
        return {
            "step": self.step,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "found": [list(genes) for genes in self.found],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.step = int(state["step"])
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.found = [tuple(genes) for genes in state["found"]]


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode, and back."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _optimizer(network: nn.Module, feed: Feed) -> torch.optim.Optimizer:
    settings = feed.settings
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    fused = feed.device.type == "cuda"
    if settings.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=settings.lr, weight_decay=settings.weight_decay, fused=fused)
    return torch.optim.SGD(
        parameters, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay, fused=fused
    )


def _fast(device: torch.device) -> AbstractContextManager[object]:
    """Let cuDNN try its algorithms: all batches have one size."""
    if device.type != "cuda":
        return nullcontext()
    context: AbstractContextManager[object] = torch.backends.cudnn.flags(enabled=True, benchmark=True)
    return context
