"""The drop-in: corrupt what a user has, a Pillow image, an array or a tensor, and give back the same kind of thing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from shiftproof.data.contents import content_keys, text_keys
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.registry import unknown
from shiftproof.shifts.base import Shift
from shiftproof.shifts.catalogue import as_image_shift, as_shift, corruption, named_at, names
from shiftproof.shifts.image_shift import SMALLEST_SIDE, ImageShift
from shiftproof.shifts.moving import move_labels
from shiftproof.shifts.text.base import TextShift, check_texts
from shiftproof.shifts.tv import wrapped

Images = TypeVar("Images", bound="Image.Image | NDArray[Any] | Tensor | str | list[Any] | tuple[str, str]")
Restore = Callable[[Tensor], Any]

DEEPEST = 65535
_HIGHEST = "HIGHEST, the highest value of the scale: 4095 of 12 bits, not the image's own maximum"
_VALUES = "uint8 or floats in [0, 1]"
_ARRAY = f"an array H x W, H x W x C or N x H x W x C, with C = 1 or 3, uint16, {_VALUES}"
_TENSOR = f"a tensor H x W, C x H x W or N x C x H x W, with C = 1 or 3, {_VALUES}"


def corrupt(
    x: Images,
    shift: str | Shift | None = None,
    severity: float | None = None,
    *,
    corruption_name: str | None = None,
    corruption_number: int | None = None,
    seed: int = 0,
    keys: int | Sequence[int] | NDArray[Any] | Tensor | None = None,
) -> Images:
    """Corrupt an image or a batch; the result has the type, shape, dtype and device of the input.

    `x` is one of

    * a Pillow image: L, RGB or I;16; of LA and RGBA the alpha channel stays, or moves with a shift that moves content;
    * an array, whose channels come last: H x W, H x W x C, or a batch N x H x W x C;
    * a tensor, whose channels come first: H x W, C x H x W, or a batch N x C x H x W; a `tv_tensors.Image` stays one;
    * for a text shift such as `typos@3`, a text, a pair of texts, or a list of either.

    Arrays and tensors hold uint8 or floats in [0, 1]; arrays also uint16. The order of axes is never guessed: a 3 x 32
    x 32 array is an error, and a 3 x 32 x 32 tensor is an image. Results are rounded to the 256 levels of 8-bit images;
    16-bit images keep their depth, and shifts that work on 256 levels do not accept them.

    Instead of a shift, `corruption_name` or `corruption_number` (0 to 18) and `severity` (default 1) have the meaning
    of the package `imagecorruptions`: ImageNet-C's severities at every image size.

    The random draws for an image depend on the seed and its key, by default a hash of its pixels. So an image is
    corrupted identically alone or in a batch, in any order, and as an array, a tensor or a Pillow image; different
    images get different draws, and identical images the same.

    Args:
        x: An image, a text, or a batch of either.
        shift: A shift, or its text form, such as `fog@3`, `contrast=0.8` or `fog@3 + jpeg_compression@2`; or a name,
            with `severity`.
        severity: Severity, if the shift is given by name only.
        corruption_name: Name in `imagecorruptions`, instead of a shift.
        corruption_number: Number in `imagecorruptions`, instead of a shift.
        seed: Seed of the random draws.
        keys: One integer per image. Default: a hash of its content.

    >>> image = np.full((32, 32, 3), 128, np.uint8)
    >>> foggy = corrupt(image, "fog@3", seed=0)
    >>> foggy.shape, foggy.dtype, bool((foggy != image).any())
    ((32, 32, 3), dtype('uint8'), True)
    """
    chosen = _chosen(shift, severity, corruption_name, corruption_number)
    if isinstance(chosen, TextShift):
        edited: Images = _corrupt_texts(x, chosen, seed, keys)
        return edited
    image_shift = as_image_shift(chosen)
    images, restore = _read(x)
    named = [keys] if isinstance(keys, int) else keys
    rows = content_keys(images) if named is None else torch.as_tensor(named, dtype=torch.int64)
    if images.dtype == torch.uint8:
        shifted = image_shift.on_bytes(images, rows, seed=seed)
    else:
        shifted = (image_shift.at_full_depth if _is_deep(x) else image_shift)(images, rows, seed=seed)
    if not chosen.severity:  # nothing is lost to float32 where nothing happens
        copy: Images = _copy(x)
        return copy
    made: Images = restore(shifted)
    if isinstance(x, Image.Image) and isinstance(made, Image.Image) and "A" in x.getbands():
        made.putalpha(_alpha(x, image_shift, rows, seed))
    return made


def image_keys(x: object) -> Tensor:
    """Return the keys that `corrupt` gives images by their content, [N]."""
    return content_keys(_read(x)[0])


def _chosen(shift: str | Shift | None, severity: float | None, name: str | None, number: int | None) -> Shift:
    """Return the one shift that is asked for, as a shift, as a name and a severity, or as `imagecorruptions` has it."""
    numbered = number is not None and number != -1  # what imagecorruptions has as the default
    if [shift is not None, name is not None, numbered].count(True) != 1:
        raise ConfigurationError(
            "Give exactly one corruption.",
            expected="a shift such as 'fog@3', or corruption_name='fog' or corruption_number=9 and a severity",
            got="none" if shift is name is None and not numbered else "several",
        )
    if shift is not None and severity is None:
        return as_shift(shift)
    if isinstance(shift, str):
        return named_at(shift, severity or 0.0)
    if shift is not None:
        raise ConfigurationError(
            "severity= cannot be combined with a shift that has one.", got=f"{shift!s:.60}, severity={severity}"
        )
    published = (*names("common"), *names("holdout"))
    if name is not None and name not in published:
        raise unknown("corruption", name, published)
    if name is None and not 0 <= (number or 0) < len(published):
        raise ConfigurationError(f"There is no corruption {number}.", expected=f"0 to {len(published) - 1}")
    return corruption(name or published[number or 0], 1.0 if severity is None else severity, preset="imagenet")


def _alpha(image: Image.Image, shift: ImageShift, keys: Tensor, seed: int) -> Image.Image:
    """Return the alpha channel of a Pillow image where its colours are after a shift, transparent outside."""
    alpha = image.getchannel("A")
    if not shift.moves:
        return alpha
    levels = torch.from_numpy(np.array(alpha))[None]
    return Image.fromarray(move_labels(shift, levels, keys, seed=seed, ignore=0)[0].numpy())


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


def _is_deep(x: object) -> bool:
    """Whether an image has 16 bits."""
    if isinstance(x, np.ndarray):
        return bool(x.dtype.kind == "u" and x.dtype.itemsize == 2)
    return isinstance(x, Image.Image) and x.mode.startswith("I;16")


def _copy(x: Any) -> Any:
    return x.detach().clone() if isinstance(x, Tensor) else x.copy()


def _read_pillow(image: Image.Image) -> tuple[Tensor, Restore]:
    modes = {"L": "L", "RGB": "RGB", "LA": "L", "RGBA": "RGB", "I;16": "I;16", "I;16B": "I;16B", "I;16L": "I;16L"}
    if image.mode not in modes:
        unbounded = image.mode in ("I", "F")  # convert('RGB') would clip them at 255
        raise DataError(
            f"Images of mode {image.mode!r} cannot be corrupted.",
            expected=f"a Pillow image of mode {', '.join(modes)}",
            got=f"mode {image.mode}",
            fix=f"np.asarray(image) / {_HIGHEST}" if unbounded else "image.convert('RGB')",
        )
    images, restore = _read_array(np.asarray(image if _is_deep(image) else image.convert(modes[image.mode])))

    def back(shifted: Tensor) -> Image.Image:
        made = Image.fromarray(restore(shifted))
        made.info = dict(image.info)
        return made

    return images, back


def _read_array(array: NDArray[Any]) -> tuple[Tensor, Restore]:
    deep = _is_deep(array)
    if array.dtype != np.uint8 and array.dtype.kind != "f" and not deep:
        raise _wrong_type(_ARRAY, f"{array.dtype} array of shape {array.shape}")
    plain = np.array(array, np.uint8 if array.dtype == np.uint8 else np.float32, order="C")
    if deep:
        np.divide(plain, np.float32(DEEPEST), out=plain)
    last = plain[..., None] if plain.ndim == 2 else plain
    if last.ndim not in (3, 4) or last.shape[-1] not in (1, 3):
        raise _wrong_shape(array.shape, "array")
    images, restore = _read_tensor(torch.from_numpy(np.moveaxis(last, -1, -3)))

    def back(shifted: Tensor) -> NDArray[Any]:
        made: NDArray[Any] = restore(shifted).numpy()
        last = np.moveaxis(made, -3, -1).reshape(array.shape)
        return (last * DEEPEST).round().astype(array.dtype) if deep else last.astype(array.dtype)

    return images, back


def _read_tensor(tensor: Tensor) -> tuple[Tensor, Restore]:
    if tensor.dtype != torch.uint8 and not tensor.is_floating_point():
        raise _wrong_type(_TENSOR, f"{str(tensor.dtype).removeprefix('torch.')} tensor of shape {tuple(tensor.shape)}")
    if tensor.ndim not in (2, 3, 4) or (tensor.ndim > 2 and tensor.shape[-3] not in (1, 3)):
        raise _wrong_shape(tuple(tensor.shape), "tensor")
    batch = tensor.detach()[(None,) * (4 - tensor.ndim)]

    def back(shifted: Tensor) -> Tensor:
        made = wrapped(shifted.view(tensor.shape), tensor)
        if tensor.is_contiguous() and made.dtype == tensor.dtype:
            return made
        return wrapped(torch.empty_like(tensor).copy_(made), tensor)  # its layout and dtype too

    if tensor.dtype == torch.uint8:
        return batch, back
    if tensor.numel():
        low, high = (bound.item() for bound in torch.aminmax(batch))
        if not (low >= 0.0 and high <= 1.0):  # also catches NaN
            got = "NaN" if math.isnan(low) else f"{low:.4g} to {high:.4g}"
            fix = "values of 0..255 go in as uint8; corrupt images before they are normalised"
            raise DataError("Image values are outside [0, 1].", expected=_VALUES, got=f"values {got}", fix=fix)
    return batch.float(), back


def _wrong_type(expected: str, got: str) -> DataError:
    fix = f"x.astype(np.uint8) where values are 0..255; otherwise x / {_HIGHEST}"
    return DataError("Images have the wrong type of number.", expected=expected, got=got, fix=fix)


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
