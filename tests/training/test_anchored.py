"""Holding on to the network that training began with, and to the labels where it was wrong."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, rel_entr, softmax
from torch import nn

from shiftproof.models import logits
from shiftproof.training import train
from shiftproof.training.mixed_targets import Targets
from shiftproof.training.objectives import Anchored, Moment
from tests.training.samples import small, two_classes

LABELS = torch.tensor([0, 1, 2, 0])
BEFORE = torch.tensor([[3.0, 0, 0], [0, 1, 0], [0, 2, 0], [0, 0, 1]], dtype=torch.float64)
"""What was said of four images: right of the first two, wrong of the others."""


def moment(targets: Targets) -> tuple[Moment, torch.Tensor]:
    """Return a step whose network says of two views [2, 4, 3] what is returned beside it."""
    said = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    network = lambda seen: said.flatten(0, 1)[: len(seen)]  # noqa: E731
    images = torch.zeros(2, 4, 1, 1, 1)
    return Moment(network, network, images, targets, None, 0.0, 0.0, BEFORE.log_softmax(-1)), said


def divergence(said: torch.Tensor) -> Any:
    return rel_entr(softmax(BEFORE.numpy(), -1), softmax(said.double().numpy(), -1)).sum(-1)


def surprise(said: torch.Tensor, labels: torch.Tensor) -> Any:
    return -log_softmax(said.double().numpy(), -1)[np.arange(4), labels.numpy()]


def test_the_label_is_said_of_images_that_the_network_was_wrong_about() -> None:
    step, (image, view) = moment(Targets(LABELS))
    wrong = np.array([False, False, True, True])
    parts = [np.where(wrong, surprise(each, LABELS), divergence(each)) for each in (image, view)]
    assert Anchored(lam=2.0).loss(step).numpy() == pytest.approx(parts[0] + 2 * parts[1], rel=1e-5)
    step, _ = moment(Targets(LABELS))
    plain = Anchored(lam=2.0, labels=0.5, corrected=False).loss(step).numpy()
    assert plain == pytest.approx(divergence(image) + 2 * divergence(view) + 0.5 * surprise(view, LABELS), rel=1e-5)


def test_of_a_mixed_image_either_label_is_right() -> None:
    others = torch.tensor([1, 0, 1, 1])
    targets = Targets(LABELS, others=others, share=0.75)
    assert targets.missed(BEFORE.argmax(-1)).tolist() == [False, False, False, True]
    step, (image, view) = moment(targets)
    mixed = [0.75 * surprise(each, LABELS) + 0.25 * surprise(each, others) for each in (image, view)]
    wrong = np.array([False, False, False, True])
    parts = [np.where(wrong, both, divergence(each)) for both, each in zip(mixed, (image, view), strict=True)]
    assert Anchored().loss(step).numpy() == pytest.approx(parts[0] + parts[1], rel=1e-5)


def test_a_network_that_is_wrong_learns_from_labels() -> None:
    data = two_classes()
    settings: dict[str, Any] = {"batch_size": 40, "lr": 0.1, "schedule": "cosine", "framing": ""}
    good = train(small(), data, epochs=20, **settings).model
    images = torch.cat([batch.inputs for batch in data.batches(200)])

    def right(network: nn.Module) -> float:
        assert data.labels is not None
        return float((logits(network, images).argmax(1) == data.labels).float().mean())

    broken = copy.deepcopy(good)
    said = logits(good, images)
    with torch.no_grad():  # half of all frogs are called aeroplanes
        bias = broken.get_parameter("layers.9.bias")
        bias[0] += float((said[:, 1] - said[:, 0])[data.labels == 1].median())
    settings |= {"epochs": 8, "recipe": "spectra+anchor"}
    held, corrected = (train(broken, data, options={"corrected": each}, **settings).model for each in (False, True))
    assert right(broken) < 0.8 < right(good)
    assert right(held) < right(broken) + 0.05
    assert right(corrected) > right(broken) + 0.1
