"""NOTE: instance-aware normalisation and a memory balanced over predicted classes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from torch import nn

from shiftproof.adapters import adapt
from shiftproof.adapters.norms import AdaptiveBatchNorm
from shiftproof.adapters.note import InstanceAware, balanced_reservoir
from tests.adapters.networks import convolutional


def layer() -> tuple[AdaptiveBatchNorm, torch.Tensor]:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(3)
    norm.running_mean = torch.tensor([0.0, 1.0, -1.0])
    norm.running_var = torch.tensor([1.0, 2.0, 0.5])
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 0.5, 2.0]))
    return AdaptiveBatchNorm(norm, InstanceAware()), torch.randn(4, 3, 5, 5) * 3


def test_statistics_are_the_papers_image_by_image() -> None:
    norm, x = layer()
    found = norm(x).detach().numpy()
    mean, var = norm.source_mean.numpy(), norm.source_var.numpy()  # type: ignore[union-attr]
    for image in range(4):
        for channel in range(3):
            own = x[image, channel].numpy()
            apart, width = own.mean() - mean[channel], 4 * np.sqrt(var[channel] / 25)
            used = mean[channel] + np.sign(apart) * max(abs(apart) - width, 0)
            apart, width = own.var(ddof=1) - var[channel], 4 * var[channel] * np.sqrt(2 / 24)
            spread = max(var[channel] + np.sign(apart) * max(abs(apart) - width, 0), 0)
            scale = norm.weight[channel].item() / np.sqrt(spread + norm.eps)
            np.testing.assert_allclose(found[image, channel], (own - used) * scale, atol=1e-4)


def test_images_like_the_source_are_normalised_as_the_source_is() -> None:
    norm, x = layer()
    norm.policy = InstanceAware(deviations=1e6)
    torch.testing.assert_close(norm(x), norm.with_source(x))


def test_the_memory_is_balanced_where_classes_come_in_runs() -> None:
    draws = [tuple(each) for each in np.random.default_rng(0).uniform(size=(400, 2)).tolist()]
    stream = [number // 40 for number in range(400)]
    seen: Counter[int] = Counter()
    kept: list[int] = []
    for low in range(0, 400, 16):
        part = slice(low, low + 16)
        labels = [stream[place] for place in kept]
        new = balanced_reservoir(labels, stream[part], seen, 20, draws[part])
        kept = [[*kept, *range(low, low + 16)][place] for place in new]
    assert Counter(stream[place] for place in kept) == Counter(dict.fromkeys(range(10), 2))
    assert seen == Counter(dict.fromkeys(range(10), 40))


def test_it_answers_before_it_learns_and_learns_every_so_often() -> None:
    images = torch.rand(64, 3, 16, 16)
    adapter = adapt(convolutional(classes=10), "note", update_every=64)
    with torch.no_grad():
        first = adapter.run(images[:32])
    torch.testing.assert_close(adapter(images[:32]), first)
    assert adapter.updates == 0
    adapter(images[32:])
    assert adapter.updates == 1
    gathered = next(iter(adapter.norms.values()))
    assert int(gathered.seen) == 64
    assert gathered.source_mean is not None
    assert not torch.equal(gathered.target_mean, gathered.source_mean)
