"""What a model says of a set of inputs, taken in one pass: its logits, its answers to views, and its statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shiftproof.data import Batch, Dataset
from shiftproof.data.contents import content_keys, text_keys
from shiftproof.errors import ConfigurationError, DataError, ModelError
from shiftproof.estimators.neighborhoods import Inputs, Neighborhood
from shiftproof.keyed import Keyed
from shiftproof.measures import mean_distance
from shiftproof.measures.estimation import Array, decision_shares, negative_entropy
from shiftproof.models import StatisticsTap, logits, source_statistics
from shiftproof.models.feature_tap import FeaturesTap
from shiftproof.shifts import Shift

BATCH_SIZE = 128
VIEW_VALUES = 2**25
"""Views are made for as many images at a time as come to so many values: 128 MiB."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known of a set of N inputs, in their order.

    `logits` are [N, K]. M of the inputs, at the places `viewed`, were also seen through views: `shares` [M, K] tell how
    often each class was predicted among an input and its views, and `view_entropy` [M] the mean entropy of the outputs
    on the views. `drift` is the distance of the normalisation statistics from the source's, and `features` [N, F] are
    what the model's last linear layer saw; None where there are none. `labels` are None where nobody knows them.
    """

    logits: NDArray[np.float32]
    viewed: NDArray[np.int64]
    shares: Array
    view_entropy: Array
    drift: float | None = None
    labels: NDArray[np.int64] | None = None
    features: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Who was right, [N]."""
        if self.labels is None:
            raise DataError(
                "Measuring correctness needs labels.", expected="a labelled set", got="a set without labels"
            )
        right: NDArray[np.bool_] = self.logits.argmax(1) == self.labels
        return right

    @property
    def accuracy(self) -> float:
        """The share of right answers, for labelled sets."""
        return float(self.correct.mean())

    @property
    def entropy_difference(self) -> float | None:
        """The mean entropy of outputs on views less that on the inputs themselves, in nats; None without views."""
        if not len(self.viewed):
            return None
        return float((self.view_entropy + negative_entropy(self.logits[self.viewed])).mean())


def observe(
    model: Callable[..., Any],
    batches: Iterable[Batch],
    *,
    neighborhood: Neighborhood | None = None,
    n: int = 10,
    share: float = 1.0,
    seed: int = 0,
    batch_size: int = BATCH_SIZE,
    drift: bool | int = False,
    viewer: Callable[..., object] | None = None,
) -> Evidence:
    """Run a model on batches of inputs and keep what estimators need.

    Of a `share` of the inputs, which ones by their keys, it also sees `n` views each from the `neighborhood`, in
    batches of up to `batch_size`. `drift` compares the statistics of its batch norms with the source's, where it has
    any; a number is of how many inputs, the first ones: it costs most of a pass of these. A `viewer` is a faster model
    with the same answers: of views nothing else is taken.
    """
    if n < 1 or batch_size < 1:
        raise ConfigurationError(
            "The number of views must be positive.", expected="n and a batch size of 1 or more", got=f"{n}"
        )
    tap = _tap(model) if drift else None
    inside = FeaturesTap.of(model)
    outputs: list[Tensor] = []
    labels, viewed, shares, entropies = [], [], [], []
    features: list[NDArray[np.float32] | None] = []
    waiting: list[tuple[Inputs, Tensor, Tensor]] = []

    def look(least: int) -> None:
        """See the views of inputs that wait, where these are so many: of few at a time, passes are small."""
        if neighborhood is None or not waiting or n * sum(len(keys) for _, keys, _ in waiting) < least:
            return
        some, keys, own = map(joined, zip(*waiting, strict=True))
        votes, entropy = _answers(viewer or model, some, keys, neighborhood, n, seed, batch_size)
        shares.append(decision_shares(torch.cat([own, votes], 1).numpy(), outputs[0].shape[1]))
        entropies.append(entropy)
        waiting.clear()

    seen = 0
    for batch in batches:
        tapped = 0 if tap is None else len(batch) if drift is True else max(0, min(len(batch), drift - seen))
        with inside or nullcontext():
            parts = (batch.inputs[:tapped], tap), (batch.inputs[tapped:], None)
            out = torch.cat([_outputs(model, some, batch_size, taps) for some, taps in parts if len(some)])
        features.append(None if inside is None else inside.features(len(batch)))
        outputs.append(out)
        labels.append(batch.labels)
        if neighborhood is not None:
            chosen = sampled(batch.keys, share, seed)
            own = out[chosen.cpu()].argmax(1, keepdim=True)
            waiting.append((at(batch.inputs, chosen), batch.keys[chosen], own))
            viewed.append(chosen.cpu().numpy() + seen)
            look(batch_size)
        seen += len(batch)
    look(0)
    if not outputs:
        raise DataError("The set of inputs is empty.", expected="one input or more", got="none")
    found = torch.cat(outputs).numpy()
    return Evidence(
        logits=found,
        viewed=np.concatenate(viewed) if viewed else np.empty(0, np.int64),
        shares=np.concatenate(shares) if shares else np.empty((0, found.shape[1])),
        view_entropy=np.concatenate(entropies) if entropies else np.empty(0),
        drift=_distance(model, tap),
        labels=_known(labels),
        features=_joined(features),
    )


def _joined(features: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    found = [some for some in features if some is not None]
    return np.concatenate(found) if len(found) == len(features) else None


def _known(labels: list[Tensor | None]) -> NDArray[np.int64] | None:
    found = [some.cpu() for some in labels if some is not None]
    return torch.cat(found).numpy() if len(found) == len(labels) else None


def sampled(keys: Tensor, share: float, seed: int) -> Tensor:
    """Return the places of the inputs that a share keeps, [M]; which ones depends on their keys and the seed alone."""
    if share >= 1:
        return torch.arange(len(keys), device=keys.device)
    return (Keyed(seed, keys).fork("sample").uniform() < share).nonzero()[:, 0]


def as_batches(
    inputs: Any, *, keys: Tensor | None = None, batch_size: int = BATCH_SIZE, device: Any = "cpu"
) -> Iterator[Batch]:
    """Return a set of inputs in batches: a `Dataset`, images [N, C, H, W] in [0, 1], or a list of texts.

    Without keys, those of images and texts are hashes of their content.
    """
    if isinstance(inputs, Dataset):
        yield from inputs.batches(batch_size, device=device)
        return
    if not isinstance(inputs, Tensor | list):
        raise DataError(
            "Unsupported inputs.",
            expected="a set that load_data returns, a tensor N x C x H x W with values in [0, 1], or a list of texts",
            got=f"a {type(inputs).__name__}",
        )
    if keys is not None and len(keys) != len(inputs):
        raise DataError("Every input needs a key.", expected=f"{len(inputs)} keys", got=f"{len(keys)} keys")
    for start in range(0, len(inputs), batch_size):
        some = inputs[start : start + batch_size]
        named = input_keys(some) if keys is None else keys[start : start + batch_size]
        yield Batch(some.to(device) if isinstance(some, Tensor) else some, None, named)


def shifted(batches: Iterator[Batch], shift: Shift | None, seed: int) -> Iterator[Batch]:
    """Return batches after a shift, or as they are."""
    for batch in batches:
        yield batch if shift is None else replace(batch, inputs=shift(batch.inputs, batch.keys, seed=seed))


def input_keys(inputs: Inputs) -> Tensor:
    """Return the keys of inputs by their content, [N] int64."""
    if isinstance(inputs, Tensor):
        return content_keys(inputs)
    return text_keys(inputs)


def predict(model: Callable[..., Any], inputs: Inputs) -> Tensor:
    """Return checked logits [N, K] of images or texts."""
    return logits(model, inputs)


def _answers(
    model: Callable[..., Any],
    inputs: Inputs,
    keys: Tensor,
    neighborhood: Neighborhood,
    n: int,
    seed: int,
    batch_size: int,
) -> tuple[Tensor, Array]:
    """Return the predictions on n views of every input, [N, n], and their mean entropy, [N]."""
    size = inputs[0].numel() if isinstance(inputs, Tensor) and len(inputs) else 1
    group = max(1, max(batch_size, VIEW_VALUES // size) // n)
    votes, entropies = [torch.empty(0, n, dtype=torch.int64)], [np.empty(0)]
    for start in range(0, len(inputs), group):
        some = inputs[start : start + group]
        views = neighborhood(some, keys[start : start + group], n, seed)
        if len(views) != n * len(some):
            raise ConfigurationError(
                "The neighbourhood gives the wrong number of views.",
                expected=f"{n} views of each of {len(some)} inputs, view by view",
                got=f"{len(views)} views",
            )
        out = _outputs(model, views, batch_size, None)
        votes.append(out.argmax(1).view(n, len(some)).T)
        entropies.append(-negative_entropy(out.numpy()).reshape(n, len(some)).mean(0))
    return torch.cat(votes), np.concatenate(entropies)


def _outputs(model: Callable[..., Any], inputs: Inputs, batch_size: int, tap: StatisticsTap | None) -> Tensor:
    """Return logits of inputs on the CPU, in batches, with the tap open if there is one."""
    parts = []
    for start in range(0, len(inputs), batch_size):
        some = inputs[start : start + batch_size]
        if tap is None:
            parts.append(predict(model, some))
        else:
            with tap:
                parts.append(predict(model, some))
    return torch.cat(parts)


def at(inputs: Inputs, places: Tensor) -> Inputs:
    """Return the inputs at some places."""
    if isinstance(inputs, Tensor):
        return inputs[places.to(inputs.device)]
    return [inputs[place] for place in places.tolist()]


def joined(parts: Sequence[Any]) -> Any:
    """Return batches of inputs, or of keys, as one."""
    return torch.cat(list(parts)) if isinstance(parts[0], Tensor) else [text for part in parts for text in part]


def _tap(model: Callable[..., Any]) -> StatisticsTap | None:
    if not isinstance(model, nn.Module):
        return None
    try:
        return StatisticsTap(model)
    except ModelError:  # no batch norms with statistics
        return None


def _distance(model: Callable[..., Any], tap: StatisticsTap | None) -> float | None:
    found = () if tap is None else tap.statistics()
    return mean_distance(source_statistics(model), found) if found and isinstance(model, nn.Module) else None
