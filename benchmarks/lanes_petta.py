"""PeTTA along many streams at once: teacher, student and start have statistics and weights of each stream's own.

Memories differ in how many images they hold: they are filled up to their capacity with images that count for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.lanes import LaneBatchNorm, Lanes
from shiftproof.adapters import losses, views
from shiftproof.adapters.features import features_and_logits
from shiftproof.adapters.persistent import class_moments, symmetric
from shiftproof.adapters.rotta import Bank, Entry
from shiftproof.models.moments import batch_norm_with

KEYS = 2**32
"""The keys of views begin anew with every step, so many further on."""


class GatheringBatchNorm(LaneBatchNorm):
    """A batch norm of running statistics, `mean` and `var`; `shares` of images, [N, S], are gathered before use."""

    def __init__(self, norm: nn.BatchNorm2d, lanes: int) -> None:
        super().__init__(norm, lanes)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        self.mean, self.var = norm.running_mean.repeat(lanes), norm.running_var.repeat(lanes)
        self.shares: Tensor | None = None
        self.ema = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [N * S, C, H, W]."""
        side_by_side = x.reshape(-1, len(self.mean), *x.shape[2:])
        mean, var = self.mean, self.var
        if self.shares is not None:
            shares = self.shares.repeat_interleave(x.shape[1], 1)
            own = (side_by_side.mean((2, 3)) * shares).sum(0)
            spread = (side_by_side - own[:, None, None]).square().mean((2, 3))
            mean, var = torch.lerp(mean, own, self.ema), torch.lerp(var, (spread * shares).sum(0), self.ema)
            self.mean, self.var = mean.detach(), var.detach()
        made = batch_norm_with(side_by_side, mean, var, self.weight.flatten(), self.bias.flatten(), self.eps)
        return made.view(x.shape)


class Petta(Lanes):
    """PeTTA along S streams at once; `options["source"]` are images of the source."""

    batch_norm = GatheringBatchNorm

    def __init__(self, model: nn.Module, options: Mapping[str, Any], rates: Sequence[float], classes: int) -> None:
        super().__init__(model, options, rates, classes)
        self.norms = [each for each in self.network.modules() if isinstance(each, GatheringBatchNorm)]
        self.gathered = {who: self.statistics() for who in ("teacher", "student", "start")}
        self.teacher = self.start.clone()
        self.banks = [Bank(options["capacity"], classes, []) for _ in rates]
        self.bank: Tensor | None = None
        self.new = 0
        self.augment = views.parse(options["augment"])
        with torch.no_grad():
            known = [features_and_logits(model, model, batch) for batch in torch.split(options["source"], 512)]
            features, logits = (torch.cat(parts) for parts in zip(*known, strict=True))
            means, variances = class_moments(features, logits.argmax(1), classes)
        self.source, self.variances = means, variances
        self.means = means.repeat(self.lanes, 1, 1)

    def statistics(self) -> list[tuple[Tensor, Tensor]]:
        """Return the statistics in use."""
        return [(norm.mean, norm.var) for norm in self.norms]

    def run_as(self, who: str, images: Tensor, theta: Tensor, shares: Tensor | None = None) -> Tensor:
        """Return the logits of one of the three, which gathers statistics where shares are given."""
        for norm, (mean, var) in zip(self.norms, self.gathered[who], strict=True):
            norm.mean, norm.var, norm.shares, norm.ema = mean, var, shares, self.options["ema"]
        logits = self.run(images, theta)
        self.gathered[who] = self.statistics()
        return logits

    def learn(self, images: Tensor) -> Tensor:
        """Answer with the teacher, remember, and teach the student where there is enough that is new."""
        with torch.no_grad():
            run = lambda given: self.run_as("teacher", given, self.teacher)  # noqa: E731
            features, logits = features_and_logits(self.network, run, images)
            gamma = self.diverge(features.view(-1, self.lanes, features.shape[1]), logits)
        self.remember(images, logits)
        self.new += len(images)
        if self.new >= self.options["update_every"]:
            self.learn_from_bank(gamma)
        self.new %= self.options["update_every"]
        return logits

    def diverge(self, features: Tensor, logits: Tensor) -> Tensor:
        """Return how far the classes' mean features are from the source's, [S], and let them follow."""
        members = F.one_hot(logits.argmax(2), self.classes).to(features.dtype)
        counts = members.sum(0)
        known = (counts > 0) & self.variances.isfinite().all(1)
        squares = ((self.means - self.source).square() / (self.variances + 1e-6)).mean(2)
        distance = torch.where(known, squares, 0).sum(1) / known.sum(1).clamp_min(1)
        new = torch.einsum("nsk,nsf->skf", members, features) / counts[..., None].clamp_min(1)
        keep = self.options["keep_features"]
        self.means = torch.where(counts[..., None] > 0, torch.lerp(new, self.means, keep), self.means)
        return 1 - torch.exp(-distance)

    def remember(self, images: Tensor, logits: Tensor) -> None:
        """Show every stream's images to its memory, one by one."""
        doubts = losses.entropy(logits.flatten(0, 1)).view(-1, self.lanes)
        shown = torch.stack([logits.argmax(2).double(), doubts.double()], 2).transpose(0, 1).tolist()
        capacity = self.options["capacity"]
        bank = images.new_zeros(capacity, *images.shape[1:]) if self.bank is None else self.bank
        places = torch.zeros(capacity, self.lanes, dtype=torch.int64)
        self.shares = torch.zeros(capacity, self.lanes, dtype=images.dtype)
        for lane, (memory, new) in enumerate(zip(self.banks, shown, strict=True)):
            for place, entry in enumerate(memory.entries):
                entry.place = place
            for place, (label, doubt) in enumerate(new, start=capacity):
                memory.add(Entry(place, int(label), doubt))
            held = [entry.place for entry in memory.entries]
            places[: len(held), lane] = torch.tensor(held)
            self.shares[: len(held), lane] = 1 / len(held)
        both = torch.cat([bank, images])
        self.bank = both[places.to(images.device), torch.arange(self.lanes, device=images.device)]
        self.shares = self.shares.to(images.device)

    def learn_from_bank(self, gamma: Tensor) -> None:
        """Teach the student, held back by the divergence, and let the teacher follow."""
        o, images, shares = self.options, self.bank, self.shares
        assert images is not None
        with torch.no_grad():
            target = self.run_as("teacher", images, self.teacher, shares).flatten(0, 1)
            anchor = self.run_as("start", images, self.start, shares).flatten(0, 1)
        plain = self.run_as("student", images, self.theta, shares).flatten(0, 1)
        keys = torch.arange(len(images)) + self.steps * KEYS
        view = self.augment(images.flatten(0, 1), keys.repeat_interleave(self.lanes), seed=o["seed"])
        viewed = self.run_as("student", view.view_as(images), self.theta, shares).flatten(0, 1)
        both = o["compare"] == "symmetric"
        each = symmetric(plain, viewed, target) if both else losses.cross_entropy(viewed, target)
        each = each + o["start_weight"] * losses.cross_entropy(viewed, anchor)
        loss = (each.view(-1, self.lanes) * shares).sum(0) + o["hold"] * gamma * self.against()
        (gradient,) = torch.autograd.grad(loss.sum(), self.theta)
        with torch.no_grad():
            self.descend(gradient, self.all())
            keep = 1 - (1 - o["keep_weights"]) * (1 - gamma)[:, None]
            self.teacher = torch.lerp(self.theta.detach(), self.teacher, keep)

    def against(self) -> Tensor:
        """Return minus the mean cosine of the parameters with their start, [S]."""
        pairs = (torch.split(given, self.sizes, 1) for given in (self.theta, self.start))
        cosines = [F.cosine_similarity(now, start, dim=1) for now, start in zip(*pairs, strict=True)]
        return -torch.stack(cosines).mean(0)
