"""`shiftproof write-corrupted` and `shiftproof preview` as a user meets them: a process, its output, its files."""

import json
import shutil
import signal

import numpy as np
import pytest
from PIL import Image

from shiftproof.exports.writing import write_corrupted
from tests.processes import Stop, measured, shiftproof

SHIFTS = [f"{name}@{severity}" for name in ("gaussian_noise", "snow", "elastic_transform") for severity in range(1, 6)]


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("ant/a.png", "ant/b.png", "bee/c.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(tmp_path / "photos" / name)
    return tmp_path / "photos"


@pytest.fixture
def archive(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "set.npz", images=rng.integers(0, 256, (8, 32, 32, 3), dtype=np.uint8), labels=np.arange(8) % 3)
    return tmp_path / "set.npz"


def content(folder):
    """Every file but the run's own, by its path."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith("run.")}


def kill_in_the_middle(folder, *arguments):
    """Start a command and end it without warning once it has written some cells; anew where it ended before that."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        ended = shiftproof(*arguments, stop=Stop(signal.SIGKILL, lambda: measured(folder) >= 2))
        if ended.returncode == -signal.SIGKILL and not (folder / "manifest.json").exists():
            assert measured(folder) >= 2
            return
    pytest.fail("it always ended before it could be killed")


def test_a_killed_copy_of_a_folder_is_finished_by_the_same_command(photos, tmp_path):
    options = [option for shift in SHIFTS for option in ("--shifts", shift)]
    write_corrupted(photos, tmp_path / "whole", shifts=SHIFTS)
    kill_in_the_middle(tmp_path / "out", "write-corrupted", photos, tmp_path / "out", *options)
    assert not (tmp_path / "out" / "manifest.json").exists()
    again = shiftproof("write-corrupted", photos, tmp_path / "out", *options)
    assert again.returncode == 0, again.stderr
    assert len(content(tmp_path / "out")) == 3 * len(SHIFTS) + 1
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_a_killed_suite_of_arrays_is_finished_by_the_same_command(archive, tmp_path):
    suite = ("--suite", "cifar-c-bar", "--seed", 4)
    write_corrupted(archive, tmp_path / "whole", suite="cifar-c-bar", seed=4)
    kill_in_the_middle(tmp_path / "out", "write-corrupted", archive, tmp_path / "out", *suite)
    assert not list((tmp_path / "out").glob("*.npy"))
    assert len(list((tmp_path / "out").glob("*.npy.part"))) == 10
    again = shiftproof("write-corrupted", archive, tmp_path / "out", *suite)
    assert again.returncode == 0, again.stderr
    assert len(content(tmp_path / "out")) == 10 + 2
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_corrupt_says_what_it_wrote_and_where(photos, tmp_path):
    (photos / "ant" / "bad.png").write_text("no image")
    options = ("-s", "contrast@2", "--on-bad-file", "skip", "--size", 32)
    result = shiftproof("write-corrupted", "photos", "out", *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "inputs    3, under 1 shift",
        "left out  1 that cannot be read; the manifest names them",
        "manifest  out/manifest.json",
    ]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["left_out"][0]["file"] == "ant/bad.png"
    with Image.open(tmp_path / "out" / "bee" / "c.png") as image:
        assert image.size == (32, 32)


def test_masks_and_other_files_come_along_and_are_told(photos, tmp_path):
    for name in ("ant/a", "bee/c"):
        Image.new("L", (64, 64), 3).save(photos / f"{name}_mask.png")
    (photos / "LICENSE").write_text("free")
    plain = shiftproof("write-corrupted", "photos", "out", "-s", "rotate=20", cwd=tmp_path)
    assert plain.returncode == 1
    assert "--masks '*_mask.png'" in plain.stderr
    result = shiftproof("write-corrupted", "photos", "out", "-s", "rotate=20", "--masks", "*_mask.png", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[:3] == [
        "inputs    3, under 1 shift",
        "masks     2; images without one: 1",
        "copied    1 other file",
    ]
    with Image.open(tmp_path / "out/ant/a_mask.png") as mask:
        assert np.unique(np.asarray(mask)).tolist() == [3, 255]


def test_preview_writes_a_picture(photos, tmp_path):
    image = photos / "ant" / "a.png"
    result = shiftproof("preview", image, "--families", "holdout", "--severities", "1,5", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "preview  preview.png\n")
    with Image.open(tmp_path / "preview.png") as sheet:
        assert min(sheet.size) > 500


ERRORS = {
    "unknown shift": (["write-corrupted", "demo", "out", "--shifts", "fogg@3"], 1, "did you mean"),
    "no data": (["write-corrupted", "nowhere/", "out", "--shifts", "fog@3"], 1, "nowhere"),
    "bad choice": (["write-corrupted", "demo", "out", "--shifts", "fog@3", "--on-bad-file", "ask"], 2, "skip"),
    "no image": (["preview", "none.png"], 1, "none.png"),
    "bad severities": (["preview", "--severities", "a"], 2, "takes numbers, such as 1,3,5"),
}


@pytest.mark.parametrize(("arguments", "status", "says"), ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_a_paragraph_and_a_status(tmp_path, arguments, status, says):
    result = shiftproof(*arguments, cwd=tmp_path)
    assert result.returncode == status
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())
