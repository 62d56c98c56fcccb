"""Black boxes that fail, hang, or must not be hurried."""

import threading
import time

import numpy as np
import pytest

from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.searchers import Service

IMAGES = np.zeros((10, 8, 8, 3), np.uint8)


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


def test_a_call_that_hangs_is_given_up_and_made_again():
    released = threading.Event()
    calls = []

    def hangs_once(images):
        calls.append(1)
        if len(calls) == 1:
            released.wait(20)
        return [1] * len(images)

    assert Service(hangs_once, timeout=0.1, wait=0)(IMAGES) == [1] * 10
    released.set()
    assert len(calls) == 2


def test_what_hangs_forever_is_reported():
    released = threading.Event()
    with pytest.raises(ModelError, match=r"no answer within 0\.05 s"):
        Service(lambda images: [released.wait(20)], timeout=0.05, retries=1, wait=0)(IMAGES)
    released.set()


def test_an_error_within_the_time_limit_is_itself():
    with pytest.raises(ModelError, match="no route"):
        Service(Flaky(9), timeout=5, retries=0)(IMAGES)


def test_calls_keep_to_the_rate():
    times = []

    def punctual(images):
        times.append(time.monotonic())
        return [0] * len(images)

    Service(punctual, batch_size=2, rate=50)(IMAGES)
    assert len(times) == 5
    assert min(np.diff(times)) > 0.015  # a lower bound, which a busy machine cannot break


def test_an_answer_per_image_is_asked_for():
    with pytest.raises(ModelError, match="does not answer every image"):
        Service(lambda images: [0], retries=0)(IMAGES)


@pytest.mark.parametrize("option", [{"batch_size": 0}, {"retries": -1}, {"timeout": 0}, {"rate": 0}, {"wait": -1}])
def test_what_cannot_be_asked(option):
    with pytest.raises(ConfigurationError, match="cannot be called"):
        Service(lambda images: images, **option)
