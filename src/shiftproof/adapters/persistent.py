"""PeTTA: RoTTA whose teacher slows down and whose student is held back as features diverge (Hoang et al. 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.adapters import losses, views
from shiftproof.adapters.features import features_and_logits
from shiftproof.adapters.fisher import StreamOrImages
from shiftproof.adapters.method import Memory, Method, Parts
from shiftproof.adapters.norms import GatheredStatistics, RunningStatistics, commit_all
from shiftproof.adapters.parts import norm_affine, optimizer
from shiftproof.adapters.rotta import ROTTA, RottaOptions, remember
from shiftproof.adapters.teacher import PREFIX, follow, predict, teacher
from shiftproof.options import NotNegative, Share

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

START = "start/"
"""What belongs to the start, whose statistics follow the stream as the teacher's do."""


class PettaOptions(RottaOptions):
    """Options of PeTTA."""

    source: Annotated[
        StreamOrImages,
        "Where the features of the source come from: images of it, or, short of these, the stream's first batch.",
    ] = "stream"
    compare: Annotated[
        Literal["teacher", "symmetric"],
        "What views are compared with: the teacher, or teacher and student both ways, with and without a view.",
    ] = "teacher"
    hold: Annotated[NotNegative, "The weight of the cosine with the start, at the largest divergence."] = 10.0
    start_weight: Annotated[NotNegative, "The weight of the start's answers."] = 1.0
    keep_features: Annotated[Share, "How much of a class's mean features a batch keeps."] = 0.95


def class_moments(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return the mean and variance of each class's features, [classes, F]; 0 and infinity of fewer than two images."""
    means = features.new_zeros(classes, features.shape[1])
    variances = torch.full_like(means, torch.inf)
    for label in set(labels.tolist()):
        of_class = features[labels == label]
        if len(of_class) > 1:
            means[label], variances[label] = of_class.mean(0), of_class.var(0)
    return means, variances


def divergence(means: Tensor, source: Tensor, variances: Tensor, present: Tensor) -> Tensor:
    """Return 1 - exp(-d), d the mean squared distance of means [K, F], in units of the source's variances.

    It is that of the classes `present`, [K] bool, whose variances are known; 0 where there are none.
    """
    counted = present & variances.isfinite().all(1)
    squares = ((means - source).square() / (variances + 1e-6)).mean(1)
    return 1 - torch.exp(-torch.where(counted, squares, 0).sum() / counted.sum().clamp_min(1))


def symmetric(plain: Tensor, view: Tensor, known: Tensor) -> Tensor:
    """Return the mean of four cross-entropies: the student's answers and the teacher's, both ways, for both views."""
    pairs = ((plain, known), (known, plain), (view, known), (known, view))
    return torch.stack([losses.cross_entropy(one, other) for one, other in pairs]).mean(0)


def _petta(o: PettaOptions) -> Parts:
    augment = views.parse(o.augment)

    def learn(adapter: Adapter, images: Tensor) -> Tensor:
        memory = adapter.memory
        with torch.no_grad():
            run = lambda given: predict(adapter, given)  # noqa: E731
            features, logits = features_and_logits(adapter.model, run, images)
            labels = logits.argmax(1)
            if "petta/source" not in memory:
                _take_source(adapter, o, features, labels, logits.shape[1])
            members = F.one_hot(labels, logits.shape[1]).to(features.dtype)
            means, source, variances = (memory[f"petta/{name}"] for name in ("means", "source", "variances"))
            gamma = divergence(means, source, variances, members.any(0))
            _follow_features(memory, features, members, o.keep_features)
        remember(memory, images, logits, o.capacity)
        new = memory.get("bank/new", torch.zeros_like(memory["bank/ages"][0])) + len(images)
        if new >= o.update_every:
            learn_from_bank(adapter, gamma)
        memory["bank/new"] = new % o.update_every
        return logits

    def learn_from_bank(adapter: Adapter, gamma: Tensor) -> None:
        known, images = teacher(adapter), adapter.memory["bank/images"]
        with adapter.normalising(RunningStatistics(momentum=o.ema)):
            with torch.no_grad():
                target = _gathering(adapter, images, known, PREFIX)
                start = {name: adapter.memory.get(START + name, tensor) for name, tensor in adapter.starts.items()}
                anchor = _gathering(adapter, images, start, START)
            plain = adapter.run(images)
            adapter.finite_guard.check()
            commit_all(adapter.norms.values())  # the view's statistics come on top of these
            view = adapter.run(views.view(augment, images, adapter))
        each = symmetric(plain, view, target) if o.compare == "symmetric" else losses.cross_entropy(view, target)
        loss = each.mean() + o.start_weight * losses.cross_entropy(view, anchor).mean()
        adapter.update(loss + o.hold * gamma * _against(adapter))
        follow(adapter, known, 1 - (1 - o.keep_weights) * (1 - float(gamma)))

    return Parts(norm=GatheredStatistics(), trains=norm_affine, learn=learn, predict=predict, optimizer=optimizer(o))


def _gathering(adapter: Adapter, images: Tensor, known: dict[str, Tensor], prefix: str) -> Tensor:
    """Return the logits of other weights, and keep the statistics that they gather."""
    logits = adapter.run(images, known)
    adapter.memory.update({prefix + name: value for name, value in adapter.gathered().items()})
    return logits


def _against(adapter: Adapter) -> Tensor:
    """Return minus the mean cosine of the parameters with their start, those of one size at once."""
    sizes: dict[int, list[tuple[Tensor, Tensor]]] = {}
    for name, parameter in adapter.trained.items():
        sizes.setdefault(parameter.numel(), []).append((parameter.flatten(), adapter.starts[name].flatten()))
    pairs = [map(torch.stack, zip(*each, strict=True)) for each in sizes.values()]
    return -torch.cat([F.cosine_similarity(now, start) for now, start in pairs]).mean()


def _take_source(adapter: Adapter, o: PettaOptions, features: Tensor, labels: Tensor, classes: int) -> None:
    """Take the mean and variance of the source's features, by predicted class."""
    if not isinstance(o.source, str):
        run = lambda given: adapter.run(given, adapter.starts)  # noqa: E731
        batches = torch.split(o.source, 512) if isinstance(o.source, Tensor) else o.source
        parts = [features_and_logits(adapter.model, run, batch) for batch in batches]
        features = torch.cat([part[0] for part in parts])
        labels = torch.cat([part[1] for part in parts]).argmax(1)
    means, variances = class_moments(features, labels, classes)
    adapter.memory |= {"petta/source": means, "petta/variances": variances, "petta/means": means}


def _follow_features(memory: Memory, features: Tensor, members: Tensor, keep: float) -> None:
    """Move each class's mean features towards those of its members, [N, K] of 0 and 1; where it has none, not."""
    counts = members.sum(0)[:, None]
    means = memory["petta/means"]
    moved = torch.lerp(members.T @ features / counts.clamp_min(1), means, keep)
    memory["petta/means"] = torch.where(counts > 0, moved, means)


PETTA = Method(
    name="petta",
    paper="Hoang et al. 2024",
    parts=_petta,
    own_memory=True,
    needs_features=True,
    passes=(6, 2),
    defaults=PettaOptions(optimizer="adam", lr=1e-3),
    presets={"cifar": {"compare": "symmetric"}},
    departures="features of the source come from source=images, or, short of these, from the stream's first batch; "
    f"views are those of rotta; {ROTTA.departures}",
)
