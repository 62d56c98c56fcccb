"""Hugging Face classifiers saved locally, against `transformers` itself."""

from typing import Any

import pytest
import torch

from shiftproof import load_model
from shiftproof.errors import ModelError
from shiftproof.models import class_names, fingerprint, logits
from shiftproof.models.texts import pairing, truncation
from tests.shifts.text import language_models

TEXTS = ["this film was very good", "a dull story", "good " * 60]


def test_a_saved_classifier_answers_as_transformers_does(tmp_path):
    kit = language_models.transformers()
    language_models.bert(tmp_path, "BertForSequenceClassification", num_labels=3)
    model = load_model(str(tmp_path))
    pipe = kit.pipeline("text-classification", model=str(tmp_path), top_k=None)
    for text in TEXTS[:2]:
        theirs = {row["label"]: row["score"] for row in pipe([text])[0]}
        ours = logits(model, [text]).softmax(1)[0].tolist()
        assert ours == pytest.approx([theirs[f"LABEL_{number}"] for number in range(3)], abs=1e-5)
    assert fingerprint(load_model(str(tmp_path))) == fingerprint(model)


def test_it_knows_its_class_names_unless_they_only_count(tmp_path):
    names = {0: "entailment", 1: "neutral", 2: "contradiction"}
    language_models.bert(tmp_path / "named", "BertForSequenceClassification", id2label=names)
    assert class_names(load_model(str(tmp_path / "named"))) == tuple(names.values())
    language_models.bert(tmp_path / "counted", "BertForSequenceClassification", num_labels=3)
    assert class_names(load_model(str(tmp_path / "counted"))) is None


def test_batches_pairs_and_long_texts(tmp_path):
    language_models.bert(tmp_path, "BertForSequenceClassification")
    model = load_model(str(tmp_path))
    alone = torch.cat([logits(model, [text]) for text in TEXTS])
    assert torch.allclose(logits(model, TEXTS), alone, atol=1e-5)
    assert not torch.allclose(logits(model, [("a dog", "a cat")]), logits(model, [("a cat", "a dog")]))
    assert pairing(model, [("a dog", "a cat")]).startswith("The texts are pairs, and nothing in the model says")
    assert pairing(model, TEXTS) == pairing(len, [("a dog", "a cat")]) == ""
    assert truncation(model, TEXTS) == "The model reads 32 tokens at most: 1 of 3 texts are longer and were cut."


def test_texts_of_like_length_are_read_together(tmp_path):
    language_models.bert(tmp_path, "BertForSequenceClassification")
    model: Any = load_model(str(tmp_path))
    shapes: list[tuple[int, int]] = []
    forward = model.network.forward

    def watched(**given):
        shapes.append(tuple(given["input_ids"].shape))
        return forward(**given)

    model.network.forward = watched
    texts = ["a dull story", "good " * 20, "this film", "good " * 18, "a story"]
    together = logits(model, texts)
    assert len(shapes) == 2
    assert sum(rows * columns for rows, columns in shapes) < 0.75 * 5 * max(columns for _, columns in shapes)
    alone = torch.cat([logits(model, [text]) for text in texts])
    assert torch.allclose(together, alone, atol=1e-5)


def test_what_is_no_classifier_is_refused(tmp_path):
    language_models.bert(tmp_path, "BertForMaskedLM")
    with pytest.raises(ModelError, match="classifies neither"):
        load_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="configuration"):
        load_model(str(tmp_path))


def test_a_classifier_without_its_last_layer_is_refused(tmp_path):
    import json

    language_models.bert(tmp_path, "BertModel")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": None}))
    with pytest.raises(ModelError, match="are missing") as told:
        load_model(str(tmp_path))
    assert "classifier" in str(told.value)


def test_loading_is_quiet_and_leaves_the_settings_of_transformers(tmp_path, capfd):
    kit = language_models.transformers()
    language_models.bert(tmp_path, "BertForSequenceClassification")
    log = kit.utils.logging
    before = log.get_verbosity(), log.is_progress_bar_enabled()
    capfd.readouterr()
    load_model(str(tmp_path))
    assert capfd.readouterr() == ("", "")
    assert (log.get_verbosity(), log.is_progress_bar_enabled()) == before
