"""What a monitor tells: a status, as JSON or in the text format of Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shiftproof.runs import Json


@dataclass(frozen=True)
class Status:
    """The state of live traffic over a monitor's window.

    `accuracy` is the estimate with its interval at a `level` for shifts of families nobody has seen, and the `error`
    its `method` has on these; all are None before the first inputs. `entropy` is the mean entropy of predictions,
    `classes` the share of each predicted class and `mix` the class mix that is found. `drift` is the distance of the
    normalisation statistics from the source's by layer, `invariance` that of the sampled inputs. `alarms` tells which
    are raised, `changed_at` the input at which what raised them began, `evidence` how far each is on its way (from 0 to
    1), and `alarm_every` how many inputs lie between false alarms on average, at least. `failures` counts how often
    watching failed; `warnings` speak against the estimate, `notes` say what else was found.

    Args:
        seen: Number of inputs so far.
        window: Number of inputs that the estimate is made of.
        accuracy: The estimated accuracy, a fraction.
        low: The lower end of its interval.
        high: The upper end of its interval.
        method: What estimated it.
        error: Mean absolute error of the method on families of shifts that were left out.
        entropy: Mean entropy of predictions.
        classes: The share of each predicted class.
        invariance: Neighbourhood invariance of the sampled inputs.
        drift: Distance of normalisation statistics from the source's, by layer.
        alarms: Which alarms are raised.
        warnings: Why the estimate should not be trusted.
        failures: How often watching failed.
        level: The confidence of the interval.
        mix: The class mix that is found.
        changed_at: The input at which what raised an alarm began.
        evidence: How near each alarm is, from 0 to 1.
        alarm_every: Inputs between two false alarms on average, at least.
        notes: What else was found.
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
        """Return everything as JSON values."""
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
