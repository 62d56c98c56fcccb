"""Image sets from pictures that are objects: PIL images, arrays, tensors and encoded bytes, with labels or without."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from shiftproof.data.base import BadFile, OnBadFile
from shiftproof.data.contents import digests
from shiftproof.data.images.arrays import ArraySource, check_images
from shiftproof.data.images.decoded_files import decode_file
from shiftproof.data.images.decoding import Color, Decoder, Size, is_image_name
from shiftproof.data.images.imageset import ImageSet
from shiftproof.data.images.levels import unit
from shiftproof.data.images.mask_values import MaskRules, PaletteLike, is_map, map_values, refuse_map_options
from shiftproof.data.images.maskset import make_mask_set
from shiftproof.data.images.source import DecodedSource, describe, sizes_differ, unreadable
from shiftproof.data.labels import number_labels
from shiftproof.errors import DataError, ShiftproofError

Sample: TypeAlias = tuple[Any, Any]
"""A picture and its label, or None."""


class Samples(Protocol):
    """Pictures with labels, by row; each may be made when it is asked for."""

    def __len__(self) -> int:
        """Return how many there are."""

    def __getitem__(self, row: int, /) -> Sample:
        """Return one."""


def is_picture(value: object) -> bool:
    """Whether a value is one image: a file's name, its bytes, a PIL image, or an array or tensor of one image."""
    if isinstance(value, Mapping):
        return {"bytes", "path"} <= value.keys()  # as Hugging Face's data sets hold them in tables
    if isinstance(value, np.ndarray | Tensor):
        return value.ndim in (2, 3)
    return isinstance(value, bytes | Image.Image) or is_image_name(value)


def pixels(picture: Any, color: Color | None, size: Size | None) -> NDArray[Any]:
    """Return an image as uint8 or float32 in [0, 1], [H, W, C]; an array of one channel stays one unless told."""
    if isinstance(picture, np.ndarray | Tensor):
        array, last = check_images(picture[None])
        own: Color = "rgb" if array.shape[3 if last else 1] == 3 else "gray"
        if (color, own) == ("gray", "rgb"):
            raise DataError("The images are in colour.", expected="one channel, as color='gray' says", got="3 channels")
        source = ArraySource(array, channels_last=last, decoder=Decoder(color or own, size))
        return source.read([0]).images[0].permute(1, 2, 0).numpy()
    decoder = Decoder(color or "rgb", size)
    if isinstance(picture, Mapping):
        picture = picture["path"] if picture["bytes"] is None else picture["bytes"]
    if isinstance(picture, Image.Image):
        return decoder.pixels(picture)
    if isinstance(picture, bytes):
        return decoder(io.BytesIO(picture))
    if isinstance(picture, str | Path):
        return decode_file(str(picture), decoder)
    raise DataError(
        "This is not an image.",
        expected="a PIL image, an array [H, W, C], a tensor [C, H, W], a path, or the bytes of an image file",
        got=f"a {type(picture).__name__}" + (f" of shape {tuple(picture.shape)}" if hasattr(picture, "shape") else ""),
    )


class PictureSource(DecodedSource):
    """Pictures by row, of one shape; each is made anew when it is read."""

    def __init__(self, samples: Samples, color: Color | None, size: Size | None) -> None:
        self._samples, self._color, self.size = samples, color, size
        self._rows: list[int] = []
        self._contents: list[Tensor] = []
        self.decoding = f"pictures {color} {size}"
        self.bad: list[BadFile] = []
        self.labels: list[Any] = []
        for row in range(len(samples)):
            self._look(row)
        if not self._rows:
            raise DataError(
                "There are no images that can be read.",
                expected="one image or more",
                got=f"{self.bad[0].file}: {self.bad[0].reason}" if self.bad else "none",
            )

    def _look(self, row: int) -> None:
        """Read an image once: its shape, its content and its label."""
        picture, label = self._samples[row]
        try:
            image = pixels(picture, self._color, self.size)
        except Exception as error:  # the decoders of damaged files fail in any way there is
            if isinstance(error, ShiftproofError) and not isinstance(picture, str | Path | bytes | Mapping):
                raise  # the same is wrong with all of them
            self.bad.append(BadFile(f"row {row}", describe(error)))
            return
        height, width, channels = image.shape
        if not self._rows:
            self.shape = (channels, height, width)
        elif (channels, height, width) != self.shape:
            raise sizes_differ((self.name(0), self.shape[:0:-1]), (f"row {row}", (width, height)))
        if image.dtype != np.uint8:
            self.value_bytes = 4
        self._rows.append(row)
        self._contents.append(digests([repr((image.shape, str(image.dtype))).encode() + image.tobytes()]))
        self.labels.append(label)

    def __len__(self) -> int:
        return len(self._rows)

    def name(self, row: int) -> str:
        """Name an image by its row."""
        return f"row {self._rows[row]}"

    def decode(self, row: int) -> NDArray[Any]:
        """Return one image, [H, W, C], in the numbers of all of them."""
        image = pixels(self._samples[self._rows[row]][0], self._color, self.size)
        return image if image.dtype != np.uint8 or self.value_bytes == 1 else unit(torch.from_numpy(image)).numpy()

    def make_contents(self) -> Tensor:
        """Return the digests of the images as they were first read."""
        return torch.cat(self._contents)


def from_samples(
    samples: Samples,
    *,
    name: str,
    names: Sequence[str] | None = None,
    classes: str | Path | Sequence[str] = "auto",
    size: Size | None = None,
    color: Color | None = None,
    on_bad_file: OnBadFile = "fail",
    notes: Sequence[str] = (),
    ignore_label: int | None = None,
    palette: PaletteLike = None,
) -> ImageSet:
    """Return a set of pictures; `names` are class names that belong to labels which are numbers.

    Labels that are maps, arrays [H, W] or PIL images, make a set for segmentation.
    """
    source = PictureSource(samples, color, size)
    if source.bad and on_bad_file == "fail":
        raise unreadable(*source.bad[0])
    if any(map(is_map, source.labels)):
        maps = [map_values(label, size, source.name(row)) for row, label in enumerate(source.labels)]
        rules = MaskRules(classes=tuple(names or ())).changed(classes, ignore_label, palette)
        given = {"notes": notes, "on_bad_file": on_bad_file, "bad_files": source.bad}
        return make_mask_set(source, maps, rules, name=name, **given)
    refuse_map_options(ignore_label, palette)
    labels, naming = number_labels(source.labels, classes, names)
    return ImageSet(
        source,
        name=name,
        labels=labels,
        classes=naming.classes,
        numbering=naming.numbering,
        notes=[*naming.notes, *notes],
        on_bad_file=on_bad_file,
        bad_files=source.bad,
    )
