"""Estimators on texts and pairs, against what a plain loop over single views gives."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from shiftproof import load_data
from shiftproof.errors import DataError
from shiftproof.estimators import Monitor, neighborhood_invariance
from shiftproof.estimators.evidence import input_keys
from shiftproof.estimators.neighborhoods import TEXT_NEIGHBORHOODS, view_keys
from shiftproof.keyed import Keyed

TEXTS = [
    "a wonderful film with a great story and good actors",
    "what a terrible waste of money and time",
    "good but the price was bad",
    "no",
]


def model(texts):
    """Count good words and bad words; of pairs, in both texts."""
    joined = [text if isinstance(text, str) else " ".join(text) for text in texts]
    counts = [
        [sum(map(text.count, ("wonderful", "great", "good"))), sum(map(text.count, ("terrible", "bad"))) + 0.5]
        for text in joined
    ]
    return torch.tensor(counts, dtype=torch.float32)


@pytest.mark.parametrize("name", TEXT_NEIGHBORHOODS)
@pytest.mark.parametrize("pairs", [False, True])
def test_invariance_of_texts_is_the_share_of_the_commonest_answer(name, pairs):
    texts = list(zip(TEXTS, TEXTS[::-1], strict=True)) if pairs else TEXTS
    found = neighborhood_invariance(model, texts, name, n=6, seed=3)
    shift, keys = TEXT_NEIGHBORHOODS[name](0), input_keys(texts)
    for row, text in enumerate(texts):
        copies = [text] * 6
        views = shift(copies, view_keys(keys[row : row + 1], 6), seed=3)
        answers = model([text, *views]).argmax(1)
        assert found.per_input[row] == pytest.approx(np.bincount(answers).max() / 7)
    backwards = neighborhood_invariance(model, texts[::-1], name, n=6, seed=3, batch_size=3)
    assert backwards.per_input[::-1].tolist() == found.per_input.tolist()


def test_a_neighbourhood_of_images_refuses_texts():
    with pytest.raises(DataError):
        neighborhood_invariance(model, TEXTS, "randaugment")
    with pytest.raises(DataError):
        neighborhood_invariance(lambda images: images.flatten(1)[:, :2], torch.rand(2, 3, 8, 8), "eda")


def test_a_monitor_watches_texts_with_the_neighbourhood_it_was_calibrated_with():
    lines = [f"{text} {number}" for number in range(20) for text in TEXTS]
    source = load_data((lines, [int(model([line]).argmax()) for line in lines]))
    watched = Monitor.fit(model, source, n=2, share=1.0, window=80)
    assert watched.calibration.neighborhood == "eda"
    answers = watched(lines)
    assert answers.tolist() == model(lines).tolist()
    status = watched.status()
    assert status.failures == 0
    assert status.invariance is not None
    by_kind = Monitor(model, replace(watched.calibration, neighborhood=None), share=1.0, window=80)
    by_kind(lines)
    assert by_kind.status().invariance == status.invariance


def test_generators_depend_on_seed_key_name_and_draw_alone():
    one = [rng.random(5).tolist() for rng in Keyed(1, [4, 9, 2]).generators()]
    other = [rng.random(5).tolist() for rng in Keyed(1, [2, 4]).generators()]
    assert (other[0], other[1]) == (one[2], one[0])
    again = Keyed(1, [4])
    first, second = (next(again.generators()).random() for _ in range(2))
    assert first == one[0][0]
    assert second != first
    assert next(Keyed(1, [4]).fork("a").generators()).random() != first
