"""Training of the reference text network: it learns, stops where told, and its settings do what they say."""

from typing import Any

import pytest
import torch

from shiftproof import load_data
from shiftproof.errors import DataError
from shiftproof.models import logits
from shiftproof.models.networks.text_cnn import make_vocabulary
from shiftproof.training import text
from shiftproof.training.text import train_text_cnn

TEXTS = [f"{mood} {thing}" for mood in ("a good", "a bad") for thing in ("film", "story", "song", "long long day")] * 4
LABELS = [int(one.startswith("a good")) for one in TEXTS]
SMALL: dict[str, Any] = {"embedding": 8, "width": 8, "hidden": 8, "dropout": 0.0, "lr": 0.01, "batch_size": 8}


def data() -> Any:
    return load_data((TEXTS, LABELS))


def test_it_learns_and_is_the_same_for_the_same_seed():
    first, again = (train_text_cnn(data(), epochs=20, **SMALL) for _ in range(2))
    assert not first.training
    assert (logits(first, TEXTS).argmax(1) == torch.tensor(LABELS)).all()
    assert torch.equal(logits(first, TEXTS), logits(again, TEXTS))
    other = train_text_cnn(data(), epochs=20, seed=1, **SMALL)
    assert not torch.equal(logits(first, TEXTS), logits(other, TEXTS))


def test_training_ends_at_the_loss_asked_for():
    losses: list[tuple[int, float]] = []
    train_text_cnn(data(), epochs=100, until=0.1, on_progress=lambda epoch, loss: losses.append((epoch, loss)), **SMALL)
    assert [epoch for epoch, _ in losses] == list(range(1, len(losses) + 1))
    assert losses[-1][1] < 0.1
    assert all(loss >= 0.1 for _, loss in losses[:-1])


def test_networks_may_share_a_vocabulary():
    words = make_vocabulary(["good bad film rose"])
    model = train_text_cnn(data(), epochs=1, vocabulary=words, **SMALL)
    assert model.vocabulary == words
    assert len(train_text_cnn(data(), epochs=1, vocabulary=2, **SMALL).vocabulary) == 3 + 2


def test_label_noise_is_the_share_drawn_anew():
    labels = torch.zeros(20_000, dtype=torch.int64)
    made = text._noisy(labels, 4, 0.4, torch.Generator().manual_seed(0))
    assert (made != 0).float().mean() == pytest.approx(0.4 * 3 / 4, abs=0.01)
    assert torch.equal(text._noisy(labels, 4, 0.0, torch.Generator().manual_seed(0)), labels)


def test_batches_hold_every_text_once():
    lengths = [place % 7 for place in range(53)]
    batches = text._batches(lengths, 8, torch.Generator().manual_seed(0))
    assert sorted(place for batch in batches for place in batch) == list(range(53))
    assert max(map(len, batches)) == 8


def test_texts_without_labels_are_refused():
    with pytest.raises(DataError, match="no labels"):
        train_text_cnn(load_data(TEXTS))
