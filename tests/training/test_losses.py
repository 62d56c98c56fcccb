"""Losses against hand-computed values, scipy, limits of the formulas, and numerical gradients in double precision."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.special import rel_entr, softmax
from scipy.stats import entropy, norm
from torch import nn

from shiftproof.training import losses

LABELS = torch.tensor([0, 2, 1, 1])


def some_logits(*shape, seed=0):
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def logits_of(*chances):
    """Return logits whose softmax is the given probabilities."""
    return torch.from_numpy(np.array(chances, dtype=np.float64)).log()


@given(st.integers(0, 2**31), st.integers(2, 6))
def test_jsd_of_two_is_the_square_of_scipys_distance(seed, classes):
    logits = some_logits(2, 5, classes, seed=seed)
    p, q = softmax(logits.numpy(), axis=-1)
    assert np.allclose(losses.jsd(logits), jensenshannon(p, q, axis=-1) ** 2, atol=1e-12)


def test_jsd_of_three_is_the_mean_relative_entropy_to_their_mean():
    logits = some_logits(3, 7, 4)
    p = softmax(logits.numpy(), axis=-1)
    assert np.allclose(losses.jsd(logits), rel_entr(p, p.mean(0)).sum(-1).mean(0))
    assert np.allclose(losses.jsd(logits[:1].expand(3, -1, -1)), 0.0, atol=1e-12)


def test_hcr_by_hand():
    # Two views with two noises each, of one image and two classes.
    logits = logits_of([0.9, 0.1], [0.7, 0.3], [0.4, 0.6], [0.6, 0.4]).view(2, 2, 1, 2)
    within = (
        (0.9 * math.log(0.9 / 0.8) + 0.1 * math.log(0.1 / 0.2) + 0.7 * math.log(0.7 / 0.8) + 0.3 * math.log(0.3 / 0.2))
        + (0.4 * math.log(0.4 / 0.5) + 0.6 * math.log(0.6 / 0.5)) * 2
    ) / 4
    across = (0.8 * math.log(0.8 / 0.65) + 0.2 * math.log(0.2 / 0.35) + 0.5 * math.log(0.5 / 0.65)) / 2
    across += 0.5 * math.log(0.5 / 0.35) / 2
    assert losses.hcr(logits, lam=40, eta=10).item() == pytest.approx(10 * within + 40 * across)
    turned = math.log(0.8 / 0.9) * 0.8 + math.log(0.2 / 0.1) * 0.2 + math.log(0.8 / 0.7) * 0.8
    turned += math.log(0.2 / 0.3) * 0.2 + (math.log(0.5 / 0.4) + math.log(0.5 / 0.6)) * 0.5 * 2
    assert losses.hcr(logits, lam=0, eta=1, direction="from_mean").item() == pytest.approx(turned / 4)


def test_hcr_with_one_noise_is_a_jsd_of_views_and_with_one_view_a_jsd_of_noises():
    views = some_logits(2, 1, 6, 5)
    assert torch.allclose(losses.hcr(views, lam=3, eta=10), 3 * losses.jsd(views[:, 0]))
    noises = some_logits(1, 4, 6, 5)
    assert torch.allclose(losses.hcr(noises, lam=3, eta=10), 10 * losses.jsd(noises[0]))
    assert torch.allclose(losses.hcr(some_logits(1, 1, 6, 5), lam=3, eta=10), torch.zeros(6).double())
    both = some_logits(3, 2, 6, 5)
    total = losses.hcr(both, lam=1, eta=1)
    assert torch.allclose(total, losses.jsd(both.flatten(0, 1)))  # equal weights: the two levels add up to one


def test_consistency_against_scipy():
    logits = some_logits(2, 5, 4)
    p = softmax(logits.numpy(), axis=-1)
    mean = p.mean(0)
    expected = 20 * rel_entr(mean, p).sum(-1).mean(0) + 0.5 * entropy(mean, axis=-1)
    assert np.allclose(losses.consistency(logits, lam=20, eta=0.5), expected)


def test_macer_by_hand_and_only_where_right():
    chances = np.array([[0.7, 0.2, 0.1], [0.5, 0.2, 0.3], [0.1, 0.5, 0.4]])
    logits = logits_of(*chances).repeat(3, 1, 1) / 16  # at inverse temperature 16 these are the probabilities
    labels = torch.tensor([0, 0, 2])
    classified = -np.log(softmax(np.log(chances) / 16, axis=1)[[0, 1, 2], [0, 0, 2]])
    xi = norm.ppf([0.7, 0.5]) - norm.ppf([0.2, 0.3])
    expected = classified + np.append(12 * 0.25 / 2 * (8 - xi), 0.0)
    assert np.allclose(losses.macer(logits, labels, sigma=0.25, lam=12, gamma=8, beta=16), expected)


def test_macer_lets_go_of_what_is_certain():
    logits = torch.tensor([[[60.0, 0.0]]], requires_grad=True)
    loss = losses.macer(logits, torch.tensor([0]), sigma=0.5, lam=12, gamma=8, beta=16).sum()
    (slope,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(0.0)
    assert slope.abs().max() < 1e-20  # and no NaN


def test_cross_entropy_averages_over_copies():
    logits = some_logits(3, 2, 4, 5)
    each = torch.stack([nn.functional.cross_entropy(one, LABELS, reduction="none") for one in logits.flatten(0, 1)])
    assert torch.allclose(losses.cross_entropy(logits, LABELS), each.mean(0))
    assert torch.allclose(losses.cross_entropy(logits[0, 0], LABELS), each[0])
    assert torch.allclose(losses.cross_entropy(logits, LABELS, averaged=False), each.view(3, 2, 4))


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: losses.cross_entropy(x, LABELS),
        lambda x: losses.jsd(x.flatten(0, 1)),
        lambda x: losses.consistency(x[0], lam=20, eta=0.5),
        lambda x: losses.hcr(x, lam=40, eta=10),
        lambda x: losses.hcr(x, lam=40, eta=10, direction="from_mean"),
        lambda x: losses.macer(x[0], LABELS, sigma=0.25, lam=12, gamma=8, beta=1.5),
        lambda x: losses.smoothed_cross_entropy(x[0], LABELS),
    ],
)
def test_gradients(loss):
    assert torch.autograd.gradcheck(loss, some_logits(3, 2, 4, 5).requires_grad_(True))


def test_the_attack_on_a_linear_network_goes_straight_to_the_border():
    # The loss of a linear network of two classes rises along the difference of its rows, whatever the noise.
    torch.manual_seed(0)
    linear = nn.Linear(48, 2)
    network = nn.Sequential(nn.Flatten(), linear).double()
    images = torch.full((3, 3, 4, 4), 0.5, dtype=torch.float64)
    labels = torch.tensor([0, 1, 1])
    noise = 0.25 * torch.randn(2, 3, 3, 4, 4, dtype=torch.float64)
    found = losses.smoothadv(network, images, labels, noise, eps=0.25, steps=10) - images
    away = (linear.weight[1] - linear.weight[0]).detach()
    expected = torch.stack([away, -away, -away]) / away.norm() * 0.25
    assert torch.allclose(found.flatten(1), expected)
    assert all(parameter.grad is None for parameter in network.parameters())
    assert torch.equal(losses.smoothadv(network, images, labels, noise, eps=0.0, steps=10), images)


@given(st.integers(0, 1000), st.floats(0.01, 2.0))
def test_the_attack_stays_in_its_ball_and_in_range(seed, eps):
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(2, 1, 4, 4, generator=generator)
    noise = torch.randn(2, 2, 1, 4, 4, generator=generator)
    weights = torch.randn(16, 3, generator=generator)
    found = losses.smoothadv(
        lambda x: (x.flatten(1) @ weights).sin(), images, torch.tensor([0, 1]), noise, eps=eps, steps=4
    )
    assert ((found - images).flatten(1).norm(dim=1) <= eps * (1 + 1e-5)).all()
    assert found.min() >= 0
    assert found.max() <= 1
