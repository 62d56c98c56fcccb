"""Black boxes that fail, hang, or must not be hurried."""

import threading

import numpy as np
import pytest

from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.searchers import Service
from shiftproof.searchers.service import Clock

IMAGES = np.zeros((10, 8, 8, 3), np.uint8)


class Pretended(Clock):
    """Time that passes only where it is let; a call that hangs is out of time at once, any other has all it needs."""

    def __init__(self):
        self.time, self.slept = 100.0, []
        self.hanging = threading.Event()

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.time += seconds

    def wait(self, event, seconds):
        while not event.wait(0.001):
            if self.hanging.is_set():
                self.hanging.clear()
                self.time += seconds
                return False
        return True

    def hang(self, released):
        self.hanging.set()
        released.wait()


@pytest.fixture
def clock():
    return Pretended()


@pytest.fixture
def released():
    """Let go of what hangs, at the end."""
    event = threading.Event()
    yield event
    event.set()


class Flaky:
    """Fails the first calls on every batch."""

    def __init__(self, failures):
        self.failures = failures
        self.calls = []

    def __call__(self, images):
        self.calls.append(len(images))
        if len(self.calls) % (self.failures + 1):
            raise ConnectionError("no route")
        return [0] * len(images)


def test_calls_are_batched_in_order():
    seen = []

    def first_pixel(images):
        seen.append(len(images))
        return images[:, 0, 0, 0]

    service = Service(first_pixel, batch_size=4)
    images = IMAGES.copy()
    images[:, 0, 0, 0] = range(10)
    assert service(images) == list(range(10))
    assert seen == [4, 4, 2]


def test_a_failing_call_is_made_again():
    flaky = Flaky(2)
    assert Service(flaky, retries=2, wait=0)(IMAGES) == [0] * 10
    assert flaky.calls == [10, 10, 10]


def test_patience_ends():
    flaky = Flaky(3)
    with pytest.raises(ModelError, match="failed 3 times on 10 images") as caught:
        Service(flaky, retries=2, wait=0, name="remote")(IMAGES)
    assert "no route" in str(caught.value)
    assert len(flaky.calls) == 3


def test_a_call_that_hangs_is_given_up_and_made_again(clock, released):
    calls = []

    def hangs_once(images):
        calls.append(1)
        if len(calls) == 1:
            clock.hang(released)
        return [1] * len(images)

    assert Service(hangs_once, timeout=30, wait=0, clock=clock)(IMAGES) == [1] * 10
    assert len(calls) == 2
    assert clock.time == 130.0


def test_what_hangs_forever_is_reported(clock, released):
    with pytest.raises(ModelError, match=r"no answer within 0\.05 s"):
        Service(lambda images: clock.hang(released), timeout=0.05, retries=1, wait=0, clock=clock)(IMAGES)


def test_time_runs_out_by_the_clock_on_the_wall_too(released):
    with pytest.raises(ModelError, match=r"no answer within 0\.01 s"):
        Service(lambda images: released.wait(), timeout=0.01, retries=1, wait=0)(IMAGES)


def test_an_error_within_the_time_limit_is_itself(clock):
    with pytest.raises(ModelError, match="no route"):
        Service(Flaky(9), timeout=5, retries=0, clock=clock)(IMAGES)


def test_waits_double_between_calls(clock):
    with pytest.raises(ModelError, match="failed 4 times"):
        Service(Flaky(9), retries=3, wait=0.5, clock=clock)(IMAGES)
    assert clock.slept == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(("takes", "begun"), [(0.0, [0, 0.25, 0.5, 0.75, 1]), (0.125, [0, 0.25, 0.5, 0.75, 1])])
def test_calls_keep_to_the_rate(clock, takes, begun):
    times = []

    def punctual(images):
        times.append(clock.now() - 100)
        clock.time += takes
        return [0] * len(images)

    Service(punctual, batch_size=2, rate=4, clock=clock)(IMAGES)
    assert times == begun


def test_a_slow_service_is_not_made_slower(clock):
    times = []

    def slow(images):
        times.append(clock.now() - 100)
        clock.time += 1
        return [0] * len(images)

    Service(slow, batch_size=2, rate=4, clock=clock)(IMAGES)
    assert times == [0, 1, 2, 3, 4]
    assert sum(clock.slept) == 0


def test_an_answer_per_image_is_asked_for():
    with pytest.raises(ModelError, match="wrong number of answers"):
        Service(lambda images: [0], retries=0)(IMAGES)


@pytest.mark.parametrize("option", [{"batch_size": 0}, {"retries": -1}, {"timeout": 0}, {"rate": 0}, {"wait": -1}])
def test_what_cannot_be_asked(option):
    with pytest.raises(ConfigurationError, match="Invalid service settings"):
        Service(lambda images: images, **option)
