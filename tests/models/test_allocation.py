"""Memory that networks take again and again stays with the process."""

import platform
from pathlib import Path

import pytest

from tests.processes import python

PROBE = """
import resource, torch
from shiftproof.models.allocation import keep_freed_memory
keep_freed_memory()
torch.ones(12 * 2**20)
begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(12 * 2**20)  # 48 MiB, 12,288 pages
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_large_blocks_are_not_mapped_anew(tmp_path: Path) -> None:
    ended = python(PROBE, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) < 10 * 12_288  # twice as many where every block is mapped when it is made


def test_where_there_is_no_mallopt_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    from shiftproof.models import allocation

    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    allocation.keep_freed_memory.__wrapped__()
