"""Executors by name."""

import sys
from importlib.util import find_spec

import pytest

from shiftproof.errors import ConfigurationError
from shiftproof.runs import Inline, Processes, choose_executor
from shiftproof.runs.ray import Ray

RAY = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray, the extra `ray`")


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("inline", {}, Inline()),
        ("processes", {}, Processes(None, "cpu")),
        ("processes:4", {}, Processes(4, "cpu")),
        ("processes:3", {"device": "cuda"}, Processes(3, "cuda")),
        pytest.param("ray", {}, Ray(), marks=RAY),
        pytest.param("ray:16", {"address": "auto"}, Ray(16, "auto"), marks=RAY),
        pytest.param("ray", {"device": "cuda"}, Ray(gpus_per_worker=1.0), marks=RAY),
        pytest.param("ray", {"device": "cuda", "gpus_per_worker": 0.25}, Ray(gpus_per_worker=0.25), marks=RAY),
    ],
)
def test_names(text, options, expected):
    assert choose_executor(text, **options) == expected


def test_an_executor_is_itself():
    executor = Ray(3, cpus_per_worker=2)
    assert choose_executor(executor, device="cuda") is executor


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("procesess", {}, "did you mean  processes"),
        ("inline:2", {}, "processes:4"),
        ("processes:many", {}, "processes:4"),
        ("processes:", {}, "processes:4"),
        ("processes:0", {}, "must be positive"),
        pytest.param("ray:0", {}, "1 worker or more", marks=RAY),
        pytest.param("ray", {"gpus_per_worker": -1.0}, "GPUs -1", marks=RAY),
        ("processes", {"address": "auto"}, "ray executor"),
        ("inline", {"gpus_per_worker": 0.5}, "ray executor"),
    ],
)
def test_what_is_no_executor_is_told(text, options, told):
    with pytest.raises(ConfigurationError, match=told):
        choose_executor(text, **options)


def test_a_machine_without_ray_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'shiftproof\[ray\]'"):
        Ray().open(dict)  # type: ignore[arg-type]
    monkeypatch.setattr("shiftproof.runs.ray.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'shiftproof\[ray\]'"):
        choose_executor("ray:2")
