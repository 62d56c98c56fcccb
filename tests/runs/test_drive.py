"""Resuming, failing and dying, with cells that leave a mark on disk each time they really run."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from multiprocessing import get_all_start_methods
from pathlib import Path

import pytest

from shiftproof.errors import ConfigurationError, RunError, ShiftproofError
from shiftproof.runs import Cell, Executor, Inline, Plan, Processes, Row, Store, drive
from shiftproof.runs.hosting import cores

SUBJECT = {"model": "m", "data": "d"}


@dataclass(frozen=True)
class Squares:
    """A setup and a worker in one: squares numbers and leaves a mark per measurement."""

    marks: Path
    broken: tuple[int, ...] = ()

    def __call__(self) -> "Squares":
        return self

    def measure(self, cell: Cell) -> Row:
        n = cell["n"]
        assert isinstance(n, int)
        (self.marks / f"{n}-{time.monotonic_ns()}").touch()
        if n in self.broken:
            raise ShiftproofError("no square today", n=str(n))
        if n == 666:
            sys.exit(0)
        if n < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"square": n * n}


def plan_of(*numbers: int) -> Plan:
    return Plan(tuple(Cell("square", n=n) for n in numbers), SUBJECT)


@pytest.fixture
def marks(tmp_path):
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


EXECUTORS = pytest.mark.parametrize("executor", [Inline(), Processes(2)], ids=["inline", "processes"])


@EXECUTORS
def test_every_cell_runs_once_and_results_come_in_plan_order(tmp_path, marks, executor: Executor):
    plan = plan_of(3, 1, 2)
    with Store(tmp_path / "run", SUBJECT) as store:
        results = drive(plan, store, Squares(marks), executor=executor)
        again = drive(plan, store, Squares(marks), executor=executor)
    assert [result.row for result in results] == [{"square": 9}, {"square": 1}, {"square": 4}]
    assert again == results
    assert len(list(marks.iterdir())) == 3


@EXECUTORS
def test_a_failed_cell_is_kept_with_its_error_and_tried_again(tmp_path, marks, executor: Executor):
    with Store(tmp_path / "run", SUBJECT) as store:
        first = drive(plan_of(1, 2, 3), store, Squares(marks, broken=(2,)), executor=executor)
        assert [result.error for result in first] == [None, "no square today\n  n  2", None]
        second = drive(plan_of(1, 2, 3), store, Squares(marks), executor=executor)
    assert [result.row for result in second] == [{"square": 1}, {"square": 4}, {"square": 9}]
    assert len(list(marks.iterdir())) == 4


def test_an_unexpected_error_is_kept_with_its_trace(tmp_path, marks):
    with Store(tmp_path / "run", SUBJECT) as store:
        (result,) = drive(Plan((Cell("square", n="x"),), SUBJECT), store, Squares(marks))
    assert result.row is None
    assert "AssertionError" in (result.error or "")


def test_a_row_that_cannot_be_stored_is_its_cells_failure(tmp_path):
    class Broken:
        def measure(self, cell: Cell) -> Row:
            return {"value": float("nan") if cell["n"] == 1 else 1.0}

    with Store(tmp_path / "run", SUBJECT) as store:
        results = drive(plan_of(0, 1, 2), store, Broken)
    assert [result.row for result in results] == [{"value": 1.0}, None, {"value": 1.0}]
    assert "JSON" in (results[1].error or "")


def test_a_dying_process_costs_only_the_cell_that_kills_it(tmp_path, marks):
    with Store(tmp_path / "run", SUBJECT) as store:
        results = drive(plan_of(1, -1, 2, 3, 4), store, Squares(marks), executor=Processes(1))
    assert [result.row and result.row["square"] for result in results] == [1, None, 4, 9, 16]
    assert "process died" in (results[1].error or "")


def test_results_arrive_in_the_store_before_the_watcher_hears(tmp_path, marks):
    seen = []
    with Store(tmp_path / "run", SUBJECT) as store:
        plan = plan_of(1, 2)
        drive(plan, store, Squares(marks), on_progress=lambda done, *_: seen.append((done, len(store.results(plan)))))
    assert seen == [(0, 0), (1, 1), (2, 2)]


def test_essential_work_ends_with_its_first_failure(tmp_path, marks):
    with Store(tmp_path / "run", SUBJECT) as store:
        with pytest.raises(RunError, match="no square today"):
            drive(plan_of(1, 2, 3), store, Squares(marks, broken=(2,)), essential="Squaring")
        with pytest.raises(RunError, match="Squaring failed: "):
            drive(
                Plan((Cell("square", n="x"), *plan_of(3).tasks), SUBJECT), store, Squares(marks), essential="Squaring"
            )
    assert {path.name.partition("-")[0] for path in marks.iterdir()} == {"1", "2"}


@EXECUTORS
def test_a_crew_loads_once_for_many_plans(tmp_path, marks, executor: Executor):
    with Store(tmp_path / "run", SUBJECT) as store, executor.open(Counted(marks)) as pool:
        for n in range(3):
            drive(plan_of(n, n + 10), store, pool)
        assert len(store.done()) == 6
    assert 1 <= len(list(marks.iterdir())) <= 2


@dataclass(frozen=True)
class Counted:
    """Leaves a mark each time it is set up."""

    marks: Path

    def __call__(self) -> "Counted":
        (self.marks / str(time.monotonic_ns())).touch()
        return self

    def measure(self, cell: Cell) -> Row:
        return {"n": cell["n"]}


@dataclass(frozen=True)
class Unready:
    """A setup that fails, as a user's mistake does or as nobody foresaw."""

    foreseen: bool

    def __call__(self) -> Squares:
        if self.foreseen:
            raise ConfigurationError("This cannot be loaded.", got="nothing")
        raise ZeroDivisionError("of all things")


@EXECUTORS
def test_a_setup_that_fails_ends_the_run_with_its_error(tmp_path, executor: Executor):
    with Store(tmp_path / "run", SUBJECT) as store:
        with pytest.raises(ConfigurationError, match="cannot be loaded"):
            drive(plan_of(1, 2), store, Unready(foreseen=True), executor=executor)
        with pytest.raises((RunError, ZeroDivisionError), match="of all things"):
            drive(plan_of(1, 2), store, Unready(foreseen=False), executor=executor)
        assert not store.done()


def test_workers_end_with_a_driver_that_is_killed(tmp_path):
    script = tmp_path / "work.py"
    script.write_text(
        textwrap.dedent("""
        import os, sys, time
        from pathlib import Path
        from shiftproof.runs import Cell, Plan, Processes, Store, drive

        class Slow:
            def __call__(self):
                return self

            def measure(self, cell):
                print(os.getpid(), flush=True)
                time.sleep(600)
                return {}

        if __name__ == "__main__":
            with Store(Path(sys.argv[1]), {}) as store:
                drive(Plan((Cell("slow", n=1),), {}), store, Slow(), executor=Processes(1))
        """)
    )
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdecimal()
        process.kill()
        # The pipe ends when the last process that could write to it is gone: the worker, long before its cell ends.
        assert process.communicate(timeout=300)[0] == ""


def test_a_run_of_another_model_is_refused_and_left_alone(tmp_path, marks):
    with Store(tmp_path / "run", SUBJECT) as store:
        drive(plan_of(1), store, Squares(marks))
    with pytest.raises(RunError, match="another model"):
        Store(tmp_path / "run", {**SUBJECT, "model": "other"})
    with Store(tmp_path / "run", SUBJECT) as store:
        assert len(store.results(plan_of(1))) == 1


def test_two_drivers_cannot_share_a_directory(tmp_path):
    with Store(tmp_path / "run", SUBJECT), pytest.raises(RunError, match="Another process"):
        Store(tmp_path / "run", SUBJECT)
    Store(tmp_path / "run", SUBJECT).close()


def test_a_store_of_another_schema_is_refused(tmp_path):
    with Store(tmp_path / "run", SUBJECT) as store:
        store.note({"schema": "99"})
    with pytest.raises(RunError, match="another version"):
        Store(tmp_path / "run", SUBJECT)


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(RunError, match="no run in"):
        Store(tmp_path)


def test_a_file_that_is_no_database_is_an_error_a_user_can_act_on(tmp_path):
    (tmp_path / "run.sqlite").write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(RunError, match="Cannot use the run directory"):
        Store(tmp_path, SUBJECT)


def test_a_full_disk_keeps_what_was_saved(tmp_path, marks):
    plan = plan_of(*range(500))
    with Store(tmp_path / "run", SUBJECT) as store:
        drive(plan_of(0, 1), store, Squares(marks))
        # SQLite's own page limit gives the same SQLITE_FULL that a full disk does.
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(RunError, match="full"):
            drive(plan, store, Squares(marks))
    with Store(tmp_path / "run", SUBJECT) as store:
        assert len(drive(plan, store, Squares(marks))) == 500


@EXECUTORS
def test_a_cell_that_ends_the_program_fails_alone(tmp_path, marks, executor: Executor):
    with Store(tmp_path / "run", SUBJECT) as store:
        results = drive(plan_of(12, 666, 14), store, Squares(marks), executor=executor)
    assert [result.row and result.row["square"] for result in results] == [144, None, 196]
    assert "SystemExit" in (results[1].error or "")


class Ends(Squares):
    def __call__(self) -> Squares:
        sys.exit(0)


def test_a_setup_that_ends_the_program_is_told(tmp_path, marks):
    with Store(tmp_path / "run", SUBJECT) as store, pytest.raises(RunError, match="SystemExit"):
        drive(plan_of(1), store, Ends(marks), executor=Processes(1))


class Surroundings:
    """Tells what surrounds the process that it is in."""

    def __call__(self) -> "Surroundings":
        return self

    def measure(self, cell: Cell) -> Row:
        import torch

        names = ("SHIFTPROOF_NOTE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
        return {
            **{name: os.environ.get(name) for name in names},
            "threads": torch.get_num_threads(),
            "in": str(Path.cwd()),
        }


@pytest.mark.parametrize("note", ["one", "another"])
def test_a_process_has_the_surroundings_of_its_driver_and_its_share_of_the_cores(tmp_path, monkeypatch, note):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setenv("SHIFTPROOF_NOTE", note)
    monkeypatch.chdir(tmp_path)
    share = max(1, cores() // 2)
    with Store(tmp_path / "run", SUBJECT) as store:
        (result,) = drive(plan_of(1), store, Surroundings(), executor=Processes(2))
    assert result.row == {
        "SHIFTPROOF_NOTE": note,
        "OPENBLAS_NUM_THREADS": "1" if "forkserver" in get_all_start_methods() else None,
        "OMP_NUM_THREADS": str(share),
        "threads": share,
        "in": str(tmp_path),
    }


def test_unpicklable_work_is_refused_by_processes(tmp_path):
    with Store(tmp_path / "run", SUBJECT) as store, pytest.raises(ConfigurationError, match="worker processes"):
        drive(plan_of(1), store, lambda: Squares(tmp_path), executor=Processes(1))


def test_kill_9_loses_nothing_that_was_saved(tmp_path, marks):
    script = tmp_path / "work.py"
    script.write_text(
        textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from shiftproof.runs import Cell, Plan, Store, drive

        class Slow:
            def measure(self, cell):
                time.sleep(0.02)
                return {"n": cell["n"]}

        plan = Plan(tuple(Cell("slow", n=n) for n in range(100)), {})
        with Store(Path(sys.argv[1]), {"model": "m"}) as store:
            show = lambda done, total, result: result and print(result.task["n"], flush=True)
            drive(plan, store, Slow, on_progress=show)
        """)
    )
    command = [sys.executable, str(script), str(tmp_path / "run")]
    said: list[int] = []
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said.extend(int(process.stdout.readline()) for _ in range(10))
            process.kill()
            said.extend(int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n"))
    database = sqlite3.connect(tmp_path / "run" / "run.sqlite")
    saved = database.execute("SELECT count(*) FROM cells").fetchone()[0]
    database.close()
    assert len(set(said)) == len(said), "a saved cell ran again"
    assert saved in (len(said), len(said) + 1, len(said) + 2, len(said) + 3), "a reported cell was not saved"
