"""Each file is decoded once in a process, while what is kept fits, and anew when it has changed."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import shiftproof
from shiftproof.data import load_images
from shiftproof.data.images import decoded_files
from shiftproof.data.images.decoded_files import DecodedFiles
from shiftproof.data.images.decoding import Decoder


@pytest.fixture
def decoded(monkeypatch):
    """Return the list of what is decoded, with files that need not grow old before they are kept."""
    seen: list[str] = []
    pixels = Decoder.pixels

    def counted(self, image):
        seen.append(os.path.basename(image.filename))  # noqa: PTH119
        return pixels(self, image)

    monkeypatch.setattr(Decoder, "pixels", counted)
    monkeypatch.setattr(decoded_files, "RECENT", -1.0)
    return seen


def paint(path: Path, level: int, side: int = 8) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((side, side, 3), level, np.uint8)).save(path)
    return path


def test_an_audit_decodes_each_file_once(decoded, tmp_path):
    rng = np.random.default_rng(0)
    names = shiftproof.load_data("demo").classes[:2]
    for number in range(12):
        path = paint(tmp_path / "photos" / names[number % 2] / f"{number}.png", 0)
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)
    result = shiftproof.audit(
        "demo",
        str(tmp_path / "photos"),
        out=tmp_path / "run",
        shifts=["contrast"],
        severities=[3],
        sections=["clean", "corruptions", "adaptation"],
        methods=["bn"],
        on_plan=lambda forecast: None,
    )
    assert not result.failed
    assert sorted(decoded) == sorted(f"{number}.png" for number in range(12))


def test_a_file_that_changed_is_decoded_anew(decoded, tmp_path):
    files, path = DecodedFiles(), paint(tmp_path / "a.png", 10)
    assert files(str(path), Decoder())[0, 0, 0] == 10
    assert files(str(path), Decoder())[0, 0, 0] == 10
    assert len(decoded) == 1
    before = path.stat()
    paint(path, 20)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a copy that keeps times does
    assert files(str(path), Decoder())[0, 0, 0] == 20


def test_a_file_decoded_otherwise_is_another(decoded, tmp_path):
    files, path = DecodedFiles(), str(paint(tmp_path / "a.png", 10))
    assert files(path, Decoder()).shape == (8, 8, 3)
    assert files(path, Decoder(size=4)).shape == (4, 4, 3)


def test_what_is_kept_is_bounded_and_the_latest(decoded, tmp_path):
    paths = [str(paint(tmp_path / f"{number}.png", number)) for number in range(4)]
    files = DecodedFiles(limit=3 * 8 * 8 * 3)
    for path in (*paths[:3], paths[0], paths[3], paths[0], paths[1]):
        files(path, Decoder())
    assert decoded == ["0.png", "1.png", "2.png", "3.png", "1.png"]


def test_a_file_that_was_just_written_is_not_kept(decoded, tmp_path, monkeypatch):
    monkeypatch.setattr(decoded_files, "RECENT", 60.0)
    files, path = DecodedFiles(), str(paint(tmp_path / "a.png", 10))
    assert files(path, Decoder())[0, 0, 0] == files(path, Decoder())[0, 0, 0] == 10
    assert len(decoded) == 2


def test_batches_are_copies_of_what_is_kept(decoded, tmp_path):
    for number in range(2):
        paint(tmp_path / f"{number}.png", 10 + number)
    data = load_images(tmp_path)
    next(data.batches(2)).inputs.zero_()
    data.source.read([0, 1]).images.zero_()
    assert float(next(data.batches(2)).inputs.min()) > 0
    assert len(decoded) == 2
