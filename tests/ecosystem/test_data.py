"""Every form of data gives the demo network's answers of the plain path, image by image, and the same accuracy."""

from __future__ import annotations

import pytest
import torch

for package in ("torchvision", "datasets", "pandas", "pyarrow", "webdataset"):
    pytest.importorskip(package, reason="the packages of tests/ecosystem/requirements.txt: make ecosystem")

import shiftproof
from shiftproof.data import DataSpec, load_data
from shiftproof.models import logits
from shiftproof.subjects import Subject
from tests.ecosystem.data import COUNT, DATA, Shelf
from tests.ecosystem.models import MODELS


@pytest.mark.parametrize("name", DATA)
def test_data_gives_the_answers_of_the_plain_path(name, tmp_path):
    shelf = Shelf(tmp_path)
    network = shiftproof.load_model("demo")
    plain = logits(network, shelf.images).argmax(1)
    expected = {key: (int(answer), label) for key, answer, label in zip(keys(shelf), plain, shelf.labels, strict=True)}
    right = sum(answer == label for answer, label in expected.values())
    assert 0 < right < COUNT  # or all answers that are alike would pass

    held = DATA[name](shelf)
    subject = Subject.of("demo", DataSpec(held.source, **held.options))
    found: dict[int, tuple[int, int]] = {}
    for batch in subject.data.batches(16):
        answers = logits(subject.model, batch.inputs).argmax(1)
        assert batch.labels is not None
        found |= dict(zip(batch.keys.tolist(), zip(answers.tolist(), batch.labels.tolist(), strict=True), strict=True))
    assert found == expected

    audited = shiftproof.audit("demo", load_data(held.source, **held.options), out=tmp_path / "run", sections=["clean"])
    assert audited.numbers["clean_accuracy"] == right / COUNT


def keys(shelf):
    """Return the keys of the images: digests of their pixels."""
    return load_data((shelf.arrays, torch.tensor(shelf.labels))).keys.tolist()


def test_there_are_sixty_combinations():
    assert len(DATA) + len(MODELS) >= 60
