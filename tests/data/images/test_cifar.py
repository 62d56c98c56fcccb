from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shiftproof.data import load_images
from shiftproof.data.images.cifar import read_pickle
from shiftproof.errors import DataError

TEN = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
HUNDRED = [f"class {number}".replace(" ", "_") for number in range(100)]
COUNT = 4  # images per file
RNG = np.random.default_rng(0)
FILES = {file: RNG.integers(0, 256, (COUNT, 3072), dtype=np.uint8) for file in "12345t"}
LABELS = {file: RNG.integers(0, 10, COUNT).tolist() for file in "12345t"}


def expected(files: str) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([FILES[file] for file in files])).view(-1, 3, 32, 32).float() / 255


def dump(content: Any, path: Path) -> None:
    """Pickle as the published files are: protocol 2, which Python 3 writes with `_codecs.encode` for bytes."""
    path.write_bytes(pickle.dumps(content, protocol=2))


def python_2(images: np.ndarray[Any, Any], labels: list[int]) -> bytes:
    """Pickle an array and labels by hand with the opcodes Python 2 and numpy 1 wrote: strings are bytes."""

    def string(text: bytes) -> bytes:
        return b"T" + len(text).to_bytes(4, "little") + text

    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + string(b"b") + b"tR"
        b"(K\x01(M" + len(images).to_bytes(2, "little") + b"M" + (3072).to_bytes(2, "little") + b"t"
        b"cnumpy\ndtype\n(" + string(b"u1") + b"K\x00K\x01tR(K\x03" + string(b"|") + b"NNN"
        b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89" + string(images.tobytes()) + b"tb"
    )
    numbers = b"(" + b"".join(b"K" + bytes([label]) for label in labels) + b"l"
    items = string(b"data") + array + string(b"labels") + numbers
    return b"\x80\x02}(" + items + string(b"batch_label") + string(b"testing batch 1 of 1") + b"u."


@pytest.fixture
def pickled(tmp_path: Path) -> Path:
    for file in "12345t":
        name = "test_batch" if file == "t" else f"data_batch_{file}"
        dump({b"data": FILES[file], b"labels": LABELS[file], b"filenames": [b"a.png"]}, tmp_path / name)
    dump({b"label_names": [name.encode() for name in TEN], b"num_vis": 3072}, tmp_path / "batches.meta")
    return tmp_path


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    for file in "12345t":
        name = "test_batch.bin" if file == "t" else f"data_batch_{file}.bin"
        rows = np.concatenate([np.array(LABELS[file], np.uint8)[:, None], FILES[file]], axis=1)
        rows.tofile(tmp_path / name)
    (tmp_path / "batches.meta.txt").write_text("\n".join(TEN) + "\n\n")
    return tmp_path


@pytest.mark.parametrize("layout", ["pickled", "binary"])
@pytest.mark.parametrize(("split", "files"), [(None, "t"), ("test", "t"), ("train", "12345")])
def test_cifar_10(layout: str, split: str | None, files: str, request: pytest.FixtureRequest) -> None:
    data = load_images(request.getfixturevalue(layout), split=split)
    assert torch.equal(next(data.batches(100)).inputs, expected(files))
    assert data.labels is not None
    assert data.labels.tolist() == [label for file in files for label in LABELS[file]]
    assert data.classes == tuple(TEN)
    assert data.name == f"CIFAR-10 {split or 'test'}"


def test_cifar_100_pickled(tmp_path: Path) -> None:
    content = {"data": FILES["t"], "fine_labels": [99, 0, 1, 2], "coarse_labels": [3, 3, 3, 3]}
    dump({key.encode(): value for key, value in content.items()}, tmp_path / "test")
    dump({b"fine_label_names": [name.encode() for name in HUNDRED], b"coarse_label_names": []}, tmp_path / "meta")
    data = load_images(tmp_path)
    assert data.labels is not None
    assert data.labels.tolist() == [99, 0, 1, 2]
    assert data.classes == tuple(HUNDRED)
    assert torch.equal(next(data.batches(9)).inputs, expected("t"))
    with pytest.raises(DataError, match="train is missing"):
        load_images(tmp_path, split="train")


def test_cifar_100_binary(tmp_path: Path) -> None:
    labels = np.array([[7, 99], [7, 0], [7, 1], [7, 2]], np.uint8)
    np.concatenate([labels, FILES["t"]], axis=1).tofile(tmp_path / "test.bin")
    (tmp_path / "fine_label_names.txt").write_text("\n".join(HUNDRED))
    data = load_images(tmp_path)
    assert data.labels is not None
    assert data.labels.tolist() == [99, 0, 1, 2]
    assert torch.equal(next(data.batches(9)).inputs, expected("t"))


def test_is_found_in_the_folder_above(tmp_path: Path, pickled: Path) -> None:
    inside = tmp_path / "downloads" / "cifar-10-batches-py"
    inside.mkdir(parents=True)
    for file in pickled.iterdir():
        if file.is_file():
            file.rename(inside / file.name)
    assert load_images(tmp_path / "downloads").name == "CIFAR-10 test"


def test_a_file_that_python_2_wrote(pickled: Path) -> None:
    (pickled / "test_batch").write_bytes(python_2(FILES["t"], LABELS["t"]))
    data = load_images(pickled)
    assert torch.equal(next(data.batches(9)).inputs, expected("t"))
    assert data.labels is not None
    assert data.labels.tolist() == LABELS["t"]


class Hostile:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_code_in_a_pickle_is_not_run(protocol: int, pickled: Path, tmp_path: Path) -> None:
    target = tmp_path / "made by the pickle"
    (pickled / "test_batch").write_bytes(pickle.dumps({b"data": Hostile(target)}, protocol))
    with pytest.raises(DataError, match="it was not run"):
        load_images(pickled)
    assert not target.exists()


@pytest.mark.parametrize(
    "name", [b"builtins eval", b"os system", b"numpy load", b"numpy fromfile", b"numpy.f2py os", b"__main__ x"]
)
def test_no_other_function_is_reachable(name: bytes, tmp_path: Path) -> None:
    module, function = name.split()
    (tmp_path / "file").write_bytes(b"c" + module + b"\n" + function + b"\n.")
    with pytest.raises(DataError, match="it was not run"):
        read_pickle(tmp_path / "file")


def test_codecs_encodes_only_as_pickles_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR.")
    with pytest.raises(DataError, match="it was not run"):
        read_pickle(tmp_path / "file")


@pytest.mark.parametrize(
    "content",
    [
        [1, 2],
        {b"labels": [1] * COUNT},
        {b"data": FILES["t"].astype(np.float32), b"labels": LABELS["t"]},
        {b"data": FILES["t"][:, :100], b"labels": LABELS["t"]},
        {b"data": FILES["t"], b"labels": LABELS["t"][:2]},
        {b"data": FILES["t"], b"labels": ["a"] * COUNT},
    ],
)
def test_other_content_is_refused(content: Any, pickled: Path) -> None:
    dump(content, pickled / "test_batch")
    with pytest.raises(DataError, match="not a published CIFAR file"):
        load_images(pickled)


def test_damaged_files_are_refused(pickled: Path) -> None:
    (pickled / "test_batch").write_bytes((pickled / "test_batch").read_bytes()[:-9])
    with pytest.raises(DataError, match="not a published CIFAR file"):
        load_images(pickled)


def test_cut_binary_files_are_refused(binary: Path) -> None:
    (binary / "test_batch.bin").write_bytes(b"123")
    with pytest.raises(DataError, match="rows of 3073 bytes"):
        load_images(binary)


def test_a_split_that_is_none(binary: Path) -> None:
    with pytest.raises(DataError, match="no split 'val'"):
        load_images(binary, split="val")
