"""ResNet-50 on ImageNet's own images: folders named by WordNet id, by English name or by number score alike."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from shiftproof import load_model
from shiftproof.data import DataSpec
from shiftproof.errors import DataError
from shiftproof.models import fingerprint, imagenet, logits
from shiftproof.subjects import Subject
from tests.parity.conftest import SHARED

SAMPLE = SHARED / "data" / "imagenet-sample.tar"
TEN = (1, 99, 134, 207, 281, 340, 517, 638, 639, 985)
"""Ten classes, among them the two cranes and the two maillots, whose names are alike."""

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def network() -> Any:
    """ResNet-50, where its code and its weights are."""
    if not SAMPLE.is_file():
        pytest.skip("the sample of ImageNet is not here: ../shared/data/imagenet-sample.tar")
    if not Path(os.environ.get("RESNET50", "")).is_file():
        pytest.skip("the environment variable RESNET50 names no weights; ../shared/tools/get_data.py fetches them")
    return load_model(f"{SHARED / 'tools' / 'resnet50.py'}:build")


def laid_out(root: Path, classes: tuple[int, ...]) -> dict[str, Path]:
    """Write the sample's images of some classes in three folders: named by number, WordNet id, and English name."""
    names = {"number": [str(one) for one in range(1000)], "id": imagenet.wordnet_ids(), "English": imagenet.names()}
    with tarfile.open(SAMPLE) as archive:
        for member in archive:
            parts = Path(member.name).parts
            if not member.isfile() or int(parts[-2]) not in classes:
                continue
            file = archive.extractfile(member)
            assert file is not None
            content = file.read()
            for form, of in names.items():
                place = root / form / of[int(parts[-2])]
                place.mkdir(parents=True, exist_ok=True)
                (place / parts[-1]).write_bytes(content)
    return {form: root / form for form in names}


def scores(model: Any, folder: Path) -> tuple[Tensor, Tensor]:
    """Return logits and labels of a folder, in the order that its content decides."""
    subject = Subject.of(model, DataSpec(folder, size=(256, 224)), device="cpu")
    found = [logits(subject.model, batch.inputs) for batch in subject.data.batches(20)]
    assert subject.data.labels is not None
    return torch.cat(found), subject.data.labels


def compared(network: Any, root: Path, classes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return logits and labels, which are the same in every layout; so is their order, which content decides."""
    own, labels = (found := [scores(network, folder) for folder in laid_out(root, classes).values()])[0]
    for other, theirs in found:
        assert torch.equal(own, other)
        assert torch.equal(labels, theirs)
    return own, labels


def test_ten_classes(network, tmp_path):
    before = fingerprint(network)
    own, labels = compared(network, tmp_path, TEN)
    assert len(labels) == len(TEN)
    assert set(labels.tolist()) == set(TEN)
    assert (own.argmax(1) == labels).float().mean() >= 0.5  # 75% of all 1,000
    held = load_model(network, only_classes=tmp_path / "id")
    restricted, places = scores(held, tmp_path / "English")
    assert restricted.shape == (10, 10)
    assert (restricted.argmax(1) == places).float().mean() >= (own.argmax(1) == labels).float().mean()
    assert fingerprint(network) == before


def test_names_that_match_nothing_are_refused(network, tmp_path):
    folder = laid_out(tmp_path, (1, 99))["English"]
    (folder / imagenet.names()[1]).rename(folder / "golden thing")
    with pytest.raises(DataError, match="do not fit"):
        scores(network, folder)


@pytest.mark.slow
def test_all_classes(network, tmp_path):
    own, labels = compared(network, tmp_path, tuple(range(1000)))
    assert len(labels) == 1000
    assert 0.73 <= (own.argmax(1) == labels).float().mean() <= 0.77
