"""Tasks that hang, eat memory or interrupt themselves fail alone, and are told of."""

from __future__ import annotations

import hashlib
import resource
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from shiftproof.errors import ConfigurationError
from shiftproof.runs import Cell, Executor, Inline, Plan, Processes, Result, Row, Store, choose_executor, drive
from shiftproof.runs.limits import TICKS, TimedOut, time_limit

LIMIT = 2.0
"""Seconds that a hanging task costs here; a sound one takes none to speak of, on a busy machine too."""


@dataclass(frozen=True)
class Odd:
    """A setup and a worker in one, which does what a cell says."""

    def __call__(self) -> Odd:
        return self

    def measure(self, cell: Cell) -> Row:
        match cell["do"]:
            case "wait":
                threading.Event().wait()
            case "loop":
                while True:
                    try:
                        time.sleep(60)
                    except Exception:
                        continue
            case "C":  # nothing of Python runs until this is over, an hour from now
                hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
            case "eat":
                most = resource.getrlimit(resource.RLIMIT_AS)
                resource.setrlimit(resource.RLIMIT_AS, (2**34, most[1]))
                try:
                    return {"held": len(bytearray(2**40))}
                finally:
                    resource.setrlimit(resource.RLIMIT_AS, most)
            case "interrupt":
                raise KeyboardInterrupt
        return {"did": cell["do"]}


def driven(folder: Path, executor: Executor, *things: str) -> list[Result]:
    plan = Plan(tuple(Cell("odd", do=thing) for thing in things), {})
    with Store(folder, {"model": "m"}) as store:
        return drive(plan, store, Odd(), executor=executor)


@pytest.mark.parametrize("executor", [Inline(LIMIT), Processes(1, timeout=LIMIT)], ids=["inline", "processes"])
@pytest.mark.parametrize("thing", ["wait", "loop"])
def test_a_task_that_hangs_fails_alone_and_says_where(tmp_path: Path, executor: Executor, thing: str) -> None:
    before, hung, after = driven(tmp_path, executor, "first", thing, "last")
    assert [before.row, after.row] == [{"did": "first"}, {"did": "last"}]
    assert hung.error is not None
    assert "longer than 2 s, the time-out of a task" in hung.error
    assert "test_limits.py, line" in hung.error or "threading.py, line" in hung.error


def test_code_in_c_that_does_not_come_back_costs_its_process_and_nothing_else(tmp_path: Path) -> None:
    before, hung, after = driven(tmp_path, Processes(1, timeout=LIMIT), "first", "C", "last")
    assert [before.row, after.row] == [{"did": "first"}, {"did": "last"}]
    assert "its process died twice" in (hung.error or "")
    assert "longer than 2 s" in (hung.error or "")


@pytest.mark.parametrize("executor", [Inline(), Processes(1)], ids=["inline", "processes"])
def test_a_task_that_wants_too_much_memory_fails_alone(tmp_path: Path, executor: Executor) -> None:
    eaten, after = driven(tmp_path, executor, "eat", "last")
    assert "MemoryError" in (eaten.error or "")
    assert after.row == {"did": "last"}


def test_a_task_that_interrupts_itself_in_a_worker_fails_alone(tmp_path: Path) -> None:
    odd, after = driven(tmp_path, Processes(1), "interrupt", "last")
    assert "KeyboardInterrupt" in (odd.error or "")
    assert after.row == {"did": "last"}


def test_a_limit_is_counted_in_ticks_so_that_a_stopped_process_loses_one() -> None:
    """Alarms that are due while a process is stopped arrive as one."""
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(3600):
        for _ in range(TICKS - 2):
            signal.raise_signal(signal.SIGALRM)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        for _ in range(TICKS):
            signal.pthread_kill(threading.get_ident(), signal.SIGALRM)  # no other thread may take it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        with pytest.raises(TimedOut):
            signal.raise_signal(signal.SIGALRM)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == before


def test_a_limit_is_positive_and_comes_with_every_executor() -> None:
    with pytest.raises(ConfigurationError, match="must be positive"):
        Processes(timeout=0)
    for name in ("inline", "processes"):
        assert vars(choose_executor(name, timeout=5))["timeout"] == 5
