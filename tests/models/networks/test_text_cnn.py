"""The reference text network: padding and batches make no difference, it learns, saves and loads."""

import pytest
import torch

from shiftproof import load_model
from shiftproof.errors import DataError, ModelError
from shiftproof.models import fingerprint, logits
from shiftproof.models.networks.text_cnn import SPECIAL, TextCNN, make_vocabulary, words
from shiftproof.models.texts import truncation

TEXTS = ["a good film", "bad", "a very long and rather dull story about nothing much at all , really"]
SMALL = {"embedding": 8, "width": 6, "hidden": 5}


def network(**options):
    torch.manual_seed(0)
    return TextCNN(make_vocabulary(TEXTS), **{**SMALL, **options}).eval()


def test_words_and_vocabulary():
    assert words("Don't PANIC!") == ["don't", "panic", "!"]
    made = make_vocabulary(["b b a", "c b a"], size=2)
    assert made == [*SPECIAL, "b", "a"]


@pytest.mark.parametrize("depth", [1, 2])
def test_a_text_is_answered_alike_alone_and_among_longer_ones(depth):
    model = network(depth=depth)
    together = logits(model, TEXTS)
    alone = torch.cat([logits(model, [text]) for text in TEXTS])
    assert torch.allclose(together, alone, atol=1e-6)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_folded_it_answers_the_same(depth):
    model = network(depth=depth)
    numbers = model.encode(TEXTS)
    assert torch.allclose(model.folded()(numbers), model.classify(numbers), atol=1e-6)
    assert torch.allclose(model.folded()(numbers.int()), model.classify(numbers), atol=1e-6)


def test_embeddings_begin_at_length_one():
    weights = TextCNN([*SPECIAL, *map(str, range(300))], embedding=64, width=4, hidden=4).embedding.weight
    assert weights[0].abs().max() == 0
    assert weights[1:].norm(dim=1).mean().item() == pytest.approx(1, abs=0.02)


def test_the_order_of_words_counts():
    model = network()
    assert not torch.allclose(logits(model, ["a good film bad dull"]), logits(model, ["dull good a bad film"]))


def test_pairs_and_single_texts_are_not_taken_for_each_other():
    single, double = network(), network(pairs=True)
    assert logits(double, [("a good", "film"), ("bad", "story")]).shape == (2, 2)
    with pytest.raises(DataError, match="reads single texts"):
        logits(single, [("a", "b")])
    with pytest.raises(DataError, match="reads pairs of texts"):
        logits(double, ["a"])


def test_long_texts_are_cut_and_told(tmp_path):
    model = network(max_length=6)
    cut = " ".join(TEXTS[2].split()[:6])
    assert torch.allclose(logits(model, [TEXTS[2]]), logits(model, [cut]))
    assert truncation(model, TEXTS) == "The model reads 6 tokens at most: 1 of 3 texts are longer and were cut."
    assert truncation(network(), TEXTS) == ""


def test_saved_and_loaded_it_is_the_same_model(tmp_path):
    model = network(depth=2)
    model.save(tmp_path / "net")
    loaded = load_model(str(tmp_path / "net"))
    assert torch.equal(logits(loaded, TEXTS), logits(model, TEXTS))
    assert fingerprint(loaded) == fingerprint(model)
    other = network(depth=2)
    other.vocabulary = other.vocabulary[::-1]
    assert fingerprint(other) != fingerprint(model)


def test_what_a_text_model_does_wrong_is_told_in_words():
    with pytest.raises(ModelError, match="batch of texts"):
        logits(lambda images: images.mean(), ["a"])
    box = load_model(lambda texts: torch.tensor([[len(text), 1.0] for text in texts]))
    assert logits(box, ["abc"]).tolist() == [[3.0, 1.0]]
