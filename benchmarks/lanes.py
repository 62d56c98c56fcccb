"""One method along many streams at once, in one network: convolutions are shared, what learns has a row per stream.

Small networks leave an accelerator idle: launching the kernels of a batch takes longer than running them. Here the
batches of all streams go through one network side by side, as `adapters` would send each by itself: normalisation has
statistics and parameters of each stream's own, and all else that is remembered has an axis of streams. It is a second
writing of these methods, for recordings alone; `tests/adapters/test_lanes.py` holds it to the first.

A batch of S streams is [N, S, C, H, W]; the network takes it as [N * S, C, H, W].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from shiftproof.adapters import losses
from shiftproof.adapters.guard import Guard, excess
from shiftproof.adapters.parts import largest_cosine
from shiftproof.measures.betting import bet_again, new_capital
from shiftproof.models.moments import batch_norm


class LaneBatchNorm(nn.Module):
    """A batch norm with statistics and parameters of each stream's own: streams are further channels."""

    def __init__(self, norm: nn.BatchNorm2d, lanes: int) -> None:
        super().__init__()
        self.eps, self.lanes = norm.eps, lanes
        self.weight, self.bias = (nn.Parameter(given.detach().repeat(lanes, 1)) for given in (norm.weight, norm.bias))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [N * S, C, H, W] with the statistics of this very input."""
        side_by_side = x.reshape(-1, self.lanes * x.shape[1], *x.shape[2:])
        return batch_norm(side_by_side, self.weight.flatten(), self.bias.flatten(), self.eps).view(x.shape)


class LaneLayerNorm(nn.Module):
    """A layer norm with parameters of each stream's own."""

    def __init__(self, norm: nn.LayerNorm, lanes: int) -> None:
        super().__init__()
        self.eps, self.lanes, self.shape = norm.eps, lanes, norm.normalized_shape
        self.weight, self.bias = (nn.Parameter(given.detach().repeat(lanes, 1)) for given in (norm.weight, norm.bias))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [N * S, tokens, width]."""
        each = F.layer_norm(x, self.shape, eps=self.eps).view(-1, self.lanes, *x.shape[1:])
        return torch.addcmul(self.bias[:, None], each, self.weight[:, None]).flatten(0, 1)


class Lanes:
    """ETA (Niu et al. 2022) along S streams at once, each with its own learning rate; the others build on it.

    `options` are those of the method, as `shiftproof.adapters` chooses them; `rates` the learning rates, one a stream.
    """

    batch_norm = LaneBatchNorm

    def __init__(self, model: nn.Module, options: Mapping[str, Any], rates: Sequence[float], classes: int) -> None:
        self.options, self.lanes, self.classes = options, len(rates), classes
        self.network = deepcopy(model).eval().requires_grad_(False)
        kinds, names = {nn.BatchNorm2d: self.batch_norm, nn.LayerNorm: LaneLayerNorm}, []
        for name, module in list(model.named_modules()):
            if type(module) in kinds:
                parent, _, child = name.rpartition(".")
                setattr(self.network.get_submodule(parent), child, kinds[type(module)](module, self.lanes))
                names += [f"{name}.weight", f"{name}.bias"]
        parameters = dict(self.network.named_parameters())
        self.names, self.sizes = names, [parameters[name].shape[1] for name in names]
        self.start = torch.cat([parameters[name].detach() for name in names], 1)
        self.theta = self.start.clone().requires_grad_(True)
        self.rates = torch.tensor(rates, dtype=self.start.dtype, device=self.start.device)[:, None]
        self.bad = torch.zeros(self.lanes, dtype=torch.bool, device=self.start.device)
        self.steps, self.recording = 0, False
        self.recent: Tensor | None = None
        self.margin = options.get("entropy_margin", 0.0) * math.log(classes)
        self.cosine = largest_cosine(classes)
        self.forget(self.all())

    def all(self) -> Tensor:
        """Return all streams, [S] bool."""
        return torch.ones_like(self.bad)

    def none(self) -> Tensor:
        """Return no stream, [S] bool."""
        return torch.zeros_like(self.bad)

    def forget(self, who: Tensor) -> None:
        """Start the mean prediction and the optimiser of some streams anew."""
        if not hasattr(self, "mean"):
            self.mean, self.has_mean = self.start.new_zeros(self.lanes, self.classes), self.none()
            self.first, self.second = torch.zeros_like(self.start), torch.zeros_like(self.start)
            self.made = self.start.new_zeros(self.lanes, 1)
        self.has_mean = self.has_mean & ~who
        self.new_optimizer(who)

    def new_optimizer(self, who: Tensor) -> None:
        """Start the optimiser of some streams anew."""
        self.first, self.second, self.made = (
            torch.where(who[:, None], 0, each) for each in (self.first, self.second, self.made)
        )

    def run(self, images: Tensor, theta: Tensor | None = None) -> Tensor:
        """Return logits [N, S, K] of images [N, S, ...]."""
        parts = torch.split(self.theta if theta is None else theta, self.sizes, 1)
        logits: Tensor = functional_call(self.network, dict(zip(self.names, parts, strict=True)), images.flatten(0, 1))
        return logits.view(-1, self.lanes, self.classes)

    def __call__(self, images: Tensor, window: int = 0) -> Tensor:
        """Return the classes answered, [N, S], and learn; recent images join a batch smaller than the window."""
        count = len(images)
        self.reset()
        if window:
            images = images if self.recent is None else torch.cat([self.recent, images])
            images = images[-max(window, count) :]
        answers = self.step(images)
        self.recent = images[-window:] if window else None
        self.steps += 1
        self.look(images, answers)
        return answers[-count:]

    def step(self, images: Tensor) -> Tensor:
        """Return the classes answered, and learn."""
        logits = self.learn(images)
        self.bad = self.bad | ~logits.detach().isfinite().all(2).all(0)
        self.observe(images, logits.detach())
        return logits.detach().argmax(2)

    def reset(self) -> None:
        """Go back to the start at the interval, if there is one, memory and all."""
        every = getattr(self.options["reset"], "steps", 0)
        if every and self.steps and self.steps % every == 0:
            self.return_all(self.all())
            self.recent = None

    def return_all(self, who: Tensor) -> None:
        """Put some streams back to the start."""
        self.set(torch.where(who[:, None], self.start, self.theta.detach()))
        self.forget(who)

    def set(self, theta: Tensor) -> None:
        """Replace what learns."""
        self.theta = theta.detach().requires_grad_(True)

    def observe(self, images: Tensor, logits: Tensor) -> None:
        """Look at a batch that was answered, on its device alone."""

    def look(self, images: Tensor, answers: Tensor) -> None:
        """Look at a batch that was answered, from the host."""

    def learn(self, images: Tensor) -> Tensor:
        """Take the step of a batch and return its logits."""
        return self.learn_from(images, self.run(images))

    def learn_from(self, images: Tensor, logits: Tensor) -> Tensor:
        """Take the step from logits that are known."""
        loss, active = self.loss(logits)
        more = self.beside(logits, active)
        (gradient,) = torch.autograd.grad(loss.sum(), self.theta)
        with torch.no_grad():
            gradient = self.with_more(gradient if more is None else gradient + more, active)
            self.descend(gradient, active)
        return logits

    def loss(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each stream, and which keep an image to learn from, [S] each."""
        each = losses.entropy(logits.flatten(0, 1)).view(-1, self.lanes)
        known = each.detach()
        kept = self.keep(logits.detach(), known < self.margin)
        count = kept.sum(0)
        weighted = each * torch.exp(self.margin - known)
        return torch.where(kept, weighted, 0).sum(0) / count.clamp_min(1), count > 0

    def keep(self, logits: Tensor, kept: Tensor) -> Tensor:
        """Drop images whose prediction is like the running mean prediction, and move that."""
        p = logits.softmax(2)
        alike = F.cosine_similarity(self.mean[None], p, dim=2).abs()
        kept = kept & ((alike < self.cosine) | ~self.has_mean)
        count = kept.sum(0)[:, None]
        new = (p * kept[..., None]).sum(0) / count.clamp_min(1)
        moved = torch.where(self.has_mean[:, None], 0.9 * self.mean + (1 - 0.9) * new, new)
        self.mean = torch.where(count > 0, moved, self.mean)
        self.has_mean = self.has_mean | (count[:, 0] > 0)
        return kept

    def beside(self, logits: Tensor, active: Tensor) -> Tensor | None:
        """Return a gradient beside that of the loss; the graph of the logits still holds."""
        return None

    def with_more(self, gradient: Tensor, active: Tensor) -> Tensor:
        """Return the gradient to descend along."""
        return gradient

    def descend(self, gradient: Tensor, active: Tensor) -> None:
        """Take the optimiser's step of the streams that have one to take."""
        who, o = (active & gradient.isfinite().all(1))[:, None], self.options
        self.made = self.made + who
        if o["optimizer"] == "sgd":
            first = o["momentum"] * self.first + gradient
            step = first
        else:
            first = torch.lerp(gradient, self.first, o["momentum"])
            second = 0.999 * self.second + (1 - 0.999) * gradient.square()
            self.second = torch.where(who, second, self.second)
            made = self.made.clamp_min(1)
            scale = (second / (1 - 0.999**made)).sqrt() + 1e-8
            step = first / (1 - o["momentum"] ** made) / scale
        self.first = torch.where(who, first, self.first)
        self.set(torch.where(who, self.theta - self.rates * step, self.theta))


class Tent(Lanes):
    """Tent (Wang et al. 2021): all images count alike."""

    def loss(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean entropies."""
        return losses.entropy(logits.flatten(0, 1)).view(-1, self.lanes).mean(0), self.all()


class Unlearning(Lanes):
    """Batch statistics, and nothing learns."""

    def learn(self, images: Tensor) -> Tensor:
        """Answer."""
        with torch.no_grad():
            return self.run(images)


class Source(Lanes):
    """The model as it is."""

    def __init__(self, model: nn.Module, options: Mapping[str, Any], rates: Sequence[float], classes: int) -> None:
        super().__init__(model, options, rates, classes)
        self.model = model

    def learn(self, images: Tensor) -> Tensor:
        """Answer."""
        with torch.no_grad():
            logits: Tensor = self.model(images.flatten(0, 1))
            return logits.view(-1, self.lanes, self.classes)


class Rdumb(Lanes):
    """RDumb, and the test of `guard` beside it: until its first alarm along a stream, `guard` answers as RDumb does."""

    def __init__(self, model: nn.Module, options: Mapping[str, Any], rates: Sequence[float], classes: int) -> None:
        super().__init__(model, options, rates, classes)
        self.guard = Guard()
        self.alarms: list[int | None] = [None] * self.lanes

    def forget(self, who: Tensor) -> None:
        """Start the test anew, too: all streams go back together."""
        super().forget(who)
        self.capital = new_capital(self.lanes)

    def look(self, images: Tensor, answers: Tensor) -> None:
        """Bet on a batch at the interval; an alarm is the number of steps taken before it."""
        if self.steps % self.guard.interval:
            return
        with torch.no_grad():
            anchor, seen = (
                self.run(view, self.start) for view in (images, self.guard.view(images.flatten(0, 1)).view_as(images))
            )
        chosen = F.one_hot(answers, self.classes)
        groups = [
            excess(*each, self.guard.ratio, self.guard.slack)
            for each in zip(chosen.unbind(1), anchor.unbind(1), seen.unbind(1), strict=True)
        ]
        for outcomes in zip(*groups, strict=True):
            self.capital = bet_again(self.capital, outcomes, self.guard.horizon * len(groups[0]))
        self.capital = np.minimum(self.capital, 1e4)
        for lane, capital in enumerate(self.capital.mean(1)):
            if capital >= 1 / self.guard.alpha and self.alarms[lane] is None:
                self.alarms[lane] = self.steps


class Eata(Lanes):
    """EATA: what mattered for the first images is held near its start."""

    def forget(self, who: Tensor) -> None:
        """Start the Fisher information anew, too."""
        super().forget(who)
        if not hasattr(self, "fisher"):
            self.fisher, self.seen = torch.zeros_like(self.start), self.start.new_zeros(self.lanes, 2)
        self.fisher, self.seen = (torch.where(who[:, None], 0, each) for each in (self.fisher, self.seen))
        self.gathering = True

    def beside(self, logits: Tensor, active: Tensor) -> Tensor | None:
        """Gather the Fisher information while it is wanted, and return the pull to the start."""
        if self.gathering:
            wanted = active & (self.seen[:, 1] < self.options["fisher_images"])
            chosen = F.cross_entropy(logits.permute(0, 2, 1), logits.argmax(2), reduction="none").mean(0)
            (gradient,) = torch.autograd.grad(chosen.sum(), self.theta, retain_graph=True)
            self.fisher = self.fisher + wanted[:, None] * gradient.square().nan_to_num()
            new = self.seen.new_tensor([1, len(logits)])
            self.seen = self.seen + wanted[:, None] * new
            self.gathering = bool((self.seen[:, 1] < self.options["fisher_images"]).any())
        information = self.fisher / self.seen[:, :1].clamp_min(1)
        pull: Tensor = 2 * self.options["fisher_weight"] * information * (self.theta.detach() - self.start)
        return pull


class Drifting(Lanes):
    """RDumb++: half the way back when the mean entropy drifts."""

    def forget(self, who: Tensor) -> None:
        """Nothing more: it never goes back all the way."""
        super().forget(who)
        if not hasattr(self, "since"):
            self.since = torch.full_like(self.rates[:, 0], self.options["cool_down"])
            self.level: Tensor | None = None

    def learn(self, images: Tensor) -> Tensor:
        """Go back where what is watched drifts, then learn."""
        o, logits = self.options, self.run(images)
        with torch.no_grad():
            value = losses.entropy(logits.flatten(0, 1)).view(-1, self.lanes).mean(0)
            new = torch.stack([value, value.square()])
            self.level = new if self.level is None else o["keep_drift"] * self.level + (1 - o["keep_drift"]) * new
            mean, square = self.level
            above = (value - mean) / (square - mean.square()).clamp_min(1e-12).sqrt()
            drifts = (above > o["deviations"]) & (self.since >= o["cool_down"]) & (self.steps >= o["warm_up"])
            moved = torch.where(drifts[:, None], torch.lerp(self.theta, self.start, o["return_share"]), self.theta)
            self.since = torch.where(drifts, 0, self.since) + 1
        if self.recording or bool(drifts.any()):
            self.set(moved)
            logits = self.run(images)
        return self.learn_from(images, logits)


class Selective(Lanes):
    """ASR: part of the way back when predictions concentrate."""

    def forget(self, who: Tensor) -> None:
        """Start the sums since the last return anew, too."""
        super().forget(who)
        if not hasattr(self, "sums"):
            shape = (2, *self.start.shape)
            self.sums, self.kept = self.start.new_zeros(shape), self.start.new_zeros(shape)
            self.has_sums, self.has_kept, self.pull = self.none(), self.none(), torch.zeros_like(self.rates)
            self.since, self.level = torch.zeros_like(self.rates), torch.zeros_like(self.rates[:, 0])
            sizes = torch.tensor(self.sizes, device=self.start.device)
            self.number = torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes)
        first = math.log(self.options["level_share"] * self.classes)
        self.level = torch.where(who, first, self.level)
        self.sums, self.since = torch.where(who[:, None], 0, self.sums), torch.where(who[:, None], 0, self.since)
        self.has_sums = self.has_sums & ~who

    def with_more(self, gradient: Tensor, active: Tensor) -> Tensor:
        """Add to the sums, and return the gradient with the pull to what mattered."""
        now = self.theta.detach()
        self.sums = self.sums + active[:, None] * torch.stack([gradient.square(), now])
        self.has_sums = self.has_sums | active
        fisher, mean = self.kept
        return torch.where(self.has_kept[:, None], gradient + 2 * self.pull * fisher * (now - mean), gradient)

    def observe(self, images: Tensor, logits: Tensor) -> None:
        """Go back in part where the mean answer is surer than the level; else let the level follow it."""
        o = self.options
        with torch.no_grad():
            self.since = self.since + 1
            differs = (self.run(images, self.start).argmax(2) != logits.argmax(2)).to(logits.dtype).mean(0)
            self.pull = o["anchor_weight"] * differs.square()[:, None]
            now = losses.entropy(logits.mean(0))
            keep = 1 - o["follow"] * (1 - differs)
            back, level = now < self.level, self.level
            self.level = torch.where(back, level, keep * level + (1 - keep) * now)
            new = self.sums / self.since
            merged = torch.where(self.has_kept[:, None], 0.9 * self.kept + (1 - 0.9) * new, new)
            self.kept = torch.where((back & self.has_sums)[:, None], merged, self.kept)
            self.has_kept = self.has_kept | (back & self.has_sums)
            share = (o["keep_share"] - o["keep_slope"] * (level - now)).clamp_min(0)[:, None]
            returned = torch.where(self.number < share * len(self.sizes), self.theta, self.start)
            self.set(torch.where(back[:, None], returned, self.theta))
            self.forget(back)


FAMILY: Mapping[str, type[Lanes]] = {
    "source": Source,
    "bn": Unlearning,
    "tent": Tent,
    "eta": Lanes,
    "rdumb": Rdumb,
    "eata": Eata,
    "rdumbpp": Drifting,
    "asr": Selective,
}
