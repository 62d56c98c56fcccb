"""Help by outputs alone: against plain loops, for black boxes and ONNX files, and what cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from shiftproof.adapters import SafeAdapter, adapt
from shiftproof.adapters.outputs_only import estimated_prior, log_probabilities, smoothed_prior
from shiftproof.errors import DataError, ModelError
from shiftproof.models import BlackBox, load_model
from tests.adapters.networks import convolutional, stream


def box(fingerprint: str = "one", scale: float = 1.0) -> BlackBox:
    model = convolutional()
    return BlackBox(lambda images: scale * model(images).detach().numpy(), fingerprint=fingerprint)


def gaussian(classes: list[int], count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return calibrated logits of noisy images of some of ten classes, and their labels."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.tensor(classes)[torch.randint(0, len(classes), (count,), generator=random)]
    seen = 1.5 * torch.eye(10, dtype=torch.float64)[labels]
    seen = seen + torch.randn(count, 10, generator=random, dtype=torch.float64)
    return 1.5 * seen, labels


def test_em_by_plain_loops() -> None:
    p = gaussian([1, 2], 12)[0].softmax(1)
    prior = np.full(10, 0.1)
    for _ in range(7):
        weights = []
        for row in p.tolist():
            each = [value * share / 0.1 for value, share in zip(row, prior, strict=True)]
            weights.append([value / sum(each) for value in each])
        prior = np.array([(sum(row[c] for row in weights) + 6.0 / 10) / (12 + 6.0) for c in range(10)])
    np.testing.assert_allclose(estimated_prior(p.log(), 7, 6.0).numpy(), prior, atol=1e-9)
    mean = p.numpy().mean(0)
    smooth = max(1 / 12, 1 / 10) / mean.max()
    np.testing.assert_allclose(smoothed_prior(p.log()).numpy(), (mean + smooth) / (1 + 10 * smooth), atol=1e-12)


@pytest.mark.parametrize(("name", "least"), [("prior", 0.1), ("lame_outputs", 0.02)])
def test_classes_that_come_together_are_helped(name: str, least: float) -> None:
    batches = [gaussian([place, place + 1], 64, place) for place in range(8)]
    right = {}
    for method in ("source", name):
        adapter = adapt(BlackBox(lambda images: images, fingerprint="identity"), method)
        right[method] = np.mean([float((adapter(x.float()).argmax(1) == y).float().mean()) for x, y in batches])
    assert right[name] > right["source"] + least


def test_mixed_batches_lose_little() -> None:
    x, y = gaussian(list(range(10)), 4096)
    plain = float((x.argmax(1) == y).float().mean())
    for options in ({}, {"estimate": "smoothed"}):
        adapter = adapt(BlackBox(lambda images: images, fingerprint="identity"), "prior", **options)
        found = torch.cat([adapter(part.float()).argmax(1) for part in torch.split(x, 64)])
        assert float((found == y).float().mean()) > plain - 0.02


def test_probabilities_are_read_as_such() -> None:
    logits = gaussian([0, 3], 9)[0]
    torch.testing.assert_close(log_probabilities(logits.softmax(1)), logits.log_softmax(1), atol=1e-9, rtol=0)
    torch.testing.assert_close(log_probabilities(logits), logits.log_softmax(1))


def test_a_black_box_is_saved_and_known_again() -> None:
    images = stream(1)[0]
    first, second, other = (
        adapt(box(), "prior", window=16),
        adapt(box(), "prior", window=16),
        adapt(box("two"), "prior"),
    )
    first(images)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(images), second(images))
    with pytest.raises(DataError, match="another source model"):
        other.load_state_dict(first.state_dict())
    with pytest.raises(ModelError, match="needs a PyTorch module") as caught:
        adapt(box(), "tent")
    assert "prior" in caught.value.facts["fix"]


def test_a_black_box_chooses_safely() -> None:
    adapter = adapt(box(), "safe", label_share=1.0)
    assert isinstance(adapter, SafeAdapter)
    assert adapter.names == ("source", "prior", "lame_outputs")
    assert not adapter.left_out
    some = adapt(box(), "safe", candidates="prior,bn")
    assert isinstance(some, SafeAdapter)
    assert some.names == ("source", "prior")
    assert set(some.left_out) == {"bn"}
    images = stream(1)[0]
    torch.testing.assert_close(adapter(images), convolutional()(images))


def test_an_onnx_file_is_helped(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from tests.models.test_onnx_session import IMAGES, expected, save

    adapter = adapt(load_model(save(tmp_path / "model.onnx")), "prior")
    assert adapter(IMAGES).shape == (7, 4)
    logs = expected().log_softmax(1)
    prior = estimated_prior(logs, 20, 3.5)
    torch.testing.assert_close(adapter(IMAGES), (logs + prior.log()).log_softmax(1), atol=1e-5, rtol=0)
