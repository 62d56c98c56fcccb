"""The workbench of an audit, made again elsewhere."""

from typing import Any

import pytest

from shiftproof.audits.bench import Bench
from shiftproof.data import load_data
from shiftproof.errors import DataError


def test_a_worker_that_loads_something_else_is_refused():
    terms: dict[str, Any] = {"model": "demo", "data": "demo", "images": 8, "device": "cpu", "batch_size": 8}
    prints = {"sample": Bench(seed=0, **terms).subject(load_data("demo")).data.fingerprint}
    assert len(Bench(seed=0, expected=prints, **terms)().subject.data) == 8
    with pytest.raises(DataError, match="another set of inputs than the driver"):
        Bench(seed=1, expected=prints, **terms)()
    with pytest.raises(DataError, match="another model than the driver"):
        Bench(seed=0, expected={"model": "0123"}, **terms)()
