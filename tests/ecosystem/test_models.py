"""Every form of model gives the answers of the plain path, image by image, and an audit the same accuracy."""

from __future__ import annotations

import pytest
import torch

for package in ("timm", "torchvision", "transformers", "sklearn", "onnxruntime"):
    pytest.importorskip(package, reason="the packages of tests/ecosystem/requirements.txt: make ecosystem")

import shiftproof
from shiftproof import load_model
from shiftproof.models import ModelSpec, logits
from shiftproof.subjects import Subject
from tests.ecosystem.bench import Bench, called
from tests.ecosystem.models import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_a_model_answers_as_on_the_plain_path(name, tmp_path):
    bench = Bench(tmp_path)
    brought = MODELS[name](bench)
    folder = tmp_path / brought.folder
    plain = brought.plain(bench.images).argmax(1)
    right = int((plain == bench.labels).sum())

    subject = Subject.of(ModelSpec(brought.spec, **brought.options), str(folder))
    answers = torch.cat([logits(subject.model, batch.inputs) for batch in subject.data.batches(16)]).argmax(1)
    expected = plain[bench.upright()][subject.places].tolist()
    assert [subject.data.classes[one] for one in answers.tolist()] == [called(one, brought.folder) for one in expected]
    assert subject.data.labels is not None
    assert int((answers == subject.data.labels).sum()) == right

    made = load_model(brought.spec, **brought.options)
    found = shiftproof.audit(made, str(folder), out=tmp_path / "audit", sections=["clean"], images=len(plain))
    assert found.numbers["clean_accuracy"] == right / len(plain)


def test_the_models_have_learnt_something(tmp_path):
    """Without this, answers that are all alike would pass."""
    bench = Bench(tmp_path)
    shares = []
    for name in ("own module", "timm, state dict", "torchvision, state dict", "transformers, ViT saved"):
        (tmp_path / name).mkdir()
        plain = MODELS[name](Bench(tmp_path / name)).plain(bench.images).argmax(1)
        shares.append(float((plain == bench.labels).float().mean()))
    assert min(shares) > 0.4, shares
    assert min(shares) < 1, shares
