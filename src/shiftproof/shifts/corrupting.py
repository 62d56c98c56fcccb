"""The drop-in: corrupt what a user has, a Pillow image, an array or a tensor, and give back the same kind of thing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from shiftproof.data.contents import content_keys, text_keys
from shiftproof.errors import DataError
from shiftproof.shifts.base import Shift
from shiftproof.shifts.catalogue import as_image_shift, as_shift
from shiftproof.shifts.image_shift import SMALLEST_SIDE
from shiftproof.shifts.text.base import TextShift, check_texts

Images = TypeVar("Images", bound="Image.Image | NDArray[Any] | Tensor | str | list[Any] | tuple[str, str]")
Restore = Callable[[Tensor], Any]

_VALUES = "uint8 or floats in [0, 1]"
_ARRAY = f"an array H x W, H x W x C or N x H x W x C, with C = 1 or 3, {_VALUES}"
_TENSOR = f"a tensor H x W, C x H x W or N x C x H x W, with C = 1 or 3, {_VALUES}"


def corrupt(
    x: Images, shift: str | Shift, *, seed: int = 0, keys: int | Sequence[int] | NDArray[Any] | Tensor | None = None
) -> Images:
    """Return a corrupted copy of an image or a batch, of the kind, shape, dtype and device that came.

    `x` is one of

    * a Pillow image: L or RGB; LA and RGBA keep their alpha channel as it is;
    * an array, whose channels come last: H x W, H x W x C, or a batch N x H x W x C;
    * a tensor, whose channels come first: H x W, C x H x W, or a batch N x C x H x W;
    * for a text shift such as `typos@3`, a text, a pair of texts, or a list of either.

    Arrays and tensors hold uint8 or floats in [0, 1]. Their order of axes is never guessed: a 3 x 32 x 32 array is
    refused, and a 3 x 32 x 32 tensor is an image. `shift` is a text, such as `fog@3`, `contrast=0.8` or
    `fog@3 + jpeg_compression@2`, or a shift, such as `shifts.corruption("fog", 3, preset="cifar")`. Results lie on the
    256 levels of stored images.

    `keys` are whole numbers, one per image, that decide with the seed what is drawn for it. Without them an image's key
    is a hash of its pixels at those levels. So an image gets the same draws alone, in a batch and in any order, as an
    array, a tensor or a Pillow image; other images get others; and equal images are corrupted equally.

    >>> image = np.full((32, 32, 3), 128, np.uint8)
    >>> foggy = corrupt(image, "fog@3", seed=0)
    >>> foggy.shape, foggy.dtype, bool((foggy != image).any())
    ((32, 32, 3), dtype('uint8'), True)
    """
    chosen = as_shift(shift)
    if isinstance(chosen, TextShift):
        edited: Images = _corrupt_texts(x, chosen, seed, keys)
        return edited
    image_shift = as_image_shift(chosen)
    images, restore = _read(x)
    named = [keys] if isinstance(keys, int) else keys
    rows = content_keys(images) if named is None else torch.as_tensor(named, dtype=torch.int64)
    shift_images = image_shift.on_bytes if images.dtype == torch.uint8 else image_shift
    shifted = shift_images(images, rows, seed=seed)
    made: Images = restore(shifted) if chosen.severity else _copy(x)  # nothing is lost to float32 where nothing happens
    return made


@dataclass(frozen=True)
class Transform:
    """A shift as a step of a data set's pipeline: `Transform("fog@3")(image)` is `corrupt(image, "fog@3")`.

    It holds no state and pickles. What it draws depends on the image's content, so that an image is corrupted alike in
    every worker and every epoch; `dataclasses.replace(transform, seed=epoch)` draws anew.

    >>> grey = Transform("grayscale")(torch.rand(3, 32, 32))
    >>> grey.shape, torch.equal(grey[0], grey[2])
    (torch.Size([3, 32, 32]), True)
    """

    shift: str | Shift
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shift", as_shift(self.shift))

    def __call__(self, image: Images) -> Images:
        """Return a corrupted copy of what `corrupt` takes."""
        return corrupt(image, self.shift, seed=self.seed)

    def __str__(self) -> str:
        return str(self.shift)


def _corrupt_texts(x: Any, shift: TextShift, seed: int, keys: Any) -> Any:
    """Return a text, or a list of texts, after a shift; without keys, a text's key is a hash of its content."""
    texts = x if isinstance(x, list) else [x]
    check_texts(texts)
    named = text_keys(texts) if keys is None else [keys] if isinstance(keys, int) else keys
    made = shift(texts, named, seed=seed)
    return made if isinstance(x, list) else made[0]


def _read(x: Any) -> tuple[Tensor, Restore]:
    """Return images as uint8 or float32 N x C x H x W, and what makes the kind of thing that came of such images."""
    if isinstance(x, Image.Image):
        return _read_pillow(x)
    if isinstance(x, np.ndarray):
        return _read_array(x)
    if isinstance(x, Tensor):
        return _read_tensor(x)
    fix = "corrupt images of different sizes one at a time" if isinstance(x, list | tuple) else "np.asarray(x)"
    expected = f"a Pillow image; {_ARRAY}; or {_TENSOR}"
    raise DataError("This is not an image.", expected=expected, got=f"a {type(x).__name__}", fix=fix)


def _copy(x: Any) -> Any:
    return x.detach().clone() if isinstance(x, Tensor) else x.copy()


def _read_pillow(image: Image.Image) -> tuple[Tensor, Restore]:
    modes = {"L": "L", "RGB": "RGB", "LA": "L", "RGBA": "RGB"}
    if image.mode not in modes:
        raise DataError(
            f"Images of mode {image.mode!r} cannot be corrupted.",
            expected=f"a Pillow image of mode {', '.join(modes)}",
            got=f"mode {image.mode}",
            fix="image.convert('RGB')",
        )
    images, restore = _read_array(np.asarray(image.convert(modes[image.mode])))

    def back(shifted: Tensor) -> Image.Image:
        made = Image.fromarray(restore(shifted))
        if image.mode != made.mode:
            made.putalpha(image.getchannel("A"))
        made.info = dict(image.info)
        return made

    return images, back


def _read_array(array: NDArray[Any]) -> tuple[Tensor, Restore]:
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise _wrong_type(_ARRAY, f"{array.dtype} array of shape {array.shape}")
    plain = np.array(array, np.uint8 if array.dtype == np.uint8 else np.float32, order="C")
    last = plain[..., None] if plain.ndim == 2 else plain
    if last.ndim not in (3, 4) or last.shape[-1] not in (1, 3):
        raise _wrong_shape(array.shape, "array")
    images, restore = _read_tensor(torch.from_numpy(np.moveaxis(last, -1, -3)))

    def back(shifted: Tensor) -> NDArray[Any]:
        made: NDArray[Any] = restore(shifted).numpy()
        return np.moveaxis(made, -3, -1).reshape(array.shape).astype(array.dtype)

    return images, back


def _read_tensor(tensor: Tensor) -> tuple[Tensor, Restore]:
    if tensor.dtype != torch.uint8 and not tensor.is_floating_point():
        raise _wrong_type(_TENSOR, f"{str(tensor.dtype).removeprefix('torch.')} tensor of shape {tuple(tensor.shape)}")
    if tensor.ndim not in (2, 3, 4) or (tensor.ndim > 2 and tensor.shape[-3] not in (1, 3)):
        raise _wrong_shape(tuple(tensor.shape), "tensor")
    batch = tensor.detach()[(None,) * (4 - tensor.ndim)]

    def back(shifted: Tensor) -> Tensor:
        made = shifted.view(tensor.shape)
        if tensor.is_contiguous() and made.dtype == tensor.dtype:
            return made
        return torch.empty_like(tensor).copy_(made)  # its layout and dtype too

    if tensor.dtype == torch.uint8:
        return batch, back
    if tensor.numel():
        low, high = (bound.item() for bound in torch.aminmax(batch))
        if not (low >= 0.0 and high <= 1.0):  # also catches NaN
            got = "NaN" if math.isnan(low) else f"{low:.4g} to {high:.4g}"
            fix = "values of 0..255 go in as uint8; corrupt images before they are normalised"
            raise DataError("Image values leave [0, 1].", expected=_VALUES, got=f"values {got}", fix=fix)
    return batch.float(), back


def _wrong_type(expected: str, got: str) -> DataError:
    fix = "x.astype(np.uint8) where values are 0..255, x / x.max() where they are not"
    return DataError("Images need another type of number.", expected=expected, got=got, fix=fix)


def _wrong_shape(shape: tuple[int, ...], kind: str) -> DataError:
    """Return the error for axes that are not an image's, with what would make them so."""
    array = kind == "array"
    channels, other = (-1, -3) if array else (-3, -1)
    fixes = []
    if len(shape) in (3, 4) and shape[other] in (1, 3):
        move = "np.moveaxis" if array else "torch.movedim"
        fixes.append(f"{move}(x, {other}, {channels}) puts the channels {'last' if array else 'first'}")
    if len(shape) in (3, 4) and shape[channels] in (2, 4):
        fixes.append(f"{'x[..., :-1]' if array else 'x[..., :-1, :, :]'} drops an alpha channel")
    if len(shape) == 3 and min(shape[1:]) >= SMALLEST_SIDE:
        fixes.append(f"{'x[..., None]' if array else 'x[:, None]'} makes a batch of grey images")
    return DataError(
        "This is not an image or a batch of images.",
        expected=_ARRAY if array else _TENSOR,
        got=f"{kind} of shape {shape}",
        **({"fix": "; ".join(fixes)} if fixes else {}),
    )
