"""Routes through a surface that is known: how near they come to it, and how little they look at."""

from typing import Any

import numpy as np
import pytest

from shiftproof import shifts
from shiftproof.keyed import key_of
from shiftproof.runs import Inline, Plan, Store
from shiftproof.streams.ccc.schedule import LEVELS
from shiftproof.streams.ccc.steadiness import straying
from shiftproof.streams.ccc.surveying import FIRST, Survey, find_routes

PAIR, OTHER = ("contrast", "fog"), ("contrast", "brightness")
STEEPNESS = {"contrast": 0.45, "fog": 0.3, "brightness": 0.35}


def truth(label):
    """Return an accuracy that falls from 0.85 to 0.1 as severities rise."""
    steps = [] if label == "clean" else label.split(" + ")
    load = sum(STEEPNESS[name] * float(severity) for name, severity in (step.split("@") for step in steps))
    return 0.1 + 0.75 * np.exp(-(load**1.5))


class Oracle:
    """A worker that answers as a model with these accuracies would."""

    def measure(self, task):
        label, start, stop = task.condition.label, task.start, task.stop
        assert label == "clean" or shifts.parse(label).label == label
        rng = np.random.default_rng([key_of(label), start])
        return {"right": int(rng.binomial(stop - start, truth(label))), "classes": 10}


@pytest.fixture
def survey(tmp_path):
    with Store(tmp_path, {"model": "oracle"}) as store, Inline().open(Oracle) as crew:
        yield Survey(crew, Plan((), {"model": "oracle"}), store, None, 4000)


OPTIONS: dict[str, Any] = {"variant": "steady", "together": 2, "precision": 0.01, "limit": 0.05}


def along(pair, path):
    return [truth(" + ".join(f"{n}@{level / 4:g}" for n, level in zip(pair, at, strict=True) if level)) for at in path]


@pytest.mark.parametrize("target", [0.47, 0.28])
def test_a_route_stays_near_the_target_in_truth_and_says_how_near(survey, target):
    route = find_routes(survey, [PAIR], target, **OPTIONS)[PAIR]
    actual = along(PAIR, route.path)
    assert max(route.error) <= 0.01
    off = np.subtract(route.accuracy, actual)
    assert np.sqrt(np.mean((off[1:] + off[:-1]) ** 2 / 4)) < 0.01  # over two places, which is what is promised
    assert straying(actual, target, 2) < route.straying(target) + 0.02
    best = [truth(f"contrast@{i / 4:g} + fog@{j / 4:g}") for i in range(1, LEVELS) for j in range(1, LEVELS)]
    assert min(abs(value - target) for value in best) < 0.01  # the surface passes the target


def test_it_looks_closely_along_the_path_and_hardly_elsewhere(survey):
    route = find_routes(survey, [PAIR], 0.4, **OPTIONS)[PAIR]
    seen = {place: survey.edges[looks - 1] for place, looks in survey.looks[PAIR].items()}
    assert len(seen) < 0.25 * LEVELS**2
    assert np.mean([seen.get(place, 0) for place in route.path]) > 2 * FIRST
    assert np.mean([images for place, images in seen.items() if place not in route.path]) < 2 * FIRST


def test_more_precision_takes_more_images(survey, tmp_path):
    find_routes(survey, [PAIR], 0.4, **{**OPTIONS, "precision": 0.02})
    off_target = sum(count.images for count in survey.measured.values())
    survey.looks.clear()
    route = find_routes(survey, [PAIR], 0.4, **{**OPTIONS, "precision": 0.008})[PAIR]
    assert sum(count.images for count in survey.measured.values()) > 1.5 * off_target
    assert max(route.error) <= 0.008


def test_a_route_does_not_depend_on_what_else_was_looked_at(survey):
    together = find_routes(survey, [OTHER, PAIR], 0.4, **OPTIONS)
    survey.looks.clear()
    assert find_routes(survey, [PAIR], 0.4, **OPTIONS)[PAIR] == together[PAIR]


def test_a_pair_that_strays_far_is_not_looked_at_closely(survey):
    find_routes(survey, [PAIR], 0.05, **{**OPTIONS, "limit": 0.001})
    assert {looks for place, looks in survey.looks[PAIR].items() if min(place) > 0} == {1}


def test_a_pair_that_may_stray_is_looked_at_closely_where_it_does(survey):
    route = find_routes(survey, [PAIR], 0.4, **{**OPTIONS, "limit": np.inf})[PAIR]
    everywhere = sum(survey.looks[PAIR].values())
    survey.looks.clear()
    found = find_routes(survey, [PAIR], 0.4, **{**OPTIONS, "limit": 0.6 * route.straying(0.4)})[PAIR]
    assert found.straying(0.4) > 0.6 * route.straying(0.4)
    assert sum(survey.looks[PAIR].values()) < 0.9 * everywhere


def test_the_mean_is_exact_with_the_exact_search(survey):
    routes = {
        variant: find_routes(survey, [PAIR], 0.4, **{**OPTIONS, "variant": variant})[PAIR]
        for variant in ("exact", "release")
    }
    assert np.mean(routes["exact"].accuracy) == pytest.approx(0.4, abs=1e-3)
    assert all(route.path[0][1] == 0 and route.path[-1][0] == 0 for route in routes.values())
