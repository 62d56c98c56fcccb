"""What a monitor tells: a status, as JSON or in the text format of Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shiftproof.runs import Json


@dataclass(frozen=True)
class Status:
    """The state of a monitor: the estimate over its window, drift, and alarms.

    `accuracy`, `low`, `high`, `method` and `error` are None before the first inputs.

    Args:
        seen: Number of inputs so far.
        window: Number of inputs that the estimate uses.
        accuracy: The estimated accuracy, a fraction.
        low: Lower end of the interval, for shifts of families not in the calibration.
        high: Upper end of the interval.
        method: Estimation method.
        error: Mean absolute error of the method on families of shifts left out of the calibration.
        entropy: Mean entropy of predictions.
        classes: The share of each predicted class.
        invariance: Neighbourhood invariance of the sampled inputs.
        drift: Distance of normalisation statistics from those of the source, by layer.
        alarms: Which alarms are raised.
        warnings: Reasons not to trust the estimate.
        failures: Number of failures of the monitoring itself.
        level: Coverage of the interval.
        mix: Estimated share of each class.
        changed_at: Estimated position of the change behind each alarm, as a number of inputs.
        evidence: Evidence for each alarm, from 0 to 1 (raised).
        alarm_every: Lower bound on the mean number of inputs between false alarms.
        notes: Other findings.
    """

    seen: int
    window: int
    accuracy: float | None = None
    low: float | None = None
    high: float | None = None
    method: str | None = None
    error: float | None = None
    entropy: float | None = None
    classes: tuple[float, ...] = ()
    invariance: float | None = None
    drift: Mapping[str, float] = field(default_factory=dict)
    alarms: Mapping[str, bool] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    failures: int = 0
    level: float | None = None
    mix: tuple[float, ...] = ()
    changed_at: Mapping[str, int] = field(default_factory=dict)
    evidence: Mapping[str, float] = field(default_factory=dict)
    alarm_every: int | None = None
    notes: tuple[str, ...] = ()

    def to_row(self) -> dict[str, Json]:
        """Return everything as JSON-compatible values."""
        return {
            name: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
            for name, value in vars(self).items()
        }

    def json_line(self) -> str:
        """Return one line of JSON, for a log."""
        return json.dumps(self.to_row(), allow_nan=False)

    def prometheus(self, prefix: str = "shiftproof") -> str:
        """Return the numbers in Prometheus' text exposition format."""
        lines: list[str] = []
        for name, kind, text, samples in self._metrics():
            if samples:
                lines += [f"# HELP {prefix}_{name} {text}", f"# TYPE {prefix}_{name} {kind}"]
                lines += [f"{prefix}_{name}{_labels(labels)} {value:g}" for labels, value in samples]
        return "\n".join(lines) + "\n"

    def _metrics(self) -> Iterator[tuple[str, str, str, list[tuple[dict[str, str], float]]]]:
        def one(value: float | None) -> list[tuple[dict[str, str], float]]:
            return [] if value is None else [({}, value)]

        yield "inputs_total", "counter", "Inputs seen.", [({}, float(self.seen))]
        yield "window_inputs", "gauge", "Inputs in the window.", [({}, float(self.window))]
        yield "estimated_accuracy", "gauge", "Accuracy to expect, without labels.", one(self.accuracy)
        like = "of its interval, for shifts of families nobody has seen."
        yield "estimated_accuracy_low", "gauge", f"Lower end {like}", one(self.low)
        yield "estimated_accuracy_high", "gauge", f"Upper end {like}", one(self.high)
        yield "doubts", "gauge", "Warnings against the estimate.", [({}, float(len(self.warnings)))]
        yield "watching_failures_total", "counter", "Times that watching failed.", [({}, float(self.failures))]
        yield "prediction_entropy", "gauge", "Mean entropy of predictions, in nats.", one(self.entropy)
        yield "neighborhood_invariance", "gauge", "Mean invariance of sampled inputs.", one(self.invariance)
        shares = [({"class": str(label)}, share) for label, share in enumerate(self.classes)]
        yield "predicted_class_share", "gauge", "Share of each predicted class.", shares
        layers = [({"layer": name}, distance) for name, distance in self.drift.items()]
        yield "normalization_drift", "gauge", "Distance of normalisation statistics from the source's.", layers
        raised = [({"alarm": name}, float(on)) for name, on in self.alarms.items()]
        yield "alarm", "gauge", "1 where an alarm is raised.", raised
        changed = [({"alarm": name}, float(at)) for name, at in self.changed_at.items()]
        yield "alarm_changed_at_input", "gauge", "The input at which what raised an alarm began.", changed
        evidence = [({"alarm": name}, share) for name, share in self.evidence.items()]
        yield "alarm_evidence", "gauge", "How far an alarm is on its way, from 0 to 1.", evidence
        yield "alarm_every_inputs", "gauge", "Mean inputs between false alarms, at least.", one(self.alarm_every)
        mix = [({"class": str(label)}, share) for label, share in enumerate(self.mix)]
        yield "estimated_class_share", "gauge", "Share of each class, without labels.", mix


def _labels(labels: Mapping[str, str]) -> str:
    """Write labels in braces, with quotes, backslashes and new lines escaped."""
    if not labels:
        return ""
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
