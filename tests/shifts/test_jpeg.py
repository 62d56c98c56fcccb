"""The tensor codec against Pillow's encoder, and its parts against closed forms."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.fft import dctn
from torch import Tensor

from shiftproof.shifts.corruptions import jpeg


def photographs(*shape: int) -> Tensor:
    """Smooth shapes with edges and grain, uint8."""
    count, channels, height, width = shape
    y, x = np.mgrid[:height, :width]
    rng = np.random.default_rng(0)
    waves = [np.sin(x / rng.uniform(3, 20) + y / rng.uniform(3, 20) + c) for c in range(count * channels)]
    edges = (x > width // 3) * 40.0 + (y > height // 2) * 30.0
    images = 110 + 60 * np.stack(waves).reshape(shape) + edges + rng.normal(0, 4, shape)
    return torch.from_numpy(images.clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize("quality", [7, 25, 50, 80, 95])
@pytest.mark.parametrize("shape", [(3, 3, 32, 32), (2, 3, 37, 50), (2, 1, 21, 40), (3, 3, 8, 9), (2, 3, 26, 15)])
def test_tensors_come_out_as_the_encoder_leaves_them(shape: tuple[int, ...], quality: int) -> None:
    images = photographs(*shape)
    encoded = jpeg.compress_pillow(images, quality).float()
    error = (jpeg.compress_tensor(images, quality).float() - encoded).abs()
    lost = (images.float() - encoded).abs().mean()
    assert error.mean() < 0.25
    assert error.mean() < 0.1 * lost + 0.05


@pytest.mark.parametrize("channels", [1, 3])
def test_the_encoder_path_is_pillow_image_by_image(channels: int) -> None:
    images = photographs(5, channels, 24, 33)
    compressed = jpeg.compress_pillow(images, 30)
    for image, got in zip(images, compressed, strict=True):
        file = io.BytesIO()
        pixels = image.permute(1, 2, 0).squeeze(-1).numpy()
        Image.fromarray(pixels).save(file, format="JPEG", quality=30)
        np.testing.assert_array_equal(got.permute(1, 2, 0).squeeze(-1).numpy(), np.asarray(Image.open(file)))


@pytest.mark.parametrize("quality", [1, 10, 49, 50, 75, 100])
def test_tables_are_those_pillow_writes(quality: int) -> None:
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, format="JPEG", quality=quality)
    written = Image.open(file).quantization  # type: ignore[attr-defined]
    for number, table in ((0, jpeg._LUMA), (1, jpeg._CHROMA)):
        ours = np.array(jpeg.quantization_table(table, quality)).flatten()
        assert sorted(ours) == sorted(written[number])


def test_block_transform_is_the_orthonormal_cosine_transform() -> None:
    block = np.random.default_rng(0).normal(size=(8, 8))
    coefficients = jpeg._block_transform(torch.device("cpu")).numpy() @ block.flatten()
    np.testing.assert_allclose(coefficients.reshape(8, 8), dctn(block, norm="ortho"), atol=1e-12)


def test_the_codec_does_not_depend_on_the_batch() -> None:
    images = photographs(33, 3, 40, 40)
    together = jpeg.compress_tensor(images, 20)
    assert torch.equal(jpeg.compress_tensor(images[7:8], 20), together[7:8])
    assert torch.equal(jpeg.compress_tensor(images.flip(0), 20), together.flip(0))
