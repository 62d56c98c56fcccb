"""Cells on a Ray cluster of two workers on this machine."""

from collections.abc import Iterator

import pytest

from shiftproof.runs import Store, drive
from tests.runs.test_drive import SUBJECT, Squares, plan_of

ray = pytest.importorskip("ray", reason="needs Ray, the extra `ray`")

from shiftproof.runs.ray import Ray  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # Ray's own


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def test_cells_on_a_cluster_fail_and_kill_alone(cluster, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    numbers = (1, 2, -1, 3, 4, 5)
    with Store(tmp_path / "run", SUBJECT) as store:
        results = drive(plan_of(*numbers), store, Squares(marks, broken=(2,)), executor=Ray(2))
    assert [result.row and result.row["square"] for result in results] == [1, None, None, 9, 16, 25]
    assert results[1].error == "no square today\n  n  2"
    assert "worker died twice" in (results[2].error or "")
    times_run = {n: len(list(marks.glob(f"{n}-*"))) for n in numbers}
    assert times_run[-1] == 2
    assert max(times_run[n] for n in numbers if n != -1) <= 2
