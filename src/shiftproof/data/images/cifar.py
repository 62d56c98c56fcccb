"""CIFAR-10 and CIFAR-100 in the file layouts their authors publish: pickled for Python, and binary.

Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images". An image is 3072 bytes: red, green, blue,
each 32 rows of 32. The pickles are read by a reader that makes plain values and notes what arrays hold; it calls
nothing that a file names.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftproof.data.images.arrays import from_arrays
from shiftproof.data.images.imageset import ImageSet
from shiftproof.errors import DataError

_VALUES = 3 * 32 * 32


@dataclass(frozen=True)
class Layout:
    """Where a published layout keeps what: files by split, and where labels and class names are."""

    name: str
    folder: str
    files: Mapping[str, Sequence[str]]
    names_file: str
    names_key: bytes = b""
    labels_key: bytes = b""
    label_bytes: int = 0

    def fits(self, folder: Path) -> bool:
        """Whether a folder holds this layout, in part at least."""
        return (folder / self.names_file).is_file() and any(
            (folder / file).is_file() for files in self.files.values() for file in files
        )


_TEN = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
_HUNDRED = {"train": ["train"], "test": ["test"]}
_BINARY_TEN = {split: [f"{file}.bin" for file in files] for split, files in _TEN.items()}
_BINARY_HUNDRED = {split: [f"{file}.bin" for file in files] for split, files in _HUNDRED.items()}

LAYOUTS = (
    Layout("CIFAR-10", "cifar-10-batches-py", _TEN, "batches.meta", b"label_names", b"labels"),
    Layout("CIFAR-100", "cifar-100-python", _HUNDRED, "meta", b"fine_label_names", b"fine_labels"),
    Layout("CIFAR-10", "cifar-10-batches-bin", _BINARY_TEN, "batches.meta.txt", label_bytes=1),
    # A coarse label, then the fine one, which is the class.
    Layout("CIFAR-100", "cifar-100-binary", _BINARY_HUNDRED, "fine_label_names.txt", label_bytes=2),
)


def find_layout(folder: Path) -> tuple[Layout, Path] | None:
    """Return the published layout that a folder, or a folder of its published name inside, holds."""
    for layout in LAYOUTS:
        for place in (folder, folder / layout.folder):
            if layout.fits(place):
                return layout, place
    return None


def load_cifar(
    layout: Layout,
    folder: Path,
    *,
    split: str | None = None,
    classes: str | Path | Sequence[str] = "auto",
    **options: Any,
) -> ImageSet:
    """Return the images of a split, `test` where none is named."""
    split = split or "test"
    if split not in layout.files:
        raise DataError(f"{layout.name} has no split {split!r}.", expected=f"split= {' or '.join(layout.files)}")
    parts = []
    for file in layout.files[split]:
        if not (folder / file).is_file():
            raise DataError(
                f"{layout.name} is not complete: {file} is missing from {str(folder)!r}.",
                expected=", ".join(layout.files[split]),
                fix="unpack the published archive again",
            )
        parts.append(_binary(folder / file, layout) if layout.label_bytes else _pickled(folder / file, layout))
    images = np.concatenate([part for part, _ in parts]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    labels = np.concatenate([part for _, part in parts])
    own = classes in ("auto", "sorted")
    return from_arrays(
        images,
        labels,
        name=f"{layout.name} {split}",
        classes=_class_names(folder / layout.names_file, layout) if own else classes,
        numbering="own" if own else "given",
        **options,
    )


def _binary(path: Path, layout: Layout) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    row = layout.label_bytes + _VALUES
    content = np.fromfile(path, np.uint8)
    if not content.size or content.size % row:
        raise DataError(
            f"{str(path)!r} is not in {layout.name}'s binary layout.",
            expected=f"rows of {row} bytes",
            got=f"{content.size} bytes",
        )
    rows = content.reshape(-1, row)
    return rows[:, layout.label_bytes :], rows[:, layout.label_bytes - 1].astype(np.int64)


def _pickled(path: Path, layout: Layout) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    content = read_pickle(path)
    images, labels = content.get(b"data"), content.get(layout.labels_key)
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (_VALUES,):
        raise _not_the_layout(path, "no uint8 array 'data' with rows of 3072")
    if not isinstance(labels, list) or len(labels) != len(images) or not all(isinstance(x, int) for x in labels):
        raise _not_the_layout(path, f"no list {layout.labels_key.decode()!r} with one number per image")
    return images, np.array(labels, np.int64)


def _class_names(path: Path, layout: Layout) -> list[str]:
    if layout.label_bytes:
        return path.read_text("utf-8", "replace").split()
    names = read_pickle(path).get(layout.names_key)
    if not isinstance(names, list) or not all(isinstance(name, bytes) for name in names):
        raise _not_the_layout(path, f"no list {layout.names_key.decode()!r} of names")
    return [name.decode("utf-8", "replace") for name in names]


def read_pickle(path: Path) -> dict[bytes, Any]:
    """Return the dictionary of arrays and plain values in a pickle, and refuse a pickle that holds anything else."""
    try:
        held = path.read_bytes()
        _check_memory(held)
        content = _PlainUnpickler(io.BytesIO(held), encoding="bytes").load()
        if isinstance(content, dict):
            content = {key: value.array() if isinstance(value, _Array) else value for key, value in content.items()}
    except pickle.UnpicklingError as error:
        raise _not_the_layout(path, str(error)) from error
    except Exception as error:  # a damaged pickle fails in any way there is
        raise _not_the_layout(path, f"{type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise _not_the_layout(path, f"a {type(content).__name__}")
    return {key.encode() if isinstance(key, str) else key: _as_bytes(value) for key, value in content.items()}


def _check_memory(held: bytes) -> None:
    """Refuse a pickle that numbers its objects beyond its own length: room for all of them would be made."""
    for code, argument, _ in pickletools.genops(held):
        if code.name in ("PUT", "LONG_BINPUT") and int(argument or 0) > len(held):
            raise pickle.UnpicklingError(f"it wants room for {argument} objects")


class _PlainUnpickler(pickle.Unpickler):
    """Reads containers, numbers, texts and what arrays hold; any other class or function in a pickle is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for one of the four callables that arrays are pickled with."""
        if (module, name) in (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")):
            return _Array
        if (module, name) == ("numpy", "ndarray"):
            return None  # an argument of the above
        if (module, name) == ("numpy", "dtype"):
            return _Kind
        if (module, name) == ("_codecs", "encode"):
            return _encode_latin
        raise pickle.UnpicklingError(f"it wants to call {module}.{name}, which no published file does; it was not run")


class _Kind:
    """Stands for an array's type of number while a pickle is read."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        """Leave the order of bytes alone: a byte has none."""


class _Array:
    """Stands for an array of bytes while a pickle is read, and makes it from what was noted."""

    def __init__(self, *_: object) -> None:
        self.state: Any = ()

    def __setstate__(self, state: object) -> None:
        self.state = state

    def array(self) -> NDArray[np.uint8]:
        """Return the array; what is none, or holds anything but bytes, raises."""
        _, shape, kind, columns_first, content = self.state
        if not isinstance(kind, _Kind) or kind.code not in ("u1", b"u1") or columns_first:
            raise pickle.UnpicklingError("an array of something other than bytes, row by row")
        return np.frombuffer(content, np.uint8).reshape(shape)


def _encode_latin(text: str, encoding: str) -> bytes:
    """Make bytes as Python 3 pickles them for Python 2: latin-1 and nothing else."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"it wants to encode text as {encoding!r}; it was not run")
    return text.encode("latin-1")


def _as_bytes(value: Any) -> Any:
    """Return a list of texts as a list of bytes, as the published files have it."""
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return [item.encode() for item in value]
    return value


def _not_the_layout(path: Path, got: str) -> DataError:
    return DataError(
        f"{str(path)!r} is not a published CIFAR file.",
        expected="a pickle of arrays and lists, as published",
        got=got,
        fix="unpack the published archive again",
    )
