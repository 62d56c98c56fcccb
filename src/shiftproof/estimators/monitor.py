"""`Monitor`: a sliding window over live traffic that tells, without labels, how a model is doing."""

from __future__ import annotations

import io
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from shiftproof.data import Batch, DataLike
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.estimators import neighborhoods
from shiftproof.estimators.calibration import Calibration
from shiftproof.estimators.checks import check_mode
from shiftproof.estimators.confidence import FEW
from shiftproof.estimators.detectors import HeldState, State
from shiftproof.estimators.drift import Drift
from shiftproof.estimators.estimator import Estimator
from shiftproof.estimators.evidence import Evidence, at, joined, observe, sampled
from shiftproof.estimators.hysteresis import Hysteresis
from shiftproof.estimators.profiles import Familiarity, profile_of
from shiftproof.estimators.references import doubts, values_of
from shiftproof.estimators.status import Status
from shiftproof.estimators.watch import Watch
from shiftproof.measures.estimation import Array, negative_entropy
from shiftproof.models.feature_tap import FeaturesTap
from shiftproof.models.outputs import check_logits
from shiftproof.runs import write_atomically

FITTING = ("shifts", "sets", "neighborhood", "n", "images", "temperature", "batch_size")
"""What `Monitor.fit` passes on to the calibration."""

LOOKED_AT = 8
"""Sampled inputs wait until so many have come, and are looked at together with all their views."""

CHECKS = 10
"""The alarms on statistics of the window look at them so many times per window."""

VIEWS = ("invariance", "decision_entropy")


class Monitor:
    """Monitors a model in production: label-free accuracy, drift and alarms.

    ::

        monitor = Monitor.fit(model, source)  # labelled inputs like those the model was trained on
        monitor = Monitor(model, Calibration.load("calibration.json"))  # or with a saved calibration
        logits = monitor(inputs)  # the model's output; the window moves on
        monitor.status()  # estimated accuracy, drift, alarms

    Estimates use the latest `window` inputs. A `share` of the inputs is also evaluated on augmented views for
    invariance, as many and from the same neighbourhood as in the calibration, and batch-norm statistics are collected
    in every `drift_every`-th batch. With the defaults, monitoring costs less than a fifth of a forward pass.

    Three alarms are tested at every input (`Watch`): `accuracy`, when the calibrated probability of a correct
    prediction has fallen by more than `drop`; `class_mix`, when the shares of predicted classes change; and
    `unfamiliar`, when inputs lie further out in feature space than the source. Together they raise a false alarm in at
    most a share `alpha` of streams of 20,000 inputs. Two more alarms are checked ten times per window: `one_class`,
    when nearly all predictions are the same, and `drift`, when normalisation statistics are more than twice as far from
    the source as clean images are. They need `patience` checks in a row, and their false alarm rate is not controlled.

    Monitoring never breaks serving: if it fails, the model's output is still returned. The first failure is logged, and
    `failures` and the warnings of `status()` count them. Without a model, `observe` takes outputs computed elsewhere.

    Args:
        model: The model in production; None if outputs are passed to `observe`.
        calibration: A calibration on the labelled source.
        window: Number of latest inputs that estimates use.
        share: Share of inputs that are also evaluated on augmented views.
        drift_every: Batches between two collections of normalisation statistics.
        drop: Drop in accuracy, as a fraction, that the alarm `accuracy` tests for.
        alpha: Largest share of streams of 20,000 inputs with a false alarm.
        patience: Consecutive checks that raise the alarms `one_class` and `drift`.
        seed: Seed of the sample of inputs.

    >>> import torch
    >>> from shiftproof import load_data, load_model
    >>> model, source = load_model("demo"), load_data("demo").take(40)
    >>> monitor = Monitor.fit(model, source, shifts=["contrast@3", "fog@3"], n=2)
    >>> monitor(torch.rand(8, 3, 32, 32)).shape, monitor.status().seen
    (torch.Size([8, 10]), 8)
    """

    def __init__(
        self,
        model: Callable[..., Any] | None,
        calibration: Calibration,
        *,
        window: int = 1000,
        share: float = 0.006,
        drift_every: int = 32,
        drop: float = 0.05,
        alpha: float = 0.05,
        patience: int = 3,
        seed: int = 0,
    ) -> None:
        if window < FEW or not 0 <= share <= 1 or drift_every < 1 or drop <= 0 or patience < 1 or not 0 < alpha < 1:
            raise ConfigurationError(
                "Invalid monitor settings.",
                expected=f"a window of {FEW} or more, a share in [0, 1], a drop above 0, alpha between 0 and 1; "
                "drift_every and patience of 1 or more",
                got=f"window={window}, share={share:g}, drop={drop:g}, alpha={alpha:g}, {drift_every=}, {patience=}",
            )
        check_mode(model)
        self.model = model
        self.calibration = calibration
        self.window, self.share, self.drift_every, self.seed = window, share, drift_every, seed
        self.seen = self.batches = self.failures = 0
        self.watch = Watch(calibration, drop=drop, alpha=alpha, window=window)
        self._failure = ""
        self._held: dict[str, deque[Any]] = {}
        self._waiting: list[tuple[Any, Tensor]] = []
        self._since_check = 0
        self._watching_lock, self._tapping = threading.RLock(), threading.Lock()
        self._drift = Drift.of(model) if isinstance(model, nn.Module) else None
        wants = calibration.mixing is not None and calibration.mixing.profiler.features
        self._features = FeaturesTap.of(model) if wants else None
        usual = next((copy.statistics.get("drift") for copy in calibration.copies if copy.shift == "clean"), None)
        self._usual_drift = usual
        often = calibration.source.one_class
        self.alarms = {"one_class": Hysteresis(high=often, low=often - 0.1, patience=patience)}
        if self._drift is not None and usual is not None:
            self.alarms["drift"] = Hysteresis(high=2.0, low=1.5, patience=patience)

    @classmethod
    def fit(cls, model: Callable[..., Any], source: DataLike, **options: Any) -> Monitor:
        """Return a monitor calibrated on shifted copies of a labelled set; takes the options of `Estimator.fit` too."""
        fitting = {name: options.pop(name) for name in FITTING if name in options}
        return cls(model, Estimator.fit(model, source, seed=options.get("seed", 0), **fitting).calibration, **options)

    def __call__(self, inputs: Any) -> Any:
        """Return the model's output for a batch, unchanged, and record it."""
        if self.model is None:
            raise ConfigurationError(
                "This monitor has no model.", expected="monitor.observe(outputs=...) with outputs computed elsewhere"
            )
        with torch.no_grad():
            out, features = self._answer(self.model, inputs)
        self._take_note(inputs, out, features)
        return out

    def observe(self, inputs: Any = None, outputs: Tensor | ArrayLike | None = None) -> None:
        """Record a batch that was predicted elsewhere: its logits [N, K] and, if available, its inputs."""
        self._take_note(inputs, outputs, None)

    def _take_note(self, inputs: Any, outputs: Any, features: NDArray[np.float32] | None) -> None:
        self.batches += 1
        with self._watching():
            given = outputs if isinstance(outputs, Tensor) else torch.as_tensor(np.asarray(outputs, np.float32))
            count = len(given) if inputs is None else len(inputs)
            if count == len(given) == 0:
                return  # nothing came
            self._observe(inputs, check_logits(given.detach(), count).numpy(), features)

    def _answer(self, model: Callable[..., Any], inputs: Any) -> tuple[Any, NDArray[np.float32] | None]:
        """Return the model's answer, and features where they are wanted; at times statistics are taken on the way."""
        tap = self._features if self._features is not None and self._tapping.acquire(blocking=False) else None
        made: list[Any] = []
        try:
            takes = self._drift is not None and self.batches % self.drift_every == 0
            with tap or nullcontext(), self._drift.taking(len(inputs)) if self._drift and takes else nullcontext():
                made.append(model(inputs))
            return made[0], None if tap is None else tap.features(len(inputs))
        except Exception as error:
            out = made[0] if made else model(inputs)  # what is the model's own fault, it says again
            self._failed(error)
            return out, None
        finally:
            if tap is not None:
                self._tapping.release()

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Keep what fails inside from whoever waits for an answer; one batch is noted at a time."""
        try:
            with self._watching_lock:
                yield
        except Exception as error:  # whatever it is: the caller asked for an answer, not for a watch
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self._failure = f"{type(error).__name__}: {error}"
        if self.failures == 1:
            logging.getLogger(__name__).warning("Watching failed; the model goes on serving.", exc_info=error)

    def _observe(self, inputs: Any, answers: NDArray[np.float32], features: NDArray[np.float32] | None) -> None:
        classes = len(self._held["logits"][0]) if self._held.get("logits") else answers.shape[1]
        if answers.shape[1] != classes:
            raise DataError("The number of classes has changed.", expected=f"{classes}", got=f"{answers.shape[1]}")
        mixing = self.calibration.mixing
        places = None if mixing is None else mixing.place(_outputs_only(answers, features))
        self._note({"logits": answers} | ({} if places is None else {"places": places}))
        keys = torch.arange(self.seen, self.seen + len(answers))
        chosen = sampled(keys, self.share, self.seed) if self.share and inputs is not None else keys[:0]
        if len(chosen) and self.model is not None:
            self._waiting.append((at(_viewable(inputs), chosen), keys[chosen]))
        self.seen += len(answers)
        self._since_check += len(answers)
        self.watch.step(answers, places)
        if sum(len(keys) for _, keys in self._waiting) >= LOOKED_AT:
            self._look()
        if self._since_check >= self.window // CHECKS and len(self._held["logits"]) >= FEW:
            self._check()
            self._since_check = 0

    def status(self) -> Status:
        """Return the current state of the window, with intervals; empty before the first input."""
        with self._watching_lock:
            return self._status()

    def _status(self) -> Status:
        self._look()
        detectors = self.watch.detectors
        alarms = {name: one.raised for name, one in detectors.items()}
        alarms |= {name: one.raised for name, one in self.alarms.items()}
        told: dict[str, Any] = {
            "alarms": alarms,
            "changed_at": {name: one.changed_at for name, one in detectors.items() if one.changed_at is not None},
            "evidence": {name: one.progress for name, one in detectors.items()},
            "alarm_every": round(min(one.threshold for one in detectors.values()) / len(detectors)),
            "failures": self.failures,
        }
        failed = () if not self.failures else (f"Watching failed {self.failures:,} times, last with {self._failure}",)
        if not self.seen:
            return Status(0, 0, warnings=(*failed, "No inputs have come yet."), **told)
        found, values, place = self._found()
        made = self.calibration.estimate("auto", values, inputs=len(found), seed=self.seed, place=place)
        classes = tuple((np.bincount(found.logits.argmax(1), minlength=found.logits.shape[1]) / len(found)).tolist())
        mix = None if self.calibration.mixing is None else self.calibration.mixing.find(found)
        said = "" if mix is None else mix.told(self.calibration.classes)
        return Status(
            seen=self.seen,
            window=len(found),
            accuracy=made.accuracy,
            low=made.low,
            high=made.high,
            level=made.level,
            method=made.method,
            error=made.error,
            entropy=float(-negative_entropy(found.logits).mean()),
            classes=classes,
            mix=() if mix is None else mix.shares,
            invariance=float(values["invariance"].mean()) if "invariance" in values else None,
            drift={} if self._drift is None else self._drift.by_layer(),
            warnings=failed + made.warnings + doubts(max(classes), self.calibration.source),
            notes=(said,) if said else (),
            **told,
        )

    def state_dict(self) -> State:
        """Return the mutable state as arrays; pending sampled inputs are evaluated first."""
        with self._watching_lock:
            self._look()
            state: State = {
                "counts": np.array([self.seen, self.batches, self._since_check]),
                **{f"values/{name}": np.array(rows) for name, rows in self._held.items()},
                **{f"alarms/{name}": np.array([alarm.raised, alarm.against]) for name, alarm in self.alarms.items()},
                **{f"watch/{name}": rows for name, rows in self.watch.state_dict().items()},
            }
            return state if self._drift is None else {**state, **self._drift.state_dict()}

    def load_state_dict(self, state: HeldState) -> None:
        """Restore a state."""
        self.seen, self.batches, self._since_check = (int(count) for count in state["counts"])
        self._held, self._waiting = {}, []
        self._note({name.removeprefix("values/"): rows for name, rows in state.items() if name.startswith("values/")})
        for name, alarm in self.alarms.items():
            raised, against = state.get(f"alarms/{name}", (False, 0))
            self.alarms[name] = Hysteresis(alarm.high, alarm.low, alarm.patience, bool(raised), int(against))
        self.watch.load_state_dict(
            {name.removeprefix("watch/"): rows for name, rows in state.items() if name.startswith("watch/")}
        )
        if self._drift is not None:
            self._drift.load_state_dict(state)

    def save(self, path: str | Path) -> None:
        """Write the state to a file, atomically."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **self.state_dict())
        write_atomically(Path(path), buffer.getvalue())

    def load(self, path: str | Path) -> None:
        """Restore the state from a file."""
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as held:
                self.load_state_dict(dict(held))
        except Exception as error:  # damaged files fail in any way there is
            raise DataError(
                f"Cannot read the monitor state {str(path)!r}.",
                expected="a file that `save` wrote",
                got=f"{type(error).__name__}: {error}",
            ) from error

    def _note(self, values: Mapping[str, Any]) -> None:
        for name, rows in values.items():
            held = self._held.setdefault(name, deque(maxlen=self.window))
            if name == "places" and held and len(held[0]) != len(rows[0]):
                held.clear()  # features came, or stopped coming: the two cannot be compared
            held.extend(rows)

    def _found(self) -> tuple[Evidence, dict[str, Array], Familiarity | None]:
        """Return the outputs in the window, the values of its statistics, and where it lies among the copies."""
        found = _outputs_only(np.array(self._held["logits"], np.float32), None)
        mixing = self.calibration.mixing
        values = values_of(found, self.calibration.source) | ({} if mixing is None else mixing.values(found))
        values |= {name: np.array(self._held[name]) for name in VIEWS if self._held.get(name)}
        drift = None if self._drift is None else self._drift.mean()
        if drift is not None:
            values["drift"] = np.array([drift])
        places = np.array(self._held.get("places", ()))
        if mixing is None or len(places) != len(found):
            return found, values, None
        return found, values, self.calibration.familiar(profile_of(places, mixing.weights(found.logits)))

    def _look(self) -> None:
        """Look at the sampled inputs that wait, with all their views."""
        if not self._waiting or self.model is None:
            return
        waiting, self._waiting = self._waiting, []
        with self._watching():
            inputs, keys = (joined(list(parts)) for parts in zip(*waiting, strict=True))
            near = neighborhoods.chosen(self.calibration.neighborhood, inputs)
            batch = Batch(inputs, None, keys)
            found = observe(self.model, [batch], neighborhood=near, n=self.calibration.n, seed=self.seed)
            values = values_of(found, self.calibration.source)
            self._note({name: values[name] for name in VIEWS})

    def _check(self) -> None:
        """Let the alarms on the window's statistics look at it."""
        answers = np.array(self._held["logits"]).argmax(1)
        signals = {"one_class": float(np.bincount(answers).max() / len(answers))}
        drift = None if self._drift is None else self._drift.mean()
        if drift is not None and self._usual_drift:
            signals["drift"] = drift / self._usual_drift
        for name, signal in signals.items():
            if name in self.alarms:
                self.alarms[name] = self.alarms[name].step(signal)


def _outputs_only(answers: NDArray[np.float32], features: NDArray[np.float32] | None) -> Evidence:
    nothing = np.empty(0)
    return Evidence(answers, np.empty(0, np.int64), np.empty((0, answers.shape[1])), nothing, features=features)


def _viewable(inputs: Any) -> Any:
    """Return inputs of which views can be made: arrays as tensors, texts as a list."""
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "fu":
        scaled = inputs / 255 if inputs.dtype == np.uint8 else inputs
        return torch.from_numpy(np.asarray(scaled, np.float32))
    return inputs if isinstance(inputs, Tensor) else list(inputs)
