"""Streams as files: the same images, whoever writes them."""

import io
import json
import tarfile
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from shiftproof.data import load_data
from shiftproof.errors import ConfigurationError, RunError
from shiftproof.exports.shards import write_stream
from shiftproof.exports.stream_previews import preview_stream
from shiftproof.streams import make_stream


def stream(**options):
    given: dict[str, Any] = {"shifts": ["contrast", "fog"], "length": 50, "batch_size": 16, "seed": 2, **options}
    return make_stream("mixed", load_data("demo").take(30), **given)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.tar")}


def test_shards_hold_the_stream(tmp_path):
    manifest = json.loads(write_stream(stream(), out=tmp_path, shard_images=20).read_text())
    assert [shard["images"] for shard in manifest["shards"]] == [20, 20, 10]
    assert manifest["classes"][3] == "cat"
    expected = stream().read(0, 50)
    pictures, labels = [], []
    for shard in manifest["shards"]:
        with tarfile.open(tmp_path / shard["shard"]) as tar:
            for member in tar:
                file = tar.extractfile(member)
                assert file is not None
                if member.name.endswith(".png"):
                    pictures.append(np.array(Image.open(io.BytesIO(file.read()))))
                elif member.name.endswith(".cls"):
                    labels.append(int(file.read()))
    stored = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)
    assert torch.equal(stored, (expected.inputs * 255).round().to(torch.uint8))
    assert labels == expected.labels.tolist()


def test_one_and_two_workers_write_the_same_bytes(tmp_path):
    write_stream(stream(), out=tmp_path / "one", shard_images=20)
    write_stream(stream(), out=tmp_path / "two", shard_images=20, executor="processes:2")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_writing_goes_on_where_it_stopped(tmp_path):
    def on_progress(done, total, result):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_stream(stream(), out=tmp_path / "part", shard_images=20, format="jpg", on_progress=on_progress)
    write_stream(stream(), out=tmp_path / "part", shard_images=20, format="jpg")
    write_stream(stream(), out=tmp_path / "whole", shard_images=20, format="jpg")
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")
    with pytest.raises(RunError, match="about another"):
        write_stream(stream(seed=3), out=tmp_path / "part", shard_images=20, format="jpg")


@pytest.mark.parametrize("options", [{"format": "gif"}, {"quality": 0}, {"shard_images": 0}])
def test_impossible_shards_are_refused(options, tmp_path):
    with pytest.raises(ConfigurationError):
        write_stream(stream(), out=tmp_path, **options)


def test_a_preview_shows_positions_along_the_stream(tmp_path):
    png = preview_stream(stream(), out=tmp_path / "stream.png", rows=3, columns=4)
    with Image.open(png) as image:
        assert image.width > 4 * 160
    page = preview_stream(stream(), out=tmp_path / "stream.html", rows=3, columns=4).read_text()
    assert page.count("data:image/png") == 12
    with pytest.raises(ConfigurationError):
        preview_stream(stream(), out=tmp_path / "stream.gif")
