"""Files of every kind to plain pixels, by Pillow.

* EXIF rotation is applied.
* Transparent pixels are laid on white, as a browser shows them.
* Palette, CMYK, YCbCr and black-and-white images become RGB.
* 16-bit greyscale is scaled, 65535 to 255; numbers of more bits and floats have no known range, and are refused.
* Of an animation, the first frame counts.
* An image of more pixels than `PIL.Image.MAX_IMAGE_PIXELS` is refused before any is decoded.
* `size` resizes the short side (bilinear, antialiased) and crops the centre.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from shiftproof.errors import ConfigurationError, DataError

Color = Literal["rgb", "gray"]
Size = int | tuple[int, int]

IMAGE_SUFFIXES = frozenset(
    {".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpeg", ".jpg"}
    | {".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"}
)

_ORIENTATION = 0x0112
_DEEP_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_GREY_MODES = ("1", "L", "LA", "La", *_DEEP_MODES)
_LIMIT = "PIL.Image.MAX_IMAGE_PIXELS (89,478,485)"
# What Pillow may take a file for: some of its other formats start programs to decode them.
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF", "MPO")


def is_image_name(value: object) -> TypeGuard[str | Path]:
    """Whether a value is a path or a name that ends as those of image files do."""
    return isinstance(value, str | Path) and os.path.splitext(value)[1].lower() in IMAGE_SUFFIXES  # noqa: PTH122


@dataclass(frozen=True)
class Decoder:
    """How files become pixels: RGB or grey, and the size they are brought to.

    `size=224` resizes the short side to 224 and crops the centre to 224 x 224; `size=(256, 224)` resizes the short side
    to 256 and crops the centre to 224 x 224; None leaves images as they are.
    """

    color: Color = "rgb"
    size: Size | None = None

    def __post_init__(self) -> None:
        if self.color not in ("rgb", "gray"):
            raise ConfigurationError(f"There is no color {self.color!r}.", expected="'rgb' or 'gray'")
        parts = (self.size, self.size) if isinstance(self.size, int) else self.size
        if parts is not None and (len(parts) != 2 or not 1 <= parts[1] <= parts[0]):
            raise ConfigurationError(
                f"Images cannot have the size {self.size}.",
                expected="one number, or a short side and a crop that is not larger: (256, 224)",
            )
        if parts is not None and _too_many(parts[0], parts[0]):
            raise ConfigurationError(f"Images cannot have the size {self.size}.", expected=f"at most {_LIMIT}")

    @property
    def channels(self) -> int:
        """Channels of a decoded image."""
        return 3 if self.color == "rgb" else 1

    def __call__(self, file: str | IO[bytes]) -> NDArray[np.uint8]:
        """Return the pixels of an encoded image, uint8 [H, W, C]."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd metadata; what cannot be decoded raises
            with open_image(file) as image:
                return self.pixels(image)

    def pixels(self, image: Image.Image) -> NDArray[np.uint8]:
        """Return the pixels of an open image, uint8 [H, W, C]."""
        if self.color == "gray" and not is_grey(image):
            raise DataError(f"This image is in colour: its mode is {image.mode}.")
        plain = self.fit(_flattened(upright(image)).convert("RGB" if self.color == "rgb" else "L"))
        array = np.array(plain)  # a copy, which may be written to
        return array if array.ndim == 3 else array[:, :, None]

    def fit(self, image: Image.Image, resampling: Image.Resampling = Image.Resampling.BILINEAR) -> Image.Image:
        """Return an image resized and cropped as `size` says."""
        if self.size is None:
            return image
        short, crop = (self.size, self.size) if isinstance(self.size, int) else self.size
        scale = short / min(image.size)
        width, height = (max(short, round(side * scale)) for side in image.size)
        if _too_many(width, height):
            raise DataError(f"It would have {width} x {height} pixels when resized; at most {_LIMIT}.")
        if (width, height) != image.size:
            image = image.resize((width, height), resampling)
        left, top = (width - crop) // 2, (height - crop) // 2
        return image.crop((left, top, left + crop, top + crop))

    def output_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the width and height of a decoded image from those of its file."""
        if self.size is None:
            return size
        crop = self.size if isinstance(self.size, int) else self.size[1]
        return crop, crop


@contextmanager
def open_image(file: str | Path | IO[bytes]) -> Iterator[Image.Image]:
    """Open an image without decoding it, and refuse one that has no pixels or more than Pillow's limit."""
    if isinstance(file, str | Path) and not Path(file).is_file():
        raise DataError("It is not a regular file.")
    with Image.open(file, formats=_formats()) as image:
        width, height = image.size
        if not width * height or _too_many(width, height):
            raise DataError(f"It has {width} x {height} pixels; at least 1 and at most {_LIMIT}.")
        yield image


def _too_many(width: int, height: int) -> bool:
    return Image.MAX_IMAGE_PIXELS is not None and width * height > Image.MAX_IMAGE_PIXELS


@cache
def _formats() -> list[str]:
    """Return the formats that this installation of Pillow reads."""
    Image.init()
    return [name for name in _FORMATS if name in Image.OPEN]


class Header(NamedTuple):
    """What a file says of its image: width and height, as rotation leaves them, and what decoding will change.

    `turned`: whether its EXIF data turn it; that of a PNG may be behind its pixels, and does not count here. `alpha`:
    whether pixels may be transparent.
    """

    size: tuple[int, int]
    grey: bool
    turned: bool
    alpha: bool


def header(file: str) -> Header:
    """Return what a file says of its image; its pixels are not decoded."""
    with open_image(file) as image:
        turned = image.format != "PNG" and _orientation(image) > 1
        return Header(upright_size(image), is_grey(image), turned, image.has_transparency_data)


def upright(image: Image.Image) -> Image.Image:
    """Return a decoded image turned as its EXIF data says."""
    image.load()
    return ImageOps.exif_transpose(image) if _orientation(image) > 1 else image


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return the width and height of `upright(image)`, without decoding it."""
    width, height = image.size
    # Pillow looks for the EXIF data of a PNG behind its pixels, and would decode those first.
    turns = width != height and image.format != "PNG" and _orientation(image) >= 5
    return (height, width) if turns else (width, height)


def is_grey(image: Image.Image) -> bool:
    """Whether an image has one channel of brightness."""
    return image.mode in _GREY_MODES


def _orientation(image: Image.Image) -> int:
    """Return how a camera was held, 1 to 8, by EXIF; 5 and more exchange width and height, others say nothing."""
    try:
        said = int(image.getexif().get(_ORIENTATION, 1))
        return said if 1 <= said <= 8 else 1
    except Exception:  # damaged metadata fails in any way there is, and does no harm to the pixels
        return 1


def _flattened(image: Image.Image) -> Image.Image:
    """Return an image without transparency and without values of more than 8 bits."""
    if image.mode in _DEEP_MODES:
        return _eight_bits(image)
    if image.mode == "F":
        raise DataError("Its pixels are floats, whose range is not known.")
    if not image.has_transparency_data:
        return image
    layer = image.convert("RGBA")
    white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, layer).convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    values: NDArray[Any] = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise DataError(f"Its pixels are {values.min()} to {values.max()}, whose range is not known.")
    return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))
