"""One image file to pixels and back: grey stays grey, 16 bits stay 16 bits, and what is transparent stays so.

* EXIF rotation is applied, and the copy has no EXIF data.
* Palette, CMYK, YCbCr and LAB images become RGB; black and white becomes grey. Of an animation, the first frame counts.
* Greyscale of 16 bits is kept. Colours of 16 bits, of which Pillow reads 8, are refused, and so are numbers of more
  bits and floats, whose range is not known.
* With a color, or as JPEG, files are what `load_data` makes of them: 8 bits, and transparent pixels laid on white.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftproof.data.images.decoding import Color, Decoder, Size, is_grey, open_image, upright, upright_size
from shiftproof.errors import DataError
from shiftproof.shifts.image_shift import SMALLEST_SIDE

ALPHA_FORMATS = ("PNG", "TIFF", "WEBP", "JPEG2000", "AVIF", "GIF")
FULL_COLOURS = 90
"""JPEG files of this quality and more keep a colour for every pixel (4:4:4), others one for four (4:2:0)."""


class FilePixels(NamedTuple):
    """The pixels of a file: `values` uint8 or uint16 [H, W, C] with C = 1 or 3, and its transparency [H, W] or None."""

    values: NDArray[np.uint8] | NDArray[np.uint16]
    alpha: NDArray[np.uint8] | None = None


class FileHeader(NamedTuple):
    """What a file's header says: how many values its pixels have, and whether they have 16 bits."""

    values: int
    deep: bool


class Reader(NamedTuple):
    """How files are read: as they are, or, with a color, as `load_data` reads them; `deep` keeps 16 bits."""

    color: Color | None = None
    size: Size | None = None
    deep: bool = True

    def look(self, path: Path) -> FileHeader:
        """Read a file's header; raise where its pixels cannot be used."""
        with open_image(path) as image:
            width, height = Decoder("rgb", self.size).output_size(upright_size(image))
            if min(width, height) < SMALLEST_SIDE:
                raise DataError(f"{width} x {height} pixels; sides of at least {SMALLEST_SIDE} can be corrupted")
            deep = self.color is None and self.deep and _is_deep(image)
            if deep and not is_grey(image):
                raise DataError("It has colours of 16 bits, of which Pillow reads 8; --color rgb takes those.")
            if self.color is None and (image.mode == "F" or (image.mode == "I" and not _is_deep(image))):
                kind = "floats" if image.mode == "F" else "32-bit numbers"
                raise DataError(f"Its pixels are {kind}, whose range is not known.")
            return FileHeader(3 * width * height, deep)

    def read(self, path: Path) -> FilePixels:
        """Return the pixels of a file."""
        with open_image(path) as image:
            grey, deep = is_grey(image), _is_deep(image)
            if self.color is not None or (deep and not self.deep):
                return FilePixels(Decoder(self.color or ("gray" if grey else "rgb"), self.size).pixels(image))
            plain, fit = upright(image), Decoder("rgb", self.size).fit
            if deep:
                return FilePixels(np.array(fit(Image.fromarray(np.asarray(plain).astype(np.uint16))))[:, :, None])
            if not plain.has_transparency_data:
                return FilePixels(_channels(fit(plain.convert("L" if grey else "RGB"))))
            whole = fit(plain.convert("LA" if grey else "RGBA"))
            return FilePixels(_channels(whole.convert("L" if grey else "RGB")), np.array(whole.getchannel("A")))


def encode(picture: FilePixels, suffix: str, quality: int) -> bytes:
    """Return pixels as the content of a file with a suffix; `quality` is for formats that lose some."""
    kind = Image.registered_extensions()[suffix.lower()]
    values, alpha = picture
    made = Image.fromarray(values[:, :, 0] if values.shape[2] == 1 else values)
    if alpha is not None:
        made.putalpha(Image.fromarray(alpha))
    if alpha is not None and kind not in ALPHA_FORMATS:
        made = Image.fromarray(Decoder("rgb").pixels(made))  # laid on white
    file = io.BytesIO()
    if kind == "PNG":  # it loses nothing at any level, and noise does not get smaller with more work
        made.save(file, kind, compress_level=1)
    elif kind == "JPEG":  # optimised as published; from a high quality on, with all of the colours that noise has
        made.save(file, kind, quality=quality, optimize=True, subsampling=0 if quality >= FULL_COLOURS else -1)
    else:
        made.save(file, kind, quality=quality)
    return file.getvalue()


def _is_deep(image: Image.Image) -> bool:
    """Whether an open image has 16 bits a channel in its file, also where Pillow would drop half of them."""
    tiles = getattr(image, "tile", ())  # of a file that is not decoded yet
    return any(";16" in str(tile.args) for tile in tiles) or image.mode.startswith("I;16")


def _channels(image: Image.Image) -> NDArray[np.uint8]:
    array = np.array(image)
    return array if array.ndim == 3 else array[:, :, None]
