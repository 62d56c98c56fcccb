"""`shiftproof search` as a user meets it: a process, its output, its files."""

import json
import sys

import numpy as np
import pytest

from tests.processes import shiftproof

SMALL = ("--images", 20, "--budget", 20, "--length", 2)
API = """
from shiftproof.searchers import Service

def moody(images):
    if images[..., 1].mean() > 160:
        raise ConnectionError("too green for me")
    return (images[..., 1].mean((1, 2)) > 127.5).astype(int)

def build():
    return Service(moody, retries=1, wait=0)
"""


def test_search_says_what_it_found_and_goes_on_where_it_was(tmp_path):
    first = shiftproof("search", *SMALL, "--searcher", "random", "--similarity", 0.9, "--out", "out", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    content = json.loads((tmp_path / "out" / "search.json").read_text())
    assert f"accuracy {content['clean']:.3f} on 20 images" in first.stdout
    assert f"{content['worst']:.3f} under" in first.stdout
    assert "preserving content" in first.stdout
    assert "20 of 3.61e+04 chains" in first.stdout
    assert (tmp_path / "out" / "worst.png").stat().st_size > 1000
    again = shiftproof("search", *SMALL, "--searcher", "random", "--similarity", 0.9, "--out", "out", cwd=tmp_path)
    assert again.stdout == first.stdout
    other = shiftproof("search", *SMALL, "--seed", 1, "--out", "out", cwd=tmp_path)
    assert other.returncode == 1
    assert "is about another" in other.stderr


def test_failures_of_a_black_box_are_told_and_make_the_exit_status(tmp_path):
    (tmp_path / "api.py").write_text(API)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 12, 12, 3), dtype=np.uint8)
    np.savez(tmp_path / "set.npz", images=images, labels=(images[..., 1].mean((1, 2)) > 127.5).astype(int))
    result = shiftproof(
        "search", "-m", "api.py:build", "-d", "set.npz", "--space", "camvid", "--budget", 40, "-o", "out",
        "--searcher", "random", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 1, result.stderr
    assert "run the same command to try them again" in result.stdout
    content = json.loads((tmp_path / "out" / "search.json").read_text())
    assert 0 < content["failures"] < 40
    assert "too green for me" in (tmp_path / "out" / "search.json").read_text()


def test_label_maps_come_from_a_file(tmp_path):
    (tmp_path / "seg.py").write_text(
        "from shiftproof.searchers import Service\n"
        "def build():\n    return Service(lambda images: (images.mean(-1) > 127).astype(int))\n"
    )
    images = np.random.default_rng(0).integers(0, 256, (6, 12, 12, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "masks.npy", (images.mean(-1) > 127).astype(int))
    options = ("--fitness", "mean_iou", "--targets", "masks.npy", "--budget", 10, "--length", 2)
    result = shiftproof("search", "-m", "seg.py:build", "-d", "images.npy", *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "mean_iou 1.000 on 6 images" in result.stdout


ERRORS = {
    "unknown space": (["--space", "cifar10"], "did you mean"),
    "no file": (["--space", "none.json"], "none.json"),
    "length 0": (["--length", "0"], "at least one transformation"),
    "budget": (["--budget", "0"], "budget must be positive"),
    "searcher": (["--searcher", "evolutoin"], "did you mean  evolution"),
    "option of another": (["--searcher", "random", "--option", "population=4"], "no option 'population'"),
    "fitness": (["--fitness", "acc"], "no fitness named"),
    "no masks": (["--fitness", "mean_iou"], "label map for each image"),
    "targets": (["--targets", "none.npy"], "none.npy"),
    "bound": (["--similarity", "3"], "Invalid bound"),
    "agreement": (["--agreement", "0.5"], "reference model"),
}


@pytest.mark.parametrize(("arguments", "says"), ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_a_paragraph_and_a_status(tmp_path, monkeypatch, capsys, arguments, says):
    from shiftproof.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["shiftproof", "search", "--images", "4", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
