from __future__ import annotations

import pytest
import torch

from shiftproof.data import load_images

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@pytest.mark.parametrize(("name", "images"), [("demo", 1000), ("demo-source", 500)])
def test_is_balanced(name: str, images: int) -> None:
    data = load_images(name)
    assert len(data) == images
    assert data.name == name
    assert data.shape == (3, 32, 32)
    assert data.classes == CLASSES
    assert data.labels is not None
    assert data.labels.bincount().tolist() == [images // 10] * 10
    assert len(data.keys.unique()) == images


def test_is_cifar_10() -> None:
    """Channel means and deviations of natural images, and tiles that were cut in the right places.

    A tile cut across two images has a seam: neighbouring columns differ more there than elsewhere.
    """
    (batch,) = load_images("demo").batches(1000)
    torch.testing.assert_close(batch.inputs.mean((0, 2, 3)), torch.tensor([0.4914, 0.4822, 0.4465]), atol=0.02, rtol=0)
    torch.testing.assert_close(batch.inputs.std((0, 2, 3)), torch.tensor([0.2470, 0.2435, 0.2616]), atol=0.02, rtol=0)
    for axis in (2, 3):
        steps = batch.inputs.diff(dim=axis).abs().mean([dim for dim in range(4) if dim != axis])
        assert steps.max() < 2 * steps.mean()


def test_parts_do_not_overlap() -> None:
    (audit,), (source,) = load_images("demo").batches(1000), load_images("demo-source").batches(1000)
    rows = {image.numpy().tobytes() for image in audit.inputs}
    assert len(rows) == 1000
    assert not rows & {image.numpy().tobytes() for image in source.inputs}


def test_takes_options() -> None:
    assert load_images("demo", size=16).shape == (3, 16, 16)
    assert load_images("demo", classes=[str(number) for number in range(10)]).classes[9] == "9"
