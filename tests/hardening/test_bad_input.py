"""What cannot be hardened is told in words, and nothing that was measured is lost."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import shiftproof
from shiftproof.errors import ConfigurationError, DataError, ModelError, RunError
from shiftproof.hardening import harden
from shiftproof.hardening.remedies import REMEDIES
from shiftproof.hardening.request import Request
from shiftproof.hardening.training_time import fit
from shiftproof.models import BlackBox, Normalize
from shiftproof.training import train
from tests.training.samples import Small, small, two_classes

QUICK: dict[str, Any] = {"epochs": 1, "batch_size": 20, "test": 0.4, "test_images": 10, "augment": "prime"}


class Cut(Small):
    """Answers that are cut off from the weights."""

    def forward(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(images)


class Large(Small):
    """Takes more memory than there is for more than some images in training."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def forward(self, images: Tensor) -> Tensor:
        if self.training and len(images) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().forward(images)


def cases() -> list[Any]:
    """Return a model, images, the kind of error, its words, and what its remedy names."""
    data, images = two_classes(60), torch.rand(60, 3, 16, 16)
    return [
        pytest.param(small(), images, DataError, "no labels", id="no labels"),
        pytest.param(
            small(), (images, torch.zeros(60, dtype=torch.int64)), DataError, "only one class", id="one class"
        ),
        pytest.param(small(), (images, torch.arange(60) % 5), ModelError, "too few classes", id="more classes"),
        pytest.param(BlackBox(lambda x: x.mean((2, 3))), data, ModelError, "black box", id="black box"),
        pytest.param(small().requires_grad_(False), data, ModelError, "no trainable weights", id="frozen"),
        pytest.param(Normalize([0.5] * 3, [0.5] * 3), data, ModelError, "no trainable weights", id="no weights"),
        pytest.param(Cut(), data, ModelError, "no gradients", id="no gradients"),
    ]


@pytest.mark.parametrize(("model", "data", "kind", "words"), cases())
def test_what_cannot_be_hardened_is_told_before_anything_runs(model, data, kind, words, tmp_path):
    with pytest.raises(kind, match=words):
        harden(model, data, out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()
    with pytest.raises((DataError, ModelError), match=words):
        train(model, data, epochs=1, batch_size=20, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_empty_folder_has_no_images(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no images"):
        harden("demo", tmp_path / "empty", out=tmp_path / "run", **QUICK)


def test_labels_of_other_names_do_not_match(tmp_path):
    from PIL import Image

    for name in ("left", "right"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(6):
            Image.new("RGB", (32, 32), (number, 0, 0)).save(tmp_path / "data" / name / f"{number}.png")
    with pytest.raises(DataError, match="class"):
        harden("demo", tmp_path / "data", out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_too_little_memory_is_told_with_what_takes_less(tmp_path):
    with pytest.raises(RunError, match="ran out of memory") as caught:
        train(Large(8), two_classes(60), epochs=1, batch_size=20, out=tmp_path / "run")
    assert "--batch-size 10" in str(caught.value)
    assert "--accumulate 2" in str(caught.value)
    assert shiftproof.train(Large(10), two_classes(60), epochs=1, batch_size=20, accumulate=2).row["step"] == 3


def test_batches_that_do_not_fit_are_made_smaller():
    request = Request(epochs=1, batch_size=32, recipe="mixed+anchor")
    fitted = fit(Large(20), two_classes(60), request, REMEDIES[1].aims[0].augment, torch.device("cpu"))
    assert fitted.batch_size == 8  # two views of each image
    with pytest.raises(RunError, match="ran out of memory"):
        fit(Large(1), two_classes(60), request, REMEDIES[1].aims[0].augment, torch.device("cpu"))


def test_a_run_that_diverges_is_told_and_its_audit_stays(tmp_path):
    with pytest.raises(RunError, match="loss is not finite") as caught:
        harden(small(), two_classes(60), lr=1e30, recipe="mixed", out=tmp_path / "run", **{**QUICK, "epochs": 40})
    assert "--lr" in caught.value.facts["fix"]
    assert "--clip" not in caught.value.facts["fix"]  # which harden has not
    before = shiftproof.gate(tmp_path / "run" / "before").numbers
    again = harden(
        small(),
        two_classes(60),
        audit=tmp_path / "run" / "before",
        lr=1e-3,
        recipe="mixed",
        out=tmp_path / "b",
        **QUICK,
    )
    assert again.corruptions is None or again.corruptions.before == before["corruption_accuracy"]
    with pytest.raises(ConfigurationError, match="lr"):
        harden(small(), two_classes(60), lr=-1, out=tmp_path / "c", **QUICK)
    assert not Path(tmp_path / "c").exists()
