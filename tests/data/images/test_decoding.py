from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shiftproof.data.images.decoding import Decoder, header
from shiftproof.errors import ConfigurationError, DataError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (6, 8), dtype=np.uint8)


def save(image: Image.Image, path: Path, **options: Any) -> str:
    image.save(path, **options)
    return str(path)


def test_rgb_is_as_stored(tmp_path: Path) -> None:
    decoded = Decoder()(save(Image.fromarray(PIXELS), tmp_path / "a.png"))
    np.testing.assert_array_equal(decoded, PIXELS)
    assert decoded.flags.writeable


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_greyscale_becomes_three_channels_or_stays_one(color: str, tmp_path: Path) -> None:
    path = save(Image.fromarray(GREY), tmp_path / "a.png")
    decoded = Decoder(color)(path)  # type: ignore[arg-type]
    np.testing.assert_array_equal(decoded, np.repeat(GREY[..., None], 3 if color == "rgb" else 1, axis=2))


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_black_and_white(color: str, tmp_path: Path) -> None:
    bits = GREY > 127
    decoded = Decoder(color)(save(Image.fromarray(bits), tmp_path / "a.png"))  # type: ignore[arg-type]
    np.testing.assert_array_equal(decoded[..., 0], np.where(bits, 255, 0))


def test_transparency_lies_on_white(tmp_path: Path) -> None:
    alpha = RNG.integers(0, 256, (6, 8), dtype=np.uint8)
    alpha[0] = [0, 255, 0, 255, 0, 255, 0, 255]
    path = save(Image.fromarray(np.dstack([PIXELS, alpha])), tmp_path / "a.png")
    share = alpha[..., None] / 255
    np.testing.assert_allclose(Decoder()(path), share * PIXELS + (1 - share) * 255, atol=1)
    np.testing.assert_array_equal(Decoder()(path)[0, ::2], 255)
    np.testing.assert_array_equal(Decoder()(path)[0, 1::2], PIXELS[0, 1::2])


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_grey_with_transparency(color: str, tmp_path: Path) -> None:
    alpha = np.where(GREY > 127, 255, 0).astype(np.uint8)
    path = save(Image.merge("LA", [Image.fromarray(GREY), Image.fromarray(alpha)]), tmp_path / "a.png")
    decoded = Decoder(color)(path)  # type: ignore[arg-type]
    np.testing.assert_array_equal(decoded[..., 0], np.where(alpha > 0, GREY, 255))


def test_a_palette(tmp_path: Path) -> None:
    image = Image.frombytes("P", (8, 6), (GREY % 4).tobytes())
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120])
    expected = np.array([[10, 20, 30], [40, 50, 60], [70, 80, 90], [100, 110, 120]])[GREY % 4]
    np.testing.assert_array_equal(Decoder()(save(image, tmp_path / "a.png")), expected)
    clear = Decoder()(save(image, tmp_path / "b.png", transparency=2))
    np.testing.assert_array_equal(clear, np.where((GREY % 4 == 2)[..., None], 255, expected))
    shaded = Decoder()(save(image, tmp_path / "c.png", transparency=bytes([0, 255, 255, 255])))
    np.testing.assert_array_equal(shaded, np.where((GREY % 4 == 0)[..., None], 255, expected))


def test_sixteen_bits_are_scaled(tmp_path: Path) -> None:
    deep = RNG.integers(0, 65536, (6, 8), dtype=np.uint16)
    deep[0, :4] = [0, 257, 65535, 65406]
    expected = np.rint(deep / 257)
    for path in (save(Image.fromarray(deep), tmp_path / "a.png"), save(Image.fromarray(deep), tmp_path / "a.tif")):
        np.testing.assert_array_equal(Decoder("gray")(path)[..., 0], expected)
        np.testing.assert_array_equal(Decoder("rgb")(path)[..., 1], expected)


def test_numbers_without_a_known_range_are_refused(tmp_path: Path) -> None:
    floats = save(Image.fromarray(np.ones((4, 4), np.float32)), tmp_path / "floats.tif")
    deep = save(Image.fromarray(np.full((4, 4), 70000, np.int32)), tmp_path / "deep.tif")
    for path in (floats, deep):
        with pytest.raises(DataError, match="range is not known"):
            Decoder()(path)


def test_cmyk(tmp_path: Path) -> None:
    inks = np.zeros((4, 4, 4), np.uint8)
    inks[:, 2:, 0] = 255  # cyan on the right
    path = save(Image.frombytes("CMYK", (4, 4), inks.tobytes()), tmp_path / "a.tif")
    decoded = Decoder()(path)
    np.testing.assert_array_equal(decoded[:, :2], 255)
    np.testing.assert_array_equal(decoded[:, 2:], np.broadcast_to([0, 255, 255], (4, 2, 3)))
    jpeg = Decoder()(save(Image.open(path), tmp_path / "a.jpg", quality=100))
    np.testing.assert_allclose(jpeg, decoded, atol=6)


@pytest.mark.parametrize("orientation", [0, 9, 200])
def test_exif_values_without_a_meaning_turn_nothing(orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (8, 4)).save(tmp_path / "image.jpg", exif=exif)
    assert header(str(tmp_path / "image.jpg")) == ((8, 4), False, False, False)
    assert Decoder()(str(tmp_path / "image.jpg")).shape == (4, 8, 3)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation(orientation: int, tmp_path: Path) -> None:
    turned = {
        1: lambda x: x,
        2: lambda x: x[:, ::-1],
        3: lambda x: x[::-1, ::-1],
        4: lambda x: x[::-1],
        5: lambda x: x.swapaxes(0, 1),
        6: lambda x: x[::-1].swapaxes(0, 1),
        7: lambda x: x[::-1, ::-1].swapaxes(0, 1),
        8: lambda x: x[:, ::-1].swapaxes(0, 1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name, options in (("a.webp", {"lossless": True}), ("a.png", {}), ("a.tif", {})):
        path = save(Image.fromarray(PIXELS), tmp_path / name, exif=exif, **options)
        np.testing.assert_array_equal(Decoder()(path), turned(PIXELS))
    found = header(save(Image.fromarray(PIXELS), tmp_path / "a.jpg", exif=exif))
    assert found.size[::-1] == turned(PIXELS).shape[:2]
    assert (found.grey, found.turned, found.alpha) == (False, orientation > 1, False)


def test_of_an_animation_the_first_frame(tmp_path: Path) -> None:
    frames = [Image.fromarray(np.full((4, 4, 3), value, np.uint8)) for value in (10, 200)]
    frames[0].save(tmp_path / "a.webp", save_all=True, append_images=frames[1:], lossless=True)
    np.testing.assert_array_equal(Decoder()(str(tmp_path / "a.webp")), 10)


class TestSize:
    def test_a_square_of_the_centre(self, tmp_path: Path) -> None:
        """Halving a picture of three bands, 8 wide each and 8 high, leaves the middle one."""
        bands = np.repeat(np.array([10, 100, 250], np.uint8), 8)[None, :, None].repeat(8, 0).repeat(3, 2)
        decoded = Decoder(size=4)(save(Image.fromarray(bands), tmp_path / "a.png"))
        assert decoded.shape == (4, 4, 3)
        np.testing.assert_array_equal(decoded[:, 1:3], 100)

    def test_a_short_side_and_a_crop(self, tmp_path: Path) -> None:
        image = Image.fromarray(RNG.integers(0, 256, (16, 24, 3), dtype=np.uint8))
        decoded = Decoder(size=(8, 6))(save(image, tmp_path / "a.png"))
        expected = np.asarray(image.resize((12, 8), Image.Resampling.BILINEAR))[1:7, 3:9]
        np.testing.assert_array_equal(decoded, expected)

    def test_a_crop_alone_leaves_pixels_alone(self, tmp_path: Path) -> None:
        decoded = Decoder(size=(6, 4))(save(Image.fromarray(PIXELS), tmp_path / "a.png"))
        np.testing.assert_array_equal(decoded, PIXELS[1:5, 2:6])

    @pytest.mark.parametrize(("width", "height"), [(7, 5), (5, 7), (100, 3), (3, 100), (1, 1)])
    def test_any_shape_becomes_the_size(self, width: int, height: int, tmp_path: Path) -> None:
        path = save(Image.new("RGB", (width, height)), tmp_path / "a.png")
        assert Decoder(size=5)(path).shape == (5, 5, 3)
        assert Decoder(size=5).output_size((width, height)) == (5, 5)

    @pytest.mark.parametrize("size", [0, -3, (4, 8), (8, 0)])
    def test_sizes_that_are_none(self, size: int | tuple[int, int]) -> None:
        with pytest.raises(ConfigurationError, match="cannot have the size"):
            Decoder(size=size)


def test_grey_refuses_colours(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is in colour"):
        Decoder("gray")(save(Image.fromarray(PIXELS), tmp_path / "a.png"))
