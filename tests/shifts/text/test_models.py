"""Edits by language models: masking against its stated shares, filling against the model's own probabilities."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from shiftproof.errors import ModelError
from shiftproof.shifts.text.ssmba import corrupt_tokens
from tests.shifts.text import language_models
from tests.shifts.text.sentences import parse

TEXTS = ["this film was very good", "a dull story", "the man walks down the street with his dog , really", "good"]
KEYS = [5, 8, 2, 11]


def test_masking_is_80_10_10_of_15_percent():
    tokens, vocabulary, mask = np.full(100, 7), np.arange(10, 60), 4
    kinds = Counter[str]()
    free = list(range(1, 99))  # all but the marks at the ends
    for key in range(400):
        made = corrupt_tokens(tokens, free, 0.15, mask=mask, vocabulary=vocabulary, rng=np.random.default_rng(key))
        assert set(made.places) <= set(free)
        changed = {place for place in range(100) if made.tokens[place] != 7}
        assert changed <= set(made.places)
        kinds["chosen"] += len(made.places)
        kinds["masked"] += int((made.tokens == mask).sum())
        kinds["random"] += int((made.tokens >= 10).sum())
    assert kinds["chosen"] / (400 * 98) == pytest.approx(0.15, abs=0.001)
    kept = kinds["chosen"] - kinds["masked"] - kinds["random"]
    found = [kinds["masked"], kinds["random"], kept]
    assert stats.chisquare(found, [share * kinds["chosen"] for share in (0.8, 0.1, 0.1)]).pvalue > 1e-6


def test_ssmba_keeps_the_contract(tmp_path):
    language_models.bert(tmp_path, "BertForMaskedLM")
    shift = parse(f"ssmba@5[model={tmp_path}]")
    whole = shift(TEXTS, KEYS, seed=3)
    assert whole != TEXTS
    assert [shift([text], [key], seed=3)[0] for text, key in zip(TEXTS, KEYS, strict=True)] == whole
    assert shift(TEXTS[::-1], KEYS[::-1], seed=3)[::-1] == whole
    assert shift(TEXTS, KEYS, seed=4) != whole
    assert parse(shift.label) == shift
    known = set(language_models.WORDS)
    assert all(set(text.replace(",", " , ").split()) <= known for text in whole)
    assert [len(text.split()) for text in whole] == [len(text.split()) for text in TEXTS]
    pairs = shift(list(zip(TEXTS, TEXTS[::-1], strict=True)), KEYS)
    assert all(isinstance(pair, tuple) for pair in pairs)


def test_ssmba_samples_what_the_model_says(tmp_path):
    """One word, always chosen: its new values follow the model's probabilities of the corrupted inputs, mixed."""
    import torch

    from shiftproof.shifts.text.ssmba import Corrupted, load_masked_model

    language_models.bert(tmp_path, "BertForMaskedLM")
    language = load_masked_model(str(tmp_path), "cpu")
    (tokens,) = language.encode(["good"])
    masked = Corrupted(np.where(np.arange(len(tokens)) == 1, language.tokenizer.mask_token_id, tokens), [1])
    drawn = Counter(int(language.fill([masked], [np.random.default_rng(seed)])[0][1]) for seed in range(2000))
    with torch.no_grad():
        scores = language.network(input_ids=torch.from_numpy(masked.tokens)[None]).logits[0, 1].double()
    scores[sorted(language.special)] = -torch.inf
    expected = (2000 * scores.softmax(0)).numpy()
    words = language.vocabulary
    assert stats.chisquare([drawn[int(word)] for word in words], expected[words]).pvalue > 1e-6


def test_scores_of_chosen_places_are_those_of_the_whole(tmp_path):
    import torch

    from shiftproof.shifts.text.ssmba import Corrupted, load_masked_model

    language_models.bert(tmp_path, "BertForMaskedLM")
    language = load_masked_model(str(tmp_path), "cpu")
    tokens = np.random.default_rng(0).integers(5, 20, (3, 8))
    chosen = [Corrupted(row, places) for row, places in zip(tokens, ([1, 3], [2], [4, 5, 6]), strict=True)]
    with torch.no_grad():
        whole = language.network(input_ids=torch.from_numpy(tokens)).logits
    assert torch.allclose(language.scores(chosen), whole[[0, 0, 1, 2, 2, 2], [1, 3, 2, 4, 5, 6]], atol=1e-6)
    # Where a model does not tell which layer is its last, all scores are computed, and the same ones are picked.
    language.network.get_output_embeddings = lambda: None
    assert torch.allclose(language.scores(chosen), whole[[0, 0, 1, 2, 2, 2], [1, 3, 2, 4, 5, 6]], atol=1e-6)


def test_back_translation_keeps_the_contract(tmp_path):
    for name in ("there", "back"):
        language_models.translator(tmp_path / name)
    shift = parse(f"back_translation@3[there={tmp_path / 'there'},back={tmp_path / 'back'}]")
    whole = shift(TEXTS, KEYS, seed=3)
    assert whole != TEXTS
    assert all(text.strip() for text in whole)
    assert shift(TEXTS[::-1], KEYS[::-1], seed=3)[::-1] == whole
    assert shift(TEXTS, KEYS, seed=4) != whole
    assert shift.strength == 1.0
    assert parse(f"back_translation@2[there={tmp_path},back={tmp_path}]").strength == 0.7


def test_a_folder_without_a_model_is_told(tmp_path):
    language_models.transformers()
    with pytest.raises(ModelError, match="Cannot load"):
        parse(f"ssmba@2[model={tmp_path}]")(["a text"], [0])
    with pytest.raises(ModelError, match="no folder"):
        parse(f"ssmba@2[model={tmp_path / 'nowhere'}]")(["a text"], [0])
