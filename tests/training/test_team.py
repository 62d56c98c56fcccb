"""Two processes under torchrun take the same course as one with the same batch."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from shiftproof.training import train
from tests.training.samples import small, two_classes

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = {"epochs": 2, "batch_size": 40, "lr": 0.1, "log_every": 1, "clip": 1.0}
RUNS: dict[str, dict[str, Any]] = {
    "gaussian+jsd": {"recipe": "gaussian+jsd", **SETTINGS},
    "esda": {"recipe": "esda", "options": {"length": 2, "images": 20, "budget": 10, "every": 0.5}, **SETTINGS},
}
SCRIPT = f"""
import atexit, json, os, pathlib, sys

def threads():  # those that work for a group of processes
    names = [pathlib.Path("/proc/self/task", number, "comm").read_text() for number in os.listdir("/proc/self/task")]
    return sum("gloo_runloop" in name for name in names)

@atexit.register  # first, so that it runs last
def ended():
    counted = json.dumps([working, threads()])
    pathlib.Path(sys.argv[1], os.environ["RANK"] + ".threads").write_text(counted)

from shiftproof.training import train
from tests.training.samples import small, two_classes

told = {{}}
for name, settings in {RUNS!r}.items():
    trained = train(small(), two_classes(80), out=os.path.join(sys.argv[1], name), **settings)
    told[name] = [trained.losses(), trained.tuples]
working = threads()
pathlib.Path(sys.argv[1], os.environ["RANK"] + ".json").write_text(json.dumps(told))
"""


def test_two_processes_follow_the_losses_of_one(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [*launch, str(tmp_path / "script.py"), str(tmp_path)]
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert result.returncode == 0, result.stderr
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert ranks[0] == ranks[1]
    if sys.platform == "linux" and not torch.__version__.startswith("2.5."):  # whose threads have no names
        for rank in range(2):  # threads that hold tensors of Python when it ends would abort the process
            working, left = json.loads((tmp_path / f"{rank}.threads").read_text())
            assert (working, left) == (4, 2), "those of what is told have ended, those of gradients cannot"
    for name, settings in RUNS.items():
        alone = train(small(), two_classes(80), **settings)
        losses, tuples = ranks[0][name]
        assert losses == pytest.approx(alone.losses(), rel=1e-4)
        assert tuple(tuples) == alone.tuples
        assert (tmp_path / name / "model.json").is_file()
