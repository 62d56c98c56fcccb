"""Adversarial data augmentation, against a plain loop with gradients by hand."""

import pytest
import torch
from torch import nn

from shiftproof.errors import ModelError
from shiftproof.models.feature_tap import logits_and_features
from shiftproof.training.adversarial_augmentation import AdversarialAugmentation, ascend
from shiftproof.training.mixed_targets import Targets
from shiftproof.training.objectives import Moment


def linear_network(seed=0):
    """Return a network whose features and logits are linear, and its two matrices."""
    generator = torch.Generator().manual_seed(seed)
    first, last = nn.Linear(12, 5, bias=False).double(), nn.Linear(5, 3, bias=False).double()
    for layer in (first, last):
        layer.weight.data = torch.randn(layer.weight.shape, generator=generator, dtype=torch.float64)
    return nn.Sequential(nn.Flatten(), first, last), first.weight.detach(), last.weight.detach()


def test_the_ascent_is_a_plain_loop():
    network, first, last = linear_network()
    images = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    labels = torch.tensor([0, 2, 1, 0])
    gamma, steps, rate = 0.05, 6, 0.1
    found = ascend(lambda seen: logits_and_features(network, seen), images, labels, gamma=gamma, steps=steps, rate=rate)
    for image, label, made in zip(images, labels, found, strict=True):
        start = moved = image.flatten()
        for _ in range(steps):
            chances = (last @ first @ moved).softmax(0)
            chances[label] -= 1
            slope = first.T @ last.T @ chances - gamma * first.T @ (first @ (moved - start))
            moved = (moved + rate * slope).clamp(0, 1)
        assert torch.allclose(made.flatten(), moved, atol=1e-6)
    assert not torch.equal(found, images)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_large_gamma_holds_the_features():
    network, *_ = linear_network()
    images = torch.full((2, 3, 2, 2), 0.5, dtype=torch.float64)

    def off(gamma):
        made = ascend(
            lambda seen: logits_and_features(network, seen), images, torch.tensor([0, 1]),
            gamma=gamma, steps=5, rate=0.005,
        )  # fmt: skip
        before, after = (logits_and_features(network, some)[1].detach() for some in (images, made))
        return float((after - before).norm())

    assert off(10.0) < 0.7 * off(0.0)


def test_the_loss_is_the_mean_of_images_and_their_copies():
    network, *_ = linear_network()
    images, labels = torch.rand(1, 4, 3, 2, 2, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    objective = AdversarialAugmentation(gamma=0.1, steps=2, rate=0.1)

    def featured(seen):
        return logits_and_features(network, seen)

    moment = Moment(network, network, images, Targets(labels), None, 0.0, 0.0, featured=featured)
    moved = ascend(featured, images[0], labels, gamma=0.1, steps=2, rate=0.1)
    both = [nn.functional.cross_entropy(network(some).float(), labels, reduction="none") for some in (images[0], moved)]
    assert torch.allclose(objective.loss(moment), torch.stack(both).mean(0))
    with pytest.raises(ModelError, match="features"):
        objective.loss(Moment(network, network, images, Targets(labels), None, 0.0, 0.0))
