"""Image sets from arrays: in memory, in `.npz` archives, or memory-mapped from `.npy` files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from torch import Tensor

from shiftproof.data.contents import digests
from shiftproof.data.images.decoding import Color, Decoder, Size
from shiftproof.data.images.imageset import ImageSet
from shiftproof.data.images.mask_values import MaskRules, PaletteLike, map_values, refuse_map_options
from shiftproof.data.images.maskset import make_mask_set
from shiftproof.data.images.source import ImageSource, Pixels, describe
from shiftproof.data.labels import Numbering, number_given
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.runs.files import is_file

_CHUNK = 2**26  # bytes looked at or hashed at a time
_EXPECTED = "images [N, H, W, 3], [N, H, W, 1] or [N, H, W], uint8 or float in [0, 1]"


class ArraySource(ImageSource):
    """Images of an array, [N, H, W, C] or [N, C, H, W], uint8 or float in [0, 1]; it may be memory-mapped."""

    def __init__(self, images: NDArray[Any], *, channels_last: bool, decoder: Decoder) -> None:
        self._images = images
        self._channels_last = channels_last
        self._decoder = decoder
        self.size = decoder.size
        self.decoding = f"{images.dtype} {decoder}"
        self._spread = decoder.channels == 3 and images.shape[3 if channels_last else 1] == 1
        self.value_bytes = 1 if images.dtype == np.uint8 else 4
        height, width = images.shape[1:3] if channels_last else images.shape[2:4]
        width, height = decoder.output_size((width, height))
        self._resizes = (height, width) != (images.shape[1:3] if channels_last else images.shape[2:4])
        self.shape = (decoder.channels, height, width)

    def __len__(self) -> int:
        return len(self._images)

    def read(self, rows: Sequence[int]) -> Pixels:
        """Return rows as they are stored, brought to size and colour."""
        array = self._images[list(rows)]
        images = torch.from_numpy(array if array.dtype == np.uint8 else array.astype(np.float32))
        if self._channels_last:
            images = images.permute(0, 3, 1, 2)
        if self._resizes:
            images = torch.stack([self._fit(image) for image in images])
        if self._spread:
            images = images.expand(-1, 3, -1, -1)
        return Pixels(images.contiguous(), list(range(len(rows))), [])

    def make_contents(self) -> Tensor:
        """Digest every byte of every image, channels first."""
        shape = repr((*self._images.shape[1:], self._channels_last)).encode()
        rows = (image.transpose(2, 0, 1) if self._channels_last else image for image in self._images)
        return digests(shape + row.tobytes() for row in rows)

    def _fit(self, image: Tensor) -> Tensor:
        """Resize channel by channel, so that floats keep their precision."""
        fitted = [np.array(self._decoder.fit(Image.fromarray(channel.numpy()))) for channel in image]
        return torch.from_numpy(np.stack(fitted).clip(0, 1 if self.value_bytes == 4 else 255))


def from_arrays(
    images: ArrayLike | Tensor,
    labels: ArrayLike | Tensor | None = None,
    *,
    name: str = "arrays",
    classes: str | Path | Sequence[str] = "auto",
    size: Size | None = None,
    color: Color | None = None,
    numbering: Numbering | None = None,
    notes: Sequence[str] = (),
    ignore_label: int | None = None,
    palette: PaletteLike = None,
) -> ImageSet:
    """Return a set of the images of an array.

    Arrays are read as [N, H, W, C] or [N, H, W], tensors as [N, C, H, W]; where only the other order leaves 1 or 3
    channels, that is meant. One channel stays one, unless `color="rgb"`.
    """
    array, channels_last = check_images(images)
    channels = array.shape[3 if channels_last else 1]
    if color == "gray" and channels == 3:
        raise DataError("The images are in colour.", expected="one channel, as color='gray' says", got="3 channels")
    decoder = Decoder(color or ("rgb" if channels == 3 else "gray"), size)
    source = ArraySource(array, channels_last=channels_last, decoder=decoder)
    if _are_maps(labels, len(array)):
        maps = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
        values = [map_values(one, size, f"image {row}") for row, one in enumerate(maps)]
        return make_mask_set(
            source, values, MaskRules().changed(classes, ignore_label, palette), name=name, notes=notes
        )
    refuse_map_options(ignore_label, palette)
    numbers, naming = number_given(labels, len(array), classes, numbering)
    return ImageSet(
        source,
        name=name,
        labels=numbers,
        classes=naming.classes,
        numbering=naming.numbering,
        notes=(*notes, *naming.notes),
    )


def _are_maps(labels: Any, images: int) -> bool:
    """Whether labels are a label map for each image."""
    try:
        return labels is not None and np.ndim(labels) == 3 and len(labels) == images
    except ValueError:  # lists of different lengths
        return False


def load_array_file(
    path: Path,
    *,
    labels: ArrayLike | Tensor | str | Path | None = None,
    split: str | None = None,
    **options: Any,
) -> ImageSet:
    """Return the set of an `.npz` or `.npy` file.

    An archive holds `images` or `x` and, with labels, `labels` or `y`; with parts, `x_test` and the like (`split`,
    without one `test`). An `.npy` of images is memory-mapped; its labels are in `labels`, or in a file beside it:
    `labels.npy`, or `x_labels.npy` for `x_data.npy`.
    """
    found: NDArray[Any] | None = None
    if path.suffix == ".npz":
        images, found = _read_archive(path, split)
    elif split is not None:
        raise ConfigurationError(
            f"{str(path)!r} has no parts.", got=f"split={split!r}", fix="leave split out, or give an .npz file"
        )
    else:
        images = read_array(path)
        labels = labels_beside(path) if labels is None else labels
    if isinstance(labels, str | Path):
        if not is_file(labels):
            raise DataError(f"There is no file of labels {str(labels)!r}.", expected="an .npy file of whole numbers")
        labels = read_array(Path(labels))
    return from_arrays(images, found if labels is None else labels, name=path.stem, **options)


def labels_beside(path: Path) -> Path | None:
    """Return the file of labels that belongs to a file of images, by its name."""
    own = path.with_name(f"{path.stem.removesuffix('data')}labels.npy")
    return next((file for file in (own, path.with_name("labels.npy")) if file.is_file() and file != path), None)


def read_array(path: Path) -> NDArray[Any]:
    """Return the array of an `.npy` file, memory-mapped; pickled objects are refused."""
    try:
        array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # damaged files fail in any way there is
        raise _unreadable(path, error) from error
    return array


def _read_archive(path: Path, split: str | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return the images of an archive, and the labels where it has any."""
    part = split or "test"
    forms = ["{name}_{part}", "{part}_{name}"] if split else ["{name}", "{name}_{part}", "{part}_{name}"]
    image_names = [form.format(name=name, part=part) for form in forms for name in ("images", "x")]
    label_names = [form.format(name=name, part=part) for form in forms for name in ("labels", "y")]
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            held = list(archive)
            images = next((archive[name] for name in image_names if name in held), None)
            labels = next((archive[name] for name in label_names if name in held), None)
    except Exception as error:  # damaged files fail in any way there is
        raise _unreadable(path, error) from error
    if images is None:
        raise DataError(
            f"There are no images in {str(path)!r}.",
            expected=f"an array named {' or '.join(image_names)}",
            got=", ".join(held) or "an empty archive",
        )
    return images, labels


def _unreadable(path: Path, error: Exception) -> DataError:
    expected = "numbers that numpy saved; files with pickled objects are not read"
    return DataError(f"Cannot read the arrays of {str(path)!r}.", expected=expected, got=describe(error))


def check_images(images: ArrayLike | Tensor) -> tuple[NDArray[Any], bool]:
    """Return images as an array of four dimensions and whether channels come last, or refuse them."""
    tensor = isinstance(images, Tensor)
    array = images.detach().cpu().numpy() if isinstance(images, Tensor) else np.asarray(images)
    got = f"{array.dtype} array of shape {array.shape}"
    if array.ndim == 3:
        array, tensor = array[..., None], False
    if array.ndim != 4 or not array.size:
        raise DataError("This is not a set of images.", expected=_EXPECTED, got=got)
    last, first = array.shape[3] in (1, 3), array.shape[1] in (1, 3)
    if not last and not first:
        fix = "drop an alpha channel with images[..., :3]"
        raise DataError("Images need 1 or 3 channels.", expected=_EXPECTED, got=got, fix=fix)
    if array.dtype.kind == "f":
        low = np.min([part.min() for part in _parts(array)])
        high = np.max([part.max() for part in _parts(array)])
        if not (low >= 0 and high <= 1):  # also catches NaN
            fix = (
                "values of 0..255 go in as uint8; leave Normalize out of the transform: normalisation belongs into the "
                "model (--mean and --std, mean= and std= of load_model)"
            )
            raise DataError(
                "Image values are outside [0, 1].", expected=_EXPECTED, got=f"values {low:.4g} to {high:.4g}", fix=fix
            )
    elif array.dtype != np.uint8:
        raise DataError("Images have the wrong type of number.", expected=_EXPECTED, got=got)
    return array, last and not (tensor and first)


def _parts(array: NDArray[Any]) -> list[NDArray[Any]]:
    """Cut an array into runs of images of bounded size."""
    step = max(1, _CHUNK // max(1, array[:1].nbytes))
    return [array[start : start + step] for start in range(0, len(array), step)]
