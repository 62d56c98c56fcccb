"""What a monitor watches input by input: sureness, predicted classes and strangeness, each with a detector."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from shiftproof.estimators.calibration import Calibration
from shiftproof.estimators.detectors import Detector, HeldState, MixBets, State, mean_bets
from shiftproof.measures.estimation import Array, confidence

ALARMS = ("accuracy", "class_mix", "unfamiliar")

SIGMAS = 2.33
"""What is usual is known from few inputs: its 99% bound is taken."""

USUAL_STRANGENESS, TOLERATED_STRANGENESS = 0.5, 0.15
TOLERATED_MIX = 0.25
"""Classes may be so much more common than in the source, as a share of that, before their mix counts as changed."""


class Watch:
    """Three detectors over a stream of outputs, which share the probability `alpha` of a false alarm.

    `accuracy`: the probability of being right has fallen by more than `drop`. `class_mix`: predicted classes come in
    other shares. `unfamiliar`: inputs lie further out than those of the source. An alarm falls, and its detector starts
    anew, after a `window` of inputs that speak against it.
    """

    def __init__(self, calibration: Calibration, *, drop: float, alpha: float, window: int) -> None:
        self._mixing = calibration.mixing
        self._source = calibration.source
        names = ALARMS if self._mixing is not None else ALARMS[:1]
        self.detectors = {name: Detector(alpha / len(names)) for name in names}
        error = 0.0 if self._mixing is None else self._mixing.certainty_error
        self.least_sure = float(np.clip(self._usual - drop - SIGMAS * error, 0.01, 0.99))
        self.least_strange = USUAL_STRANGENESS - TOLERATED_STRANGENESS
        self._mix = None if self._mixing is None else MixBets(_shares(self._mixing.predicted), TOLERATED_MIX)
        self._since = {name: deque[float](maxlen=window) for name in names}
        self._window = window

    @property
    def _usual(self) -> float:
        if self._mixing is None:
            return self._source.confidence
        return float(np.average(self._mixing.certainty, weights=np.maximum(self._mixing.predicted, 1)))

    def step(self, logits: NDArray[np.float32], places: Array | None) -> None:
        """Take in the outputs of the next inputs, and where they lie."""
        if self._mixing is None or self._mix is None:
            sure = confidence(logits, self._source.temperature)
            self._take("accuracy", mean_bets(sure, self.least_sure), sure - self.least_sure)
            return
        sure = self._mixing.sureness(logits)
        self._take("accuracy", mean_bets(sure, self.least_sure), sure - self.least_sure)
        bets = self._mix(logits.argmax(1))
        self._take("class_mix", bets, -np.log(bets[:, 0]))
        if places is not None:
            common = self._mixing.strangeness(places)
            self._take("unfamiliar", mean_bets(common, self.least_strange), common - self.least_strange)

    def _take(self, name: str, bets: Array, against: Array) -> None:
        detector, since = self.detectors[name], self._since[name]
        detector.step(bets)
        if not detector.raised:
            since.clear()
            return
        since.extend(against.tolist())
        if len(since) == self._window and float(np.mean(since)) > 0:
            detector.restart()
            since.clear()

    def state_dict(self) -> State:
        """Return everything that changes as arrays."""
        state = {
            f"{name}/{key}": rows for name, one in self.detectors.items() for key, rows in one.state_dict().items()
        }
        state |= {f"{name}/since": np.array(rows) for name, rows in self._since.items()}
        return state if self._mix is None else {**state, "mix/recent": self._mix.recent.copy()}

    def load_state_dict(self, state: HeldState) -> None:
        """Go on from a state."""
        for name, one in self.detectors.items():
            one.load_state_dict({key: state[f"{name}/{key}"] for key in ("counts", "sums")})
            self._since[name] = deque(state[f"{name}/since"].tolist(), maxlen=self._window)
        if self._mix is not None:
            self._mix.recent = np.array(state["mix/recent"], np.float64)


def _shares(counts: tuple[int, ...]) -> Array:
    found: Array = (np.array(counts, np.float64) + 1) / (sum(counts) + len(counts))
    return found
