"""`Monitor`: a sliding window over live traffic that tells, without labels, how a model is doing."""

from __future__ import annotations

import io
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shiftproof.data import Batch, Dataset
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.estimators import neighborhoods
from shiftproof.estimators.calibration import Calibration
from shiftproof.estimators.confidence import FEW
from shiftproof.estimators.drift import Drift
from shiftproof.estimators.estimating import Estimator
from shiftproof.estimators.evidence import Evidence, at, joined, observe, sampled
from shiftproof.estimators.hysteresis import Hysteresis
from shiftproof.estimators.neighborhoods import Inputs
from shiftproof.estimators.references import doubts, summarize, values_of
from shiftproof.estimators.status import Status
from shiftproof.measures.estimation import Array, negative_entropy
from shiftproof.models.outputs import check_logits
from shiftproof.runs import write_atomically

FITTING = ("shifts", "neighborhood", "n", "images", "temperature", "batch_size")
"""What `Monitor.fit` passes on to the calibration."""

LOOKED_AT = 8
"""Sampled inputs wait until so many have come, and are looked at together with all their views."""

CHECKS = 10
"""The alarms look at the estimate so many times per window."""


class Monitor:
    """A model that serves, and keeps watch over itself.

    monitor = Monitor.fit(model, source)      # labelled images like those the model was made for
    logits = monitor(images)                  # what the model answers; the window moves on
    monitor.status()                          # accuracy to expect, drift, alarms

    `window` is the number of latest inputs that estimates are made of. A `share` of the inputs is also looked at
    through views for their invariance, as many and of the same neighbourhood as in the calibration, and the statistics
    of batch norms are taken in every `drift_every`-th batch: with the defaults the monitor costs less than a fifth of a
    forward pass. The alarm `accuracy` rises when the estimate stays more than `drop` below the accuracy on the source
    and falls again within half of that; `one_class` when nearly all answers are the same; `drift` when the
    normalisation statistics stay more than twice as far from the source's as clean images are, until they are within
    one and a half times. All need `patience` looks in a row, ten of which fall into a window.

    Watching never breaks serving: whatever fails in it, the model's answer is returned. The first failure is logged,
    and `failures` and the warnings of `status()` tell how many there were.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        calibration: Calibration,
        *,
        window: int = 1000,
        share: float = 0.01,
        drift_every: int = 32,
        drop: float = 0.1,
        patience: int = 3,
        seed: int = 0,
    ) -> None:
        if window < FEW or not 0 <= share <= 1 or drift_every < 1 or drop <= 0 or patience < 1:
            raise ConfigurationError(
                "This monitor cannot work.",
                expected=f"a window of {FEW} or more, a share in [0, 1], a drop above 0; drift_every and patience of 1 "
                "or more",
                got=f"window={window}, share={share:g}, drop={drop:g}, {drift_every=}, {patience=}",
            )
        self.model = model
        self.calibration = calibration
        self.window, self.share, self.drift_every, self.seed = window, share, drift_every, seed
        self.seen = self.batches = self.failures = 0
        self._failure = ""
        self._values: dict[str, deque[Any]] = {}
        self._waiting: list[tuple[Inputs, Tensor]] = []
        self._since_check = 0
        self._drift = Drift.of(model) if isinstance(model, nn.Module) else None
        usual = next((copy.statistics.get("drift") for copy in calibration.copies if copy.shift == "clean"), None)
        self._usual_drift = usual
        often = calibration.source.one_class
        self.alarms = {
            "accuracy": Hysteresis(high=drop, low=drop / 2, patience=patience),
            "one_class": Hysteresis(high=often, low=often - 0.1, patience=patience),
        }
        if self._drift is not None and usual is not None:
            self.alarms["drift"] = Hysteresis(high=2.0, low=1.5, patience=patience)

    @classmethod
    def fit(cls, model: Callable[..., Any], source: Dataset, **options: Any) -> Monitor:
        """Return a monitor calibrated on shifted copies of a labelled set, with the options of `Estimator.fit` too."""
        fitting = {name: options.pop(name) for name in FITTING if name in options}
        return cls(model, Estimator.fit(model, source, seed=options.get("seed", 0), **fitting).calibration, **options)

    def __call__(self, inputs: Inputs) -> Tensor:
        """Return what the model answers to a batch, and take note of it."""
        with torch.no_grad():
            out = self._answer(inputs)
        self.observe(inputs, out)
        return out

    def observe(self, inputs: Inputs, out: Tensor) -> None:
        """Take note of a batch that was answered elsewhere: the inputs, and the logits [N, K] given."""
        self.batches += 1
        with self._watching():
            self._observe(inputs, check_logits(out, len(inputs)).numpy())

    def _answer(self, inputs: Inputs) -> Tensor:
        """Return the model's answer; every so often the statistics inside it are taken on the way."""
        out: Tensor | None = None
        if self._drift is not None and self.batches % self.drift_every == 0:
            try:
                with self._drift.taking(len(inputs)):
                    out = self.model(inputs)
            except Exception as error:
                out = self.model(inputs) if out is None else out  # what is the model's own fault, it says again
                self._failed(error)
        return self.model(inputs) if out is None else out

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Keep what fails inside from whoever waits for an answer."""
        try:
            yield
        except Exception as error:  # whatever it is: the caller asked for an answer, not for a watch
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self._failure = f"{type(error).__name__}: {error}"
        if self.failures == 1:
            logging.getLogger(__name__).warning("Watching failed; the model goes on serving.", exc_info=error)

    def _observe(self, inputs: Inputs, answers: NDArray[np.float32]) -> None:
        classes = len(self._values["class"][0]) if "class" in self._values else answers.shape[1]
        if answers.shape[1] != classes:
            raise DataError("The number of classes has changed.", expected=f"{classes}", got=f"{answers.shape[1]}")
        self._note(values_of(_outputs_only(answers), self.calibration.source))
        predicted = np.eye(classes, dtype=np.float64)[answers.argmax(1)]
        self._note({"class": predicted, "entropy": -negative_entropy(answers)})
        keys = torch.arange(self.seen, self.seen + len(answers))
        chosen = sampled(keys, self.share, self.seed) if self.share else keys[:0]
        if len(chosen):
            self._waiting.append((at(inputs, chosen), keys[chosen]))
        if sum(len(keys) for _, keys in self._waiting) >= LOOKED_AT:
            self._look()
        self.seen += len(answers)
        self._since_check += len(answers)
        if self._since_check >= self.window // CHECKS and len(self._values["confidence"]) >= FEW:
            self._check()
            self._since_check = 0

    def status(self) -> Status:
        """Return what the window says now, with intervals; before the first inputs there is nothing but zeros."""
        self._look()
        alarms = {name: alarm.raised for name, alarm in self.alarms.items()}
        failed = () if not self.failures else (f"Watching failed {self.failures:,} times, last with {self._failure}",)
        if not self.seen:
            return Status(0, 0, alarms=alarms, warnings=(*failed, "No inputs have come yet."), failures=self.failures)
        values = self._rows()
        statistics, inputs = summarize(values), len(values["confidence"])
        found = self.calibration.estimate("auto", values, inputs=inputs, seed=self.seed)
        classes = tuple(np.mean(self._values["class"], axis=0).tolist())
        return Status(
            seen=self.seen,
            window=inputs,
            accuracy=found.accuracy,
            low=found.low,
            high=found.high,
            method=found.method,
            error=found.error,
            entropy=float(np.mean(self._values["entropy"])),
            classes=classes,
            invariance=statistics.get("invariance"),
            drift={} if self._drift is None else self._drift.by_layer(),
            alarms=alarms,
            warnings=failed + found.warnings + doubts(max(classes), self.calibration.source),
            failures=self.failures,
        )

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return everything that changes as arrays; sampled inputs that wait are looked at first."""
        self._look()
        state: dict[str, NDArray[Any]] = {
            "counts": np.array([self.seen, self.batches, self._since_check]),
            **{f"values/{name}": np.array(rows) for name, rows in self._values.items()},
            **{f"alarms/{name}": np.array([alarm.raised, alarm.against]) for name, alarm in self.alarms.items()},
        }
        return state if self._drift is None else {**state, **self._drift.state_dict()}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a state."""
        self.seen, self.batches, self._since_check = (int(count) for count in state["counts"])
        self._values, self._waiting = {}, []
        self._note({name.removeprefix("values/"): rows for name, rows in state.items() if name.startswith("values/")})
        for name, alarm in self.alarms.items():
            raised, against = state.get(f"alarms/{name}", (False, 0))
            self.alarms[name] = Hysteresis(alarm.high, alarm.low, alarm.patience, bool(raised), int(against))
        if self._drift is not None:
            self._drift.load_state_dict(state)

    def save(self, path: str | Path) -> None:
        """Write the state to a file, whole or not at all."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **self.state_dict())
        write_atomically(Path(path), buffer.getvalue())

    def load(self, path: str | Path) -> None:
        """Go on from the state in a file."""
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as held:
                self.load_state_dict(dict(held))
        except Exception as error:  # damaged files fail in any way there is
            raise DataError(
                f"There is no state of a monitor in {str(path)!r}.",
                expected="a file that `save` wrote",
                got=f"{type(error).__name__}: {error}",
            ) from error

    def _note(self, values: Mapping[str, Array]) -> None:
        for name, rows in values.items():
            self._values.setdefault(name, deque(maxlen=self.window)).extend(rows)

    def _rows(self) -> dict[str, Array]:
        """Return the values of the window by statistic, with the drift where it is known."""
        rows = {name: np.array(held) for name, held in self._values.items() if name not in ("class", "entropy")}
        drift = None if self._drift is None else self._drift.mean()
        return rows if drift is None else {**rows, "drift": np.array([drift])}

    def _look(self) -> None:
        """Look at the sampled inputs that wait, with all their views."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        with self._watching():
            inputs, keys = (joined(list(parts)) for parts in zip(*waiting, strict=True))
            near = neighborhoods.chosen(self.calibration.neighborhood, inputs)
            batch = Batch(inputs, None, keys)
            found = observe(self.model, [batch], neighborhood=near, n=self.calibration.n, seed=self.seed)
            values = values_of(found, self.calibration.source)
            self._note({name: values[name] for name in ("invariance", "decision_entropy")})

    def _check(self) -> None:
        """Let the alarms look at the window."""
        statistics = summarize(self._rows())
        accuracy = self.calibration.say("auto", statistics).value
        signals = {
            "accuracy": self.calibration.source.accuracy - accuracy,
            "one_class": float(np.mean(self._values["class"], axis=0).max()),
        }
        if "drift" in statistics and self._usual_drift:
            signals["drift"] = statistics["drift"] / self._usual_drift
        for name, signal in signals.items():
            if name in self.alarms:
                self.alarms[name] = self.alarms[name].step(signal)


def _outputs_only(answers: NDArray[np.float32]) -> Evidence:
    nothing = np.empty(0)
    return Evidence(answers, np.empty(0, np.int64), np.empty((0, answers.shape[1])), nothing)
