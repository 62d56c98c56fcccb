"""NOTE: normalise by the image where it is unlike the stream, learn from a balanced memory (Gong et al. 2022).

Made for streams in which images of a class come together, and for single images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from shiftproof.adapters import losses
from shiftproof.adapters.method import Method, Parts
from shiftproof.adapters.method_options import GradientOptions
from shiftproof.adapters.norms import (
    AdaptiveBatchNorm,
    GatheredStatistics,
    RunningStatistics,
    batch_statistics,
)
from shiftproof.adapters.parts import norm_affine, optimizer
from shiftproof.options import Count, NotNegative, Share

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter


@dataclass(frozen=True)
class InstanceAware:
    """Normalise every image with the statistics of the layer, moved towards its own where these are far from them.

    A mean or variance of an image counts only as far as it differs by more than `deviations` standard errors of one
    that is drawn from the layer's. The layer's are those gathered so far; with a `momentum` they are the batch's, which
    are gathered with that share.
    """

    deviations: float = 4.0
    momentum: float | None = None

    def normalise(self, norm: AdaptiveBatchNorm, x: Tensor) -> Tensor:
        """Use statistics of each image's own."""
        mean, var = self.statistics(norm, x)
        places = x[0, 0].numel()
        if places < 2:  # an image of one place has no variance
            return norm.with_statistics(x, mean, var)
        own_var, own_mean = torch.var_mean(x.flatten(2).float(), 2)
        mean, var = (
            mean + soft(own_mean - mean, self.deviations * (var / places).sqrt()),
            (var + soft(own_var - var, self.deviations * var * (2 / (places - 1)) ** 0.5)).clamp_min(0),
        )
        shape = (*x.shape[:2], *(1,) * (x.ndim - 2))
        scale = (var + norm.eps).rsqrt() * (1 if norm.weight is None else norm.weight)
        offset = -mean * scale if norm.bias is None else norm.bias - mean * scale
        return x * scale.view(shape).to(x.dtype) + offset.view(shape).to(x.dtype)

    def statistics(self, norm: AdaptiveBatchNorm, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return those of the layer, and propose the batch's to be gathered where that is asked for."""
        if self.momentum is None:
            return GatheredStatistics().statistics(norm, x)
        RunningStatistics(self.momentum).statistics(norm, x)
        return batch_statistics(x, "unbiased")


def soft(values: Tensor, reach: Tensor) -> Tensor:
    """Return values moved towards 0 by `reach`, and 0 where they do not reach as far.

    >>> soft(torch.tensor([-3.0, 0.5, 2.0]), torch.tensor(1.0)).tolist()
    [-2.0, 0.0, 1.0]
    """
    return values.sign() * (values.abs() - reach).relu()


def balanced_reservoir(
    known: Sequence[int], new: Sequence[int], seen: Counter[int], capacity: int, draws: Sequence[tuple[float, float]]
) -> list[int]:
    """Return the places, in known and new one after another, that a memory balanced over classes keeps.

    `known` and `new` are predicted classes, `seen` how often each has come, which is counted on; `draws` are two
    uniform numbers for each new one. A class that does not have most takes the place of one that has; within a class of
    most, every image that ever came is kept with the same probability.
    """
    labels, places = list(known), list(range(len(known)))
    for number, (label, (first, second)) in enumerate(zip(new, draws, strict=True), start=len(known)):
        seen[label] += 1
        if len(labels) < capacity:
            labels.append(label)
            places.append(number)
            continue
        counts = Counter(labels)
        most = max(counts.values())
        if counts[label] == most:
            if first >= counts[label] / seen[label]:
                continue
            rivals = [at for at, each in enumerate(labels) if each == label]
        else:
            rivals = [at for at, each in enumerate(labels) if counts[each] == most]
        out = rivals[int(second * len(rivals))]
        labels[out], places[out] = label, number
    return places


class NoteOptions(GradientOptions):
    """Options of NOTE."""

    unheeded: Annotated[NotNegative, "How many standard errors an image's statistics may differ unheeded."] = 4.0
    capacity: Annotated[Count, "How many images are remembered."] = 64
    update_every: Annotated[Count, "How many new images there are between updates."] = 64
    memory_share: Annotated[Share, "The share of the memory in the running statistics, at an update."] = 0.01


def _note(o: NoteOptions) -> Parts:
    def learn(adapter: Adapter, images: Tensor) -> Tensor:
        with torch.no_grad():
            logits = adapter.run(images)
        adapter.finite_guard.check()
        remember(adapter, images, logits, o.capacity)
        memory = adapter.memory
        new = memory.get("note/new", torch.zeros_like(memory["note/seen"][0])) + len(images)
        if new >= o.update_every:
            with adapter.normalising(InstanceAware(o.unheeded, o.memory_share)):
                adapter.update(losses.entropy(adapter.run(memory["note/images"])).mean())
        memory["note/new"] = new % o.update_every
        return logits

    return Parts(norm=InstanceAware(o.unheeded), trains=norm_affine, learn=learn, optimizer=optimizer(o))


def remember(adapter: Adapter, images: Tensor, logits: Tensor, capacity: int) -> None:
    """Show a batch to the memory, image by image."""
    memory = adapter.memory
    known = memory.get("note/labels", logits.new_zeros(0, dtype=torch.int64))
    seen = Counter(dict(enumerate(memory["note/seen"].tolist())) if "note/seen" in memory else {})
    new = logits.argmax(1)
    draws = adapter.rng("note", len(images)).uniform(shape=(2,)).tolist()
    kept = balanced_reservoir(known.tolist(), new.tolist(), seen, capacity, draws)
    places = torch.tensor(kept, device=images.device)
    before = [memory["note/images"]] if "note/images" in memory else []
    memory["note/images"] = torch.cat([*before, images])[places]
    memory["note/labels"] = torch.cat([known, new])[places]
    memory["note/seen"] = torch.tensor([seen[each] for each in range(logits.shape[1])], device=images.device)


NOTE = Method(
    name="note",
    paper="Gong et al. 2022",
    parts=_note,
    own_memory=True,
    passes=(2, 1),
    defaults=NoteOptions(optimizer="adam", lr=1e-4),
    departures="the authors train their source networks with the instance-aware normalisation, ours are taken as they "
    "are; at most one update per batch, after it has been answered; the scale and shift of every kind of normalisation "
    "layer learn",
)
