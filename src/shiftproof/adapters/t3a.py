"""T3A: no gradients; the classifier's weights become prototypes that sure images adjust (Iwasawa & Matsuo 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.adapters import losses
from shiftproof.adapters.features import features_and_logits, last_linear
from shiftproof.adapters.method import Method, Parts
from shiftproof.adapters.method_options import MethodOptions
from shiftproof.adapters.norms import SourceStatistics
from shiftproof.options import Count

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter


def prototypes(supports: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the unit mean of each class's unit supports, [C, F]."""
    sums = supports.new_zeros(classes, supports.shape[1]).index_add_(0, labels, F.normalize(supports, dim=1))
    return F.normalize(sums, dim=1)


def surest(entropies: Tensor, labels: Tensor, count: int) -> Tensor:
    """Return the places of each class's `count` entries of least entropy, in their order; all of a smaller class."""
    by_entropy = entropies.argsort(stable=True)
    grouped = by_entropy[labels[by_entropy].argsort(stable=True)]
    sizes = torch.bincount(labels)
    rank = torch.arange(len(labels), device=labels.device) - (sizes.cumsum(0) - sizes)[labels[grouped]]
    return grouped[rank < count].sort().values


class T3aOptions(MethodOptions):
    """Options of T3A."""

    supports: Annotated[Count, "How many of the surest images of each class make its prototype."] = 100


def _t3a(o: T3aOptions) -> Parts:
    def supports(adapter: Adapter) -> tuple[Tensor, Tensor, Tensor]:
        """Return features, labels and entropies in memory; at the start the classifier's weights, each its class's."""
        if "supports" in adapter.memory:
            memory = adapter.memory
            return memory["supports"], memory["labels"], memory["entropies"]
        head = last_linear(adapter.model)
        weights = head.weight.detach()
        return weights, torch.arange(len(weights), device=weights.device), losses.entropy(head(weights))

    def learn(adapter: Adapter, images: Tensor) -> Tensor:
        features, logits = features_and_logits(adapter.model, adapter.run, images)
        old, labels, entropies = supports(adapter)
        features = features.to(old.dtype)
        both = torch.cat([old, features])
        labels = torch.cat([labels, logits.argmax(1)])
        entropies = torch.cat([entropies, losses.entropy(logits).to(entropies.dtype)])
        kept = surest(entropies, labels, o.supports)
        adapter.memory.update(supports=both[kept], labels=labels[kept], entropies=entropies[kept])
        return features @ prototypes(both[kept], labels[kept], logits.shape[1]).T

    def predict(adapter: Adapter, images: Tensor) -> Tensor:
        features, logits = features_and_logits(adapter.model, adapter.run, images)
        known, labels, _ = supports(adapter)
        return features.to(known.dtype) @ prototypes(known, labels, logits.shape[1]).T

    return Parts(norm=SourceStatistics(), learn=learn, predict=predict)


T3A = Method(
    name="t3a",
    paper="Iwasawa & Matsuo 2021",
    parts=_t3a,
    defaults=T3aOptions(),
    needs_gradients=False,
    needs_norm_layers=False,
    needs_features=True,
    own_memory=True,
    departures="the paper chooses the number of supports per class by validation from 1 to 100 and all; ours is 100",
)
