"""Black boxes that answer arrays: a remote API, a detector, another framework. Patience is part of the call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models.identity import digest
from shiftproof.models.sources import SOURCE


class Clock:
    """The time as a service knows it; a test can have another."""

    def now(self) -> float:
        """Return seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for an event; return whether it came within the time."""
        return event.wait(seconds)


class Service:
    """A black-box service: a function from images, uint8 [N, H, W, C], to one label, label map or detection per image.

    A call that raises, or takes more than `timeout` seconds, is retried up to `retries` times with exponential backoff
    (`wait`, 2 `wait`, 4 `wait`... seconds); then it is a `ModelError`.

    Args:
        function: From images, uint8 [N, H, W, C], to one answer per image.
        batch_size: Largest number of images per call.
        retries: Number of retries of a failed call.
        timeout: Seconds after which a call has failed.
        rate: Largest number of calls per second; None for no limit.
        wait: Seconds before the first retry.
        name: What reports call it.
        fingerprint: Version of the service, which its code cannot tell.
        clock: Clock used for timing.

    >>> service = Service(lambda images: images.mean(axis=(1, 2, 3)) > 127, batch_size=2)
    >>> [bool(answer) for answer in service(np.full((3, 8, 8, 3), 200, np.uint8))]
    [True, True, True]
    """

    def __init__(
        self,
        function: Callable[[NDArray[np.uint8]], Sequence[Any] | NDArray[Any]],
        *,
        batch_size: int = 64,
        retries: int = 2,
        timeout: float | None = None,
        rate: float | None = None,
        wait: float = 0.5,
        name: str | None = None,
        fingerprint: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        if batch_size < 1 or retries < 0 or wait < 0 or not all(one is None or one > 0 for one in (timeout, rate)):
            raise ConfigurationError(
                "Invalid service settings.",
                expected="batch_size of 1 or more, retries and wait of 0 or more, timeout and rate above 0 or None",
                got=f"batch_size={batch_size}, retries={retries}, wait={wait}, timeout={timeout}, rate={rate}",
            )
        self.function = function
        self.batch_size, self.retries, self.timeout, self.rate, self.wait = batch_size, retries, timeout, rate, wait
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self._given, self._clock = fingerprint, clock or Clock()
        self._free = 0.0  # when the next call may begin

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with the function, or the text that was given for them."""
        own = digest(self._given if self._given is not None else self.function)
        source = vars(self).get(SOURCE)  # the files of a `file.py` that built it
        return own if source is None else digest([own, source])

    def __call__(self, images: NDArray[np.uint8]) -> list[Any]:
        """Return one answer per image, in order."""
        answers: list[Any] = []
        for start in range(0, len(images), self.batch_size):
            answers.extend(self._ask(images[start : start + self.batch_size]))
        return answers

    def _ask(self, images: NDArray[np.uint8]) -> list[Any]:
        """Call the function until it answers or patience ends."""
        for attempt in range(self.retries + 1):
            if attempt:
                self._clock.sleep(self.wait * 2 ** (attempt - 1))
            self._take_turn()
            try:
                answers = list(self._answer(images))
                break
            except Exception as error:  # whatever a service raises is reason to ask again
                problem = error
        else:
            raise ModelError(
                f"The black box {self.name!r} failed {self.retries + 1} times on {len(images)} images.",
                reason=f"{type(problem).__name__}: {problem}",
            ) from problem
        if len(answers) != len(images):
            raise ModelError(
                f"The black box {self.name!r} returned the wrong number of answers.",
                expected=f"one answer per image: {len(images)}",
                got=f"{len(answers)} answers",
            )
        return answers

    def _take_turn(self) -> None:
        """Wait until the rate allows another call."""
        if self.rate is not None:
            now = self._clock.now()
            self._clock.sleep(max(0.0, self._free - now))
            self._free = max(now, self._free) + 1.0 / self.rate

    def _answer(self, images: NDArray[np.uint8]) -> Any:
        """Return what the function returns within the time; a call that hangs is left behind in its thread."""
        if self.timeout is None:
            return self.function(images)
        outcome: list[tuple[bool, Any]] = []
        ended = threading.Event()

        def work() -> None:
            try:
                outcome.append((True, self.function(images)))
            except Exception as error:
                outcome.append((False, error))
            finally:
                ended.set()

        threading.Thread(target=work, daemon=True, name="shiftproof-service").start()
        if not self._clock.wait(ended, self.timeout):
            raise TimeoutError(f"no answer within {self.timeout:g} s")
        answered, result = outcome[0]
        if not answered:
            raise result
        return result
