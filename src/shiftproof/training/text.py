"""Training of the reference text network on a labelled set of texts (Ng et al. 2023, section A.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.data import Dataset, as_texts
from shiftproof.errors import DataError
from shiftproof.models.class_names import with_class_names
from shiftproof.models.devices import choose_device
from shiftproof.models.networks.text_cnn import TextCNN, make_vocabulary, padded

BETAS, EPSILON = (0.9, 0.98), 1e-6


def train_text_cnn(
    data: Dataset,
    *,
    epochs: int = 10,
    until: float = 0.04,
    batch_size: int = 64,
    lr: float = 1e-3,
    weight_decay: float = 0.0,
    label_noise: float = 0.0,
    vocabulary: int | Sequence[str] = 20_000,
    seed: int = 0,
    device: str = "auto",
    on_progress: Callable[[int, float], None] | None = None,
    **network: Any,
) -> TextCNN:
    """Return a `TextCNN` trained on labelled texts or pairs, in evaluation mode.

    Training ends after some `epochs`, or as soon as the mean cross entropy of one is below `until`. The optimiser is
    Adam with the paper's moments; the learning rate falls with the inverse square root of the steps. `label_noise` is
    the share of labels drawn at random. The `vocabulary` is as many of the texts' most frequent words, or a list that
    `make_vocabulary` made. `network` are settings of `TextCNN`. `on_progress(epoch, loss)` hears of progress.

    >>> from shiftproof import load_data
    >>> data = load_data((["good film", "bad film"] * 8, ["good", "bad"] * 8))
    >>> model = train_text_cnn(data, embedding=8, width=8, hidden=8, dropout=0.0, epochs=40, lr=0.01)
    >>> model(["a good one", "a bad one"]).argmax(1).tolist()  # classes are numbered in sorted order: bad, good
    [1, 0]
    """
    given = as_texts(data)
    if given.labels is None:
        raise DataError("The texts have no labels.", expected="a labelled set of texts")
    device, generator = choose_device(device), torch.Generator().manual_seed(seed)
    labels = _noisy(given.labels, len(given.classes), label_noise, generator)
    with torch.random.fork_rng([device] if device.startswith("cuda") else []):
        torch.manual_seed(seed)
        words = make_vocabulary(given.texts, vocabulary) if isinstance(vocabulary, int) else vocabulary
        model = TextCNN(words, classes=len(given.classes), pairs=given.pairs, **network).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=BETAS, eps=EPSILON, weight_decay=weight_decay)
        rows = model.numbers(given.texts)
        steps_per_epoch = -(-len(rows) // batch_size)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 + step / steps_per_epoch) ** -0.5)
        for epoch in range(epochs):
            total = 0.0
            for places in _batches([len(row) for row in rows], batch_size, generator):
                numbers = padded([rows[place] for place in places])
                loss = F.cross_entropy(model.classify(numbers.to(device)), labels[places].to(device))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                total += float(loss.detach()) * len(places)
            if on_progress is not None:
                on_progress(epoch + 1, total / len(rows))
            if total / len(rows) < until:
                break
    return with_class_names(model, data.classes).eval()


def _batches(lengths: Sequence[int], size: int, generator: torch.Generator) -> list[list[int]]:
    """Return batches of places in random order, of texts of similar length: little is padded."""
    order: list[int] = torch.randperm(len(lengths), generator=generator).tolist()
    pool = 20 * size
    near = [
        place
        for start in range(0, len(order), pool)
        for place in sorted(order[start : start + pool], key=lengths.__getitem__)
    ]
    batches = [near[start : start + size] for start in range(0, len(near), size)]
    return [batches[number] for number in torch.randperm(len(batches), generator=generator).tolist()]


def _noisy(labels: Tensor, classes: int, share: float, generator: torch.Generator) -> Tensor:
    """Return labels of which a share is drawn anew."""
    wrong = torch.rand(len(labels), generator=generator) < share
    return torch.where(wrong, torch.randint(classes, labels.shape, generator=generator), labels)
