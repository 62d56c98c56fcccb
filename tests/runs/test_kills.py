"""Kills at random moments over all verbs: the same outcome as a run that nobody killed, and no process left behind.

    make survive KILLS=200

The moments are drawn over the time that the work takes on this machine; none is asserted.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.runs.verbs import SPREAD, VERBS

KILLS = int(os.environ.get("SHIFTPROOF_KILLS", "22"))
WAYS = [(verb, "inline") for verb in VERBS] + [(verb, "processes:2") for verb in SPREAD]
ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="sessions are of Unix")]


def start(verb: str, folder: Path, executor: str) -> subprocess.Popen[str]:
    """Start a verb in a session of its own, by which its processes are known."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "begun").unlink(missing_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-W", "ignore", "-m", "tests.runs.verbs", verb, str(folder), executor]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True
    )


def finished(verb: str, folder: Path, executor: str) -> dict[str, Any]:
    with start(verb, folder, executor) as process:
        _, told = process.communicate()
    assert process.returncode == 0, told
    content: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return content


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("references")
    return cache(lambda verb: finished(verb, folder / verb, "inline"))


def members(session: int) -> list[str]:
    """Return the live processes of a session."""
    found = subprocess.run(["ps", "-eo", "sid=,pid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 3) for line in found.splitlines()]
    return [line[3] for line in lines if len(line) == 4 and int(line[0]) == session and not line[2].startswith("Z")]


def no_orphan(session: int) -> None:
    for _ in range(1200):  # a minute, which is forever: they end with their driver, or never
        if not (left := members(session)):
            return
        time.sleep(0.05)
    os.killpg(session, signal.SIGKILL)
    pytest.fail(f"processes outlived their driver: {left}")


def begun(process: subprocess.Popen[str], folder: Path) -> bool:
    while not (folder / "begun").exists():
        if process.poll() is not None:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize(("verb", "executor"), WAYS)
def test_kills_at_random_moments_change_nothing(references: Any, tmp_path: Path, verb: str, executor: str) -> None:
    reference = references(verb)
    chance = random.Random(f"{verb} {executor}")
    killed = rounds = 0
    share = -(-KILLS // len(WAYS))
    while killed < share:
        folder = tmp_path / str(rounds)
        with start(verb, folder, executor) as process:
            assert begun(process, folder), process.communicate()[1]
            time.sleep(chance.uniform(0, reference["seconds"]))
            process.kill()
            process.communicate()
        killed += process.returncode == -signal.SIGKILL
        no_orphan(process.pid)
        if (folder / "answer.json").exists():  # it is done: the next begins anew
            assert json.loads((folder / "answer.json").read_text())["answer"] == reference["answer"]
            shutil.rmtree(folder / "run")
            rounds += 1
    last = finished(verb, tmp_path / str(rounds), executor)
    assert last["answer"] == reference["answer"]


@pytest.mark.parametrize(("verb", "executor"), [("audit", "processes:2"), ("adapt", "inline"), ("estimate", "inline")])
def test_a_stopped_run_goes_on(references: Any, tmp_path: Path, verb: str, executor: str) -> None:
    with start(verb, tmp_path, executor) as process:
        assert begun(process, tmp_path), process.communicate()[1]
        time.sleep(references(verb)["seconds"] / 4)
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(float(os.environ.get("SHIFTPROOF_STOP", "3")))
        os.killpg(process.pid, signal.SIGCONT)
        _, told = process.communicate()
    assert process.returncode == 0, told
    assert json.loads((tmp_path / "answer.json").read_text())["answer"] == references(verb)["answer"]


@pytest.mark.parametrize("verb", ["adapt", "estimate"])
def test_of_two_drivers_at_once_one_is_turned_away(references: Any, tmp_path: Path, verb: str) -> None:
    both = [start(verb, tmp_path, "inline") for _ in range(2)]
    told = [process.communicate()[1] for process in both]
    for process, said in zip(both, told, strict=True):
        assert process.returncode == 0 or "Another process is working" in said, said
    assert any(process.returncode == 0 for process in both)
    assert finished(verb, tmp_path, "inline")["answer"] == references(verb)["answer"]
