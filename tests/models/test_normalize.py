from __future__ import annotations

import numpy as np
import pytest
import torch

from shiftproof.errors import ModelError
from shiftproof.models import Normalize

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def test_subtracts_and_divides_per_channel() -> None:
    images = torch.rand(2, 3, 4, 5)
    expected = (images.numpy() - np.array(MEAN, np.float32)[:, None, None]) / np.array(STD, np.float32)[:, None, None]
    out = Normalize(MEAN, STD)(images)
    assert out.dtype == torch.float32
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_keeps_the_precision_of_the_images(dtype: torch.dtype) -> None:
    assert Normalize(MEAN, STD)(torch.rand(1, 3, 4, 4).to(dtype)).dtype == dtype


def test_double_precision_uses_the_constants_as_written() -> None:
    layer = torch.nn.Sequential(Normalize(MEAN, STD)).double()
    images = torch.rand(1, 3, 4, 4, dtype=torch.float64)
    expected = (images.numpy() - np.array(MEAN)[:, None, None]) / np.array(STD)[:, None, None]
    np.testing.assert_array_equal(layer(images).numpy(), expected)


def test_travels_in_the_state_dict() -> None:
    other = Normalize((0.0,) * 3, (1.0,) * 3)
    other.load_state_dict(Normalize(MEAN, STD).state_dict())
    assert other.mean.flatten().tolist() == list(MEAN)
    assert "mean=(0.4914, 0.4822, 0.4465)" in repr(other)


@pytest.mark.parametrize(("mean", "std"), [((), ()), ((0.5,), (0.5, 0.5)), ((0.5,), (0.0,)), ((0.5,), (-1.0,))])
def test_refuses_constants_that_do_not_fit(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    with pytest.raises(ModelError, match="mean and std"):
        Normalize(mean, std)


def test_one_channel_does_not_spread_over_three() -> None:
    with pytest.raises(RuntimeError, match="shape"):
        Normalize(MEAN, STD)(torch.rand(2, 1, 4, 4))
