"""Nothing is lost, and nothing depends on where it ran: the demo audit, all sections, on every executor and killed.

    make survive

All of it compares `results.json`, times aside, with that of one undisturbed run in one process.
"""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

AUDIT = ["audit", "--images", "16", "--shifts", "contrast", "--severities", "5", "--methods", "bn", "--device", "cpu"]
KILLS = 20


def command(out: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "shiftproof", *AUDIT, "--out", str(out), *options]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def run(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(out, *options), env=environment(), capture_output=True, text=True, check=False)


def start(out: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(out, *options), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def numbers(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "results.json").read_text())
    assert not [cell for cell in content["cells"] if "error" in cell]
    del content["timing"]
    return content


def saved(out: Path) -> int:
    """Return how many cells a run has kept, also while it is at work."""
    try:
        database = sqlite3.connect(f"{(out / 'run.sqlite').as_uri()}?mode=ro", uri=True)
    except sqlite3.Error:
        return 0
    try:
        return int(database.execute("SELECT count(*) FROM cells WHERE result IS NOT NULL").fetchone()[0])
    except sqlite3.Error:
        return 0
    finally:
        database.close()


def wait_for(out: Path, cells: int, process: "subprocess.Popen[str]") -> bool:
    """Wait until a run has kept so many cells; False if it ended before."""
    while saved(out) < cells:
        if process.poll() is not None:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reference") / "run"
    done = run(out)
    assert done.returncode == 0, done.stderr
    sections = {cell["task"].partition(".")[0] for cell in numbers(out)["cells"]}
    assert sections >= {"clean", "corruptions", "worst_case", "spectrum", "certified", "adaptation", "stability"}
    return out


def test_processes_give_the_same_results(reference, tmp_path):
    done = run(tmp_path / "run", "--executor", "processes:2")
    assert done.returncode == 0, done.stderr
    assert numbers(tmp_path / "run") == numbers(reference)


@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray, the extra `ray`")
def test_ray_gives_the_same_results_although_a_worker_is_killed(reference, tmp_path):
    out = tmp_path / "run"
    with start(out, "--executor", "ray:2") as process:
        assert wait_for(out, 20, process)
        workers = [pid for pid, name in _processes().items() if "ray::Actor" in name and _is_below(pid, process.pid)]
        assert workers
        os.kill(workers[0], signal.SIGKILL)
        _, told = process.communicate()
        assert process.returncode == 0, told
    assert numbers(out) == numbers(reference)


def test_kill_9_at_random_moments_changes_nothing(reference, tmp_path):
    out, total = tmp_path / "run", saved(reference)
    moments = sorted(random.Random(12).sample(range(total), KILLS))
    kept = []
    for cells in moments:
        with start(out, *random.Random(cells).choice([(), ("--executor", "processes:2")])) as process:
            if wait_for(out, cells, process):
                time.sleep(random.Random(cells).uniform(0, 0.2))
                process.kill()
        kept.append(saved(out))
    assert kept == sorted(kept), "a kill lost what was saved"
    done = run(out)
    assert done.returncode == 0, done.stderr
    assert numbers(out) == numbers(reference)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("executor", ["inline", "processes:2"])
def test_a_request_to_end_leaves_a_run_that_goes_on(reference, tmp_path, number, executor):
    out = tmp_path / "run"
    with start(out, "--executor", executor) as process:
        assert wait_for(out, 25, process)
        process.send_signal(number)
        _, told = process.communicate()
    assert process.returncode == 130
    assert "interrupted. What was measured is saved" in told
    assert "Traceback" not in told
    assert saved(out) >= 25
    done = run(out)
    assert done.returncode == 0, done.stderr
    assert numbers(out) == numbers(reference)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs rights that this user does not have")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_of_2_mb_leaves_a_run_that_goes_on(reference, small_disk, tmp_path):
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 1_700_000)  # the cells of this audit alone would fit
    done = run(small_disk / "run")
    assert done.returncode == 1
    assert "Cannot " in done.stderr
    assert "resumes from there" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    before = saved(small_disk / "run")
    filler.unlink()
    again = run(small_disk / "run")  # the report, which holds its figures' library, is larger than this disk
    assert "Traceback" not in again.stderr
    assert saved(small_disk / "run") > before
    shutil.copytree(small_disk / "run", tmp_path / "moved")
    moved = run(tmp_path / "moved")
    assert moved.returncode == 0, moved.stderr
    assert numbers(tmp_path / "moved") == numbers(reference)


def test_a_second_driver_is_turned_away(reference, tmp_path):
    out = tmp_path / "run"
    with start(out) as process:
        assert wait_for(out, 1, process)
        second = run(out)
        process.communicate()
    assert second.returncode == 1
    assert "Another process is working" in second.stderr
    assert f"process {process.pid} on" in second.stderr
    assert process.returncode == 0
    assert numbers(out) == numbers(reference)


def _processes() -> dict[int, str]:
    found = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return {int(pid): name for pid, name in (line.split(None, 1) for line in found[1:])}


def _is_below(pid: int, ancestor: int) -> bool:
    """Say whether a process descends from another, so that no one else's is killed."""
    while pid > 1:
        if pid == ancestor:
            return True
        found = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=False)
        pid = int(found.stdout or 0)
    return False
