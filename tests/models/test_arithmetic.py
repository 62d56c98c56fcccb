"""Operations are counted as PyTorch counts them, without its compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from shiftproof.models.arithmetic import operations

NETWORKS = {
    "convolutions": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, groups=4), nn.Flatten(), nn.Linear(1568, 5)
    ),
    "attention": lambda: nn.Sequential(
        nn.Flatten(2), nn.TransformerEncoderLayer(256, 4, 64, batch_first=True), nn.Flatten(), nn.Linear(768, 5)
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_they_are_those_of_pytorch(name):
    model, images = NETWORKS[name]().eval(), torch.rand(4, 3, 16, 16)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(images)
    assert operations(model, images) == counter.get_total_flops() / 4 > 0


def test_the_compiler_is_not_loaded():
    code = (
        "import sys, torch; from torch import nn; from shiftproof.models.arithmetic import operations;"
        "assert operations(nn.Linear(2, 3), torch.zeros(1, 2)) == 12;"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
