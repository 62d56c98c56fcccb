"""The one loop: forward, backward, step, average, by steps that depend on their number alone."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.data import ImageSet
from shiftproof.errors import RunError
from shiftproof.keyed import key_of
from shiftproof.models.feature_tap import last_linear, logits_and_features
from shiftproof.models.memory import out_of_memory
from shiftproof.models.opening import scores_in
from shiftproof.runs import Json
from shiftproof.training.dense import labelled
from shiftproof.training.feed import Feed, Views, labels_of
from shiftproof.training.learning_layers import evaluating, freeze, hold_frozen, parameter_groups
from shiftproof.training.mixed_targets import Targets, class_weights, mixed
from shiftproof.training.objectives import Moment
from shiftproof.training.schedules import rate_at
from shiftproof.training.seeding import seeded
from shiftproof.training.state import Average
from shiftproof.training.tuples import TupleSearch

Note = Callable[[dict[str, Json]], None]
ANCHORED = 512
"""So many images at once are shown to the network that training began with: its kernels fit between those of steps."""


class DivergedError(RunError):
    """The loss of a run is not finite any more."""


class Loop:
    """A network in training: what changes over steps, and how it changes.

    `feed` says what steps are fed, by which recipe and settings; `search` finds the tuples of rsda and esda, and is
    needed in the leading process only.
    """

    def __init__(self, network: nn.Module, feed: Feed, *, sigma: float, search: TupleSearch | None = None) -> None:
        self.feed, self.settings, self.recipe = feed, feed.settings, feed.recipe
        self.device, self.team, self.sigma, self.search = feed.device, feed.team, sigma, search
        anchored = self.recipe.objective.anchored
        self.start = copy.deepcopy(network).to(self.device).eval().requires_grad_(False) if anchored else None
        freeze(network, self.settings.frozen)
        self.network = network.to(self.device).train()
        self._has_features = last_linear(network) is not None
        hold_frozen(self.network, self.settings.frozen)
        self.parallel = self.team.parallel(self.network, self.device)
        self.optimizer = _optimizer(self.network, feed)
        self.average = Average(self.network, self.settings.ema) if self.settings.ema else None
        self.found: list[tuple[int, ...]] = []
        self.step = 0
        self._rest: tuple[tuple[object, ...], Generator[Views, None, None]] | None = None
        self.ends: tuple[int, ...] = (self.feed.steps,)
        """The steps at which the run ended, each time it was extended, and where it ends now."""
        auto = "bf16" if self.device.type == "cuda" else "float32"
        self.precision = auto if self.settings.precision == "auto" else self.settings.precision
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")
        self.class_weights: Tensor | None = None
        if self.settings.class_weights == "balanced":
            labels = labels_of(feed.data)
            self.class_weights = class_weights(labels, int(labels.max()) + 1).to(self.device)

    def boundaries(self) -> list[int]:
        """Return the steps where a checkpoint is due: every so many, at every end, and at every search."""
        tuples, steps = self.recipe.tuples, self.ends[-1]
        every = self.settings.checkpoint_every or self.feed.steps_per_epoch
        searches = [] if tuples is None else tuples.search_steps(steps, self.feed.steps_per_epoch)
        return sorted({*range(every, steps, every), *searches, *self.ends})

    def run(self, stop: int, note: Note) -> None:
        """Go on to step `stop`; a search that is due at the step it starts from comes first.

        `note` hears of every `log_every` steps: step, epoch, mean loss and accuracy on what was trained on, learning
        rate, seconds. What is fed goes on from call to call: on CUDA it is made ahead across checkpoints.
        """
        self._extend()
        losses: list[Tensor] = []
        right: list[Tensor] = []
        begun = time.perf_counter()
        # Layers that draw for themselves, such as dropout, are seeded anew from every checkpoint on: so a run that goes
        # on draws as one that was not interrupted.
        drawn = seeded(key_of(f"{self.settings.seed}/{self.step}/{self.team.rank}"))
        with _fast(self.device), _first(self.device), drawn, self._memory_told(), self._fed() as batches:
            for batch in islice(batches, stop - self.step):
                losses.append(self._update(batch, right))
                self.step += 1
                if self.step % self.settings.log_every == 0 or self.step == stop:
                    loss = self._mean(losses)
                    self._check(loss)
                    seconds = time.perf_counter() - begun
                    seen = {"train_accuracy": self._mean(right)} if right else {}
                    note({**self._now(), "loss": loss, **seen, "steps": len(losses), "seconds": round(seconds, 4)})
                    losses, right, begun = [], [], time.perf_counter()

    @contextmanager
    def _fed(self) -> Iterator[Iterator[Views]]:
        """Open what the steps from now on are fed: where the call before stopped here, the rest of what it was fed."""
        if self._rest is not None and self._rest[0] != self._place():
            self.close()
        if self._rest is None:
            # Images that are mixed are other images: what was said of them before is asked once they are.
            before = self._before if self.start is not None and self.settings.mix == "none" else None
            batches = self.feed.batches(self.step, self.ends[-1], tuple(self.found), before)
        else:
            (_, batches), self._rest = self._rest, None
        try:
            yield batches
        except BaseException:
            batches.close()
            raise
        self._rest = (self._place(), batches)
        if self.step == self.ends[-1]:
            self.close()

    def close(self) -> None:
        """Let go of what was made ahead."""
        if self._rest is not None:
            self._rest[1].close()
        self._rest = None

    def _place(self) -> tuple[object, ...]:
        return self.step, self.ends, *self.found

    @contextmanager
    def _memory_told(self) -> Iterator[None]:
        """Say in words that memory ran out, and what takes less."""
        try:
            yield
        except Exception as error:
            if not out_of_memory(error):
                raise
            raise RunError(
                "Training ran out of memory.",
                got=f"a batch of {self.feed.batch} images, of each {self.recipe.passes} through the network",
                fix=f"--batch-size {max(1, self.feed.batch // 2)}, or --accumulate 2, which sends a batch through in "
                "parts, and another folder with --out; what there is in this one stays",
            ) from error

    def _mean(self, values: list[Tensor]) -> float:
        return float(self.team.mean(torch.stack(values).mean()))

    def _now(self) -> dict[str, Json]:
        epoch = self.step / self.feed.steps_per_epoch
        return {"step": self.step, "epoch": round(epoch, 4), "lr": self.optimizer.param_groups[-1]["lr"]}

    def _update(self, batch: Views, right: list[Tensor]) -> Tensor:
        """Make one step and return its loss, on the device; `right` gets the share that was answered right."""
        settings = self.settings
        for group in self.optimizer.param_groups:
            group["lr"] = settings.lr * self._rate() * group["scale"]
        targets = Targets(batch.labels, weights=self.class_weights, smoothing=settings.label_smoothing)
        views, targets = mixed(batch.inputs, targets, settings, self.step)
        before = batch.before
        if before is None and self.start is not None:
            before = self._before(views[0])
        noise = self.feed.noise(batch, self.sigma, self.step // self.feed.steps_per_epoch)
        self.optimizer.zero_grad(set_to_none=True)
        count = len(batch.labels)
        size = -(-count // settings.accumulate)
        total = torch.zeros((), device=self.device)
        for start in range(0, count, size):
            some = slice(start, start + size)
            said = None if before is None else before[some]
            added = None if noise is None else noise[:, :, some]
            loss = self._loss(views[:, some], targets.part(some), added, said, right)
            loss = loss * (len(batch.labels[some]) / count) if settings.accumulate > 1 else loss
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            total = total + loss.detach()
        if settings.clip is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update()
        return total

    def _loss(
        self, views: Tensor, targets: Targets, noise: Tensor | None, before: Tensor | None, right: list[Tensor]
    ) -> Tensor:
        """Return the mean loss of images."""
        with self._autocast():
            epoch = self.step / self.feed.steps_per_epoch
            labels, pixels = labelled(targets.labels)
            targets = replace(targets, labels=labels)
            moment = Moment(
                *(self.parallel, self._fixed, views, targets, noise, self.sigma, epoch, before, right, pixels),
                featured=self._featured if self._has_features else None,
                holding=self._held,
            )
            return self.recipe.objective.loss(moment).mean()

    def _rate(self) -> float:
        """Return the share of the learning rate now: a run that was extended begins its schedule anew each time."""
        settings = self.settings
        place = next(place for place, end in enumerate(self.ends) if self.step < end)
        begun = self.ends[place - 1] if place else 0
        warmup = 0 if place else round(settings.warmup * self.feed.steps_per_epoch)
        return rate_at(self.step - begun, self.ends[place] - begun, schedule=settings.schedule, warmup=warmup)

    @torch.no_grad()
    def _before(self, images: Tensor) -> Tensor:
        """Return what the network that training began with says of images, as logarithms of probabilities."""
        assert self.start is not None
        with self._autocast():
            said = torch.cat([self.start(some) for some in torch.split(images, ANCHORED)])
        return said.float().log_softmax(-1)

    def _fixed(self, images: Tensor) -> Tensor:
        """Return the logits of the network in evaluation mode, which leaves its statistics alone."""
        with self._held():
            logits: Tensor = self.network(images)
        return logits

    def _featured(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the network in evaluation mode, and the features that they come from."""
        with self._held():
            return logits_and_features(self.network, images)

    def _held(self) -> AbstractContextManager[None]:
        """Put the network into evaluation mode, and back; where it is held already, that is enough."""
        return evaluating(self.network) if self.network.training else nullcontext()

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16 if self.precision == "bf16" else torch.float16)

    def _extend(self) -> None:
        """Add the tuple that the network is weakest to now, where a search is due."""
        tuples = self.recipe.tuples
        if tuples is None or self.step not in tuples.search_steps(self.ends[-1], self.feed.steps_per_epoch):
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
            raise DivergedError(
                f"The loss is not finite at step {self.step}.",
                got=f"{loss} with a learning rate of {self.optimizer.param_groups[0]['lr']:g}",
                fix="lower --lr, bound the gradient with --clip 1, or add --warmup 1, and choose another folder "
                "with --out",
            )

    def check_answers(self, network: nn.Module, data: ImageSet) -> None:
        """Refuse to go on with a network, in evaluation mode, whose weights a last step made too large."""
        batch = next(iter(data.subset(range(min(2, len(data)))).batches(2, device=self.device)))
        with torch.no_grad():
            scores = scores_in(network(batch.inputs))
        if isinstance(scores, Tensor) and not bool(scores.isfinite().all()):
            self._check(math.nan)

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
            "scaler": self.scaler.state_dict(),
            "found": [list(genes) for genes in self.found],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.step = int(state["step"])
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.scaler.load_state_dict(state["scaler"])
        self.found = [tuple(genes) for genes in state["found"]]


def _optimizer(network: nn.Module, feed: Feed) -> torch.optim.Optimizer:
    settings, groups = feed.settings, parameter_groups(network, feed.settings)
    lr, decay, fused = settings.lr, settings.weight_decay, feed.device.type == "cuda"
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=settings.momentum, weight_decay=decay, fused=fused)
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    return kind(groups, lr=lr, weight_decay=decay, fused=fused)


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream that steps are made in: one for all, as memory that one has freed is not another's."""
    made: torch.cuda.Stream = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
    return made


@contextmanager
def _first(device: torch.device) -> Iterator[None]:
    """Let a GPU prefer the kernels of steps to those of views that are made meanwhile, which fill the gaps."""
    if device.type != "cuda":
        yield
        return
    outer, steps = torch.cuda.current_stream(device), _stream(device)
    steps.wait_stream(outer)
    try:
        with torch.cuda.stream(steps):
            yield
    finally:
        outer.wait_stream(steps)


def _fast(device: torch.device) -> AbstractContextManager[object]:
    """Let cuDNN try its algorithms: all batches have one size."""
    if device.type != "cuda":
        return nullcontext()
    context: AbstractContextManager[object] = torch.backends.cudnn.flags(enabled=True, benchmark=True)
    return context
