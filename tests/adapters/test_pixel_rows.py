"""Adaptation where every pixel has an answer: the same as plain loops over pixels, and what is refused."""

import math

import pytest
import torch
from torch import nn

from shiftproof.adapters import adapt
from shiftproof.errors import ModelError
from tests.label_maps import ColourNet


@pytest.fixture
def images():
    return torch.rand(3, 3, 10, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def network():
    made = ColourNet().double()
    made.norm.get_buffer("running_mean").copy_(torch.tensor([3.0, 1.0, 2.0, 2.0]))
    made.norm.get_buffer("running_var").copy_(torch.tensor([9.0, 4.0, 6.0, 5.0]))
    return made


def plain_pass(net, images, weight, bias, prior=0.0):
    """Return the logits of every pixel, one after the other, [N * H * W, C], normalised by a loop over channels."""
    rows = net.colours(images).movedim(1, -1).reshape(-1, 4)
    columns = []
    for channel in range(4):
        values = rows[:, channel]
        share = prior / (prior + len(images))
        mean, var = values.mean(), values.var(unbiased=False)
        mean = share * net.norm.running_mean[channel] + (1 - share) * mean
        var = share * net.norm.running_var[channel] + (1 - share) * var
        columns.append((values - mean) / (var + net.norm.eps).sqrt() * weight[channel] + bias[channel])
    return torch.stack(columns, 1)


@pytest.mark.parametrize("prior", [0, 4])
def test_statistics_are_those_of_all_pixels(images, prior):
    net = network()
    found = adapt(net, "bn", prior=prior)(images)
    expected = plain_pass(net, images, net.norm.weight, net.norm.bias, prior)
    assert found.shape == (3, 4, 10, 12)
    torch.testing.assert_close(found.movedim(1, -1).reshape(-1, 4), expected.detach(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("method", ["tent", "eta"])
def test_steps_are_those_of_a_plain_loop_over_pixels(images, method):
    net = network()
    adapted = (
        adapt(net, method, optimizer="sgd", lr=0.05, momentum=0.0, entropy_margin=0.9) if method == "eta" else None
    )
    adapted = adapted or adapt(net, "tent", optimizer="sgd", lr=0.05, momentum=0.0)
    weight, bias = (each.detach().clone().requires_grad_() for each in (net.norm.weight, net.norm.bias))
    for _ in range(3):
        found = adapted(images)
        logits = plain_pass(net, images, weight, bias)
        torch.testing.assert_close(found.movedim(1, -1).reshape(-1, 4), logits.detach(), atol=1e-6, rtol=0)
        terms = []
        for row in logits:
            shares = row.softmax(0)
            entropy = -(shares * shares.log()).sum()
            if method == "tent":
                terms.append(entropy)
            elif entropy.item() < 0.9 * math.log(4):
                terms.append(entropy * torch.exp(0.9 * math.log(4) - entropy.detach()))
        assert terms
        assert method == "tent" or len(terms) < len(logits)
        gradients = torch.autograd.grad(torch.stack(terms).mean(), (weight, bias))
        with torch.no_grad():
            weight.sub_(0.05 * gradients[0])
            bias.sub_(0.05 * gradients[1])
    torch.testing.assert_close(adapted.trained["norm.weight"].detach(), weight.detach(), atol=1e-6, rtol=0)


def test_the_teacher_of_cotta_sees_sizes_and_mirrors(images):
    """A network whose answers follow its image has the same answer to a mirrored view, mirrored back."""
    adapted = adapt(network(), "cotta", preset="cifar", confidence=1.1, restore=0.0, lr=1e-6)
    mirrored = adapt(network(), "cotta", preset="cifar", confidence=1.1, restore=0.0, lr=1e-6)
    found, other = adapted(images), mirrored(images.flip(3))
    assert found.shape == (3, 4, 10, 12)
    torch.testing.assert_close(found, other.flip(3), atol=1e-8, rtol=0)
    torch.testing.assert_close(found.exp().sum(1), torch.ones(3, 10, 12, dtype=torch.float64))


def test_streams_go_on_from_a_state(images):
    one, other = adapt(network(), "tent"), adapt(network(), "tent")
    one(images)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(images), other(images))


@pytest.mark.parametrize("method", ["sar", "lame", "roid", "memo", "eata"])
def test_methods_of_whole_images_are_refused(images, method):
    class Flat(ColourNet):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(2, 2)

    with pytest.raises(ModelError, match="Not available for segmentation"):
        adapt(Flat().double(), method)(images)
