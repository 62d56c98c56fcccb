"""Builders of hostile and broken files, for the table of bad inputs and the fuzz targets."""

from __future__ import annotations

import ctypes
import io
import json
import os
import pickle
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SPRUNG = "sprung"
"""What a trap makes in the current folder when the pickle that holds it is run."""


class Trap:
    """An object whose pickle makes a folder where it is loaded without care."""

    def __reduce__(self) -> Any:
        return os.mkdir, (SPRUNG,)


def picture(size: tuple[int, int] = (32, 32), mode: str = "RGB", kind: str = "PNG", **options: Any) -> bytes:
    """Return a small image file."""
    file = io.BytesIO()
    width, height = size
    ramp = np.linspace(0, 255, width * height).reshape(height, width).astype(np.uint8)
    Image.fromarray(ramp).convert(mode).save(file, kind, **options)
    return file.getvalue()


def png_of(width: int, height: int) -> bytes:
    """Return a PNG file whose header claims a size that its pixels do not have."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def put(path: str, content: bytes | str) -> Path:
    """Write a file, and the folders it is in."""
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content.encode() if isinstance(content, str) else content)
    return place


def link(path: str, target: str) -> Path:
    """Make a symbolic link."""
    place = Path(path)
    place.symlink_to(target)
    return place


def pipe(path: str) -> Path:
    """Make a named pipe, which whoever opens it waits at."""
    os.mkfifo(path)
    return Path(path)


def folder(path: str, mode: int = 0o755) -> Path:
    """Make a folder with an access mode."""
    place = Path(path)
    place.mkdir()
    place.chmod(mode)
    return place


def photos(**files: bytes) -> Path:
    """Write a folder of two classes with two sound images each; more files go into the class `cat`."""
    for folder in ("cat", "dog"):
        for number in range(2):
            put(f"photos/{folder}/{number}.png", picture())
    for name, content in files.items():
        put(f"photos/cat/{name.replace('_', '.')}", content)
    return Path("photos")


def table(text: str, *, name: str = "photos/labels.csv", images: int = 4) -> Path:
    """Write a flat folder of images and a table of labels."""
    for number in range(images):
        put(f"photos/{number}.png", picture())
    return put(name, text)


def arrays(name: str = "images.npz", **held: Any) -> Path:
    """Write an archive of arrays; object arrays are pickled, as a hostile one would be."""
    with Path(name).open("wb") as file:
        np.savez(file, **held)
    return Path(name)


def array(name: str, held: object) -> Path:
    """Write one array, which is pickled where it holds objects."""
    np.save(name, held)  # type: ignore[arg-type]
    return Path(name)


def images(count: int = 4) -> np.ndarray[Any, Any]:
    """Return sound images for an archive."""
    return np.random.default_rng(0).integers(0, 255, (count, 32, 32, 3), np.uint8)


def npy(shape: str, kind: str = "|u1", body: bytes = b"") -> bytes:
    """Return an `.npy` file with a header of one's own."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (64 - (len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + body


def cifar(batch: object, name: str = "test_batch") -> Path:
    """Write a folder in CIFAR-10's published layout, with a batch of one's own."""
    names = {b"label_names": [f"class {number}".encode() for number in range(10)]}
    put("cifar-10-batches-py/batches.meta", pickle.dumps(names, 2))
    return put(f"cifar-10-batches-py/{name}", batch if isinstance(batch, bytes) else pickle.dumps(batch, 2))


def trained(about: object, weights: bytes = b"") -> Path:
    """Write a folder as training leaves it."""
    put("trained/model.json", about if isinstance(about, bytes) else json.dumps(about))
    return put("trained/model.safetensors", weights)


def torch_file(content: object, name: str, *, legacy: bool = False) -> None:
    """Write what `torch.save` writes."""
    import torch

    torch.save(content, name, _use_new_zipfile_serialization=not legacy)


def onnx_with_weights_at(location: str) -> Path:
    """Write an ONNX file whose weights are said to be in another file."""
    from onnx import TensorProto, helper

    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[48, 10], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value=location)
    ins = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, 4, 4])
    outs = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 10])
    nodes = [helper.make_node("Flatten", ["images"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["logits"])]
    graph = helper.make_graph(nodes, "g", [ins], [outs], [weights])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return put("model/m.onnx", made.SerializeToString())


def snapshot(root: Path) -> dict[str, bytes | str]:
    """Return every file under a folder with its content, and where links point."""
    found: dict[str, bytes | str] = {}
    for path, folders, files in os.walk(root):
        for name in (*folders, *files):
            place = Path(path, name)
            inside = place.relative_to(root).as_posix()
            if place.is_symlink():
                found[inside] = str(place.readlink())
            else:
                found[inside] = place.read_bytes() if place.is_file() else "folder"
    return found


@contextmanager
def ordinary_rights() -> Iterator[None]:
    """Let file modes bind this thread, where it is the administrator's and they would not."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    head = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the interface; 0 is this thread
    held = (ctypes.c_uint32 * 6)()
    assert libc.capget(head, held) == 0
    given_up = type(held)(*held)
    given_up[0] &= ~0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, of the effective ones
    assert libc.capset(head, given_up) == 0
    try:
        yield
    finally:
        assert libc.capset(head, held) == 0
