"""`Monitor`: a sliding window over live traffic that tells, without labels, how a model is doing."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shiftproof.data import Batch, ImageSet
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.estimators import neighborhoods
from shiftproof.estimators.calibration import Calibration
from shiftproof.estimators.confidence import FEW
from shiftproof.estimators.drift import Drift
from shiftproof.estimators.estimating import Estimator
from shiftproof.estimators.evidence import Evidence, at, joined, observe, sampled
from shiftproof.estimators.hysteresis import Hysteresis
from shiftproof.estimators.neighborhoods import Inputs, NeighborhoodLike
from shiftproof.estimators.statistics import doubts, summarize, values_of
from shiftproof.estimators.status import Status
from shiftproof.measures.estimation import Array, negative_entropy
from shiftproof.models.outputs import check_logits
from shiftproof.runs import write_atomically

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
    through `n` views for their invariance, and the statistics of batch norms are taken in every `drift_every`-th batch:
    with the defaults the monitor costs less than a fifth of a forward pass. The alarm `accuracy` rises when the
    estimate stays more than `drop` below the accuracy on the source and falls again within half of that; `one_class`
    when nearly all answers are the same; `drift` when the normalisation statistics stay more than twice as far from the
    source's as clean images are, until they are within one and a half times. All need `patience` looks in a row, ten of
    which fall into a window.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        calibration: Calibration,
        *,
        window: int = 1000,
        share: float = 0.01,
        neighborhood: NeighborhoodLike = "randaugment",
        n: int = 10,
        drift_every: int = 32,
        drop: float = 0.1,
        patience: int = 3,
        seed: int = 0,
    ) -> None:
        if window < FEW or not 0 <= share <= 1 or drift_every < 1 or drop <= 0 or patience < 1 or n < 1:
            raise ConfigurationError(
                "This monitor cannot work.",
                expected=f"a window of {FEW} or more, a share in [0, 1], a drop above 0; drift_every, patience and n "
                "of 1 or more",
                came=f"window={window}, share={share:g}, drop={drop:g}, {drift_every=}, {patience=}, {n=}",
            )
        self.model = model
        self.calibration = calibration
        self.window, self.share, self.n, self.drift_every, self.seed = window, share, n, drift_every, seed
        self.seen = self.batches = 0
        self._neighborhood = neighborhoods.neighborhood(neighborhood)
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
    def fit(cls, model: Callable[..., Any], source: ImageSet, **options: Any) -> Monitor:
        """Return a monitor calibrated on shifted copies of a labelled set, as `Estimator.fit` does."""
        return cls(model, Estimator.fit(model, source).calibration, **options)

    def __call__(self, inputs: Inputs) -> Tensor:
        """Return what the model answers to a batch, and take note of it."""
        tap = self._drift if self.batches % self.drift_every == 0 else None
        with tap.taking(len(inputs)) if tap is not None else nullcontext(), torch.no_grad():
            out: Tensor = self.model(inputs)
        self.observe(inputs, out)
        return out

    def observe(self, inputs: Inputs, out: Tensor) -> None:
        """Take note of a batch that was answered elsewhere: the inputs, and the logits [N, K] given."""
        answers = check_logits(out, len(inputs)).numpy()
        classes = len(self._values["class"][0]) if "class" in self._values else answers.shape[1]
        if answers.shape[1] != classes:
            raise DataError("The number of classes has changed.", expected=f"{classes}", came=f"{answers.shape[1]}")
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
        self.batches += 1
        self._since_check += len(answers)
        if self._since_check >= self.window // CHECKS and len(self._values["confidence"]) >= FEW:
            self._check()
            self._since_check = 0

    def status(self) -> Status:
        """Return what the window says now, with intervals; before the first inputs there is nothing but zeros."""
        if not self.seen:
            alarms = {name: alarm.raised for name, alarm in self.alarms.items()}
            return Status(seen=0, window=0, alarms=alarms, warnings=("No inputs have come yet.",))
        self._look()
        values = self._rows()
        statistics = summarize(values)
        method = self.calibration.choose(statistics)
        inputs = len(values["confidence"])
        found = self.calibration.estimate(method, values, inputs=inputs, seed=self.seed)
        classes = tuple(np.mean(self._values["class"], axis=0).tolist())
        return Status(
            seen=self.seen,
            window=inputs,
            accuracy=found.accuracy,
            low=found.low,
            high=found.high,
            method=method,
            error=found.error,
            entropy=float(np.mean(self._values["entropy"])),
            classes=classes,
            invariance=statistics.get("invariance"),
            drift={} if self._drift is None else self._drift.by_layer(),
            alarms={name: alarm.raised for name, alarm in self.alarms.items()},
            warnings=found.warnings + doubts(max(classes), self.calibration.source),
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
                came=f"{type(error).__name__}: {error}",
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
        inputs, keys = (joined(list(parts)) for parts in zip(*self._waiting, strict=True))
        self._waiting = []
        batch = Batch(inputs, None, keys)
        found = observe(self.model, [batch], neighborhood=self._neighborhood, n=self.n, seed=self.seed)
        values = values_of(found, self.calibration.source)
        self._note({name: values[name] for name in ("invariance", "decision_entropy")})

    def _check(self) -> None:
        """Let the alarms look at the window."""
        statistics = summarize(self._rows())
        accuracy = self.calibration.predict(self.calibration.choose(statistics), statistics)
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
