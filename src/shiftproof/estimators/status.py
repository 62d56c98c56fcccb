"""What a monitor tells: a status, as JSON or in the text format of Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shiftproof.runs import Json


@dataclass(frozen=True)
class Status:
    """The state of live traffic over a monitor's window.

    `accuracy` is the estimate with its 95% interval and the `error` its `method` has on shifts it has not seen; all
    are None before the first inputs. `entropy` is the mean entropy of predictions and `classes` the share of each
    predicted class. `drift` is the distance of the normalisation statistics from the source's by layer, `invariance`
    that of the sampled inputs. `alarms` tells which are raised, and `failures` how often watching failed. The interval
    is for shifts like those of the calibration; `warnings` tell when the window is unlike all of them.
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
        like = "of its 95% interval, for shifts like the calibration's."
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


def _labels(labels: Mapping[str, str]) -> str:
    """Write labels in braces, with quotes, backslashes and new lines escaped."""
    if not labels:
        return ""
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
