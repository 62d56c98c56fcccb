"""The class mix of unlabelled inputs: how it is found, whether it explains everything, and statistics without it.

A change of the class mix is no loss of accuracy, yet it moves every statistic that looks at the balance of answers.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftproof.estimators import stored_numbers as stored
from shiftproof.estimators.evidence import Evidence
from shiftproof.estimators.profiles import Profile, Profiler, profile_of
from shiftproof.estimators.references import Statistic
from shiftproof.measures.estimation import Array, entropy, probabilities
from shiftproof.measures.label_shift import (
    Scaling,
    adjusted,
    em_mix,
    fit_scaling,
    mix_explains,
    output_scores,
    to_source_mix,
)
from shiftproof.measures.output_norms import POWER, mano_rows, nuclear_norm
from shiftproof.measures.transport import cott_threshold, matched_costs
from shiftproof.runs import Json

EXPLAINED = 0.01
"""The mix explains all that changed where the residual test does not reject it at this level."""

MIN_INPUTS = 100
"""Of fewer inputs the residual test says little."""

CHANGED = 0.01
"""The level at which predicted classes count as in another mix."""

KEPT = 1000
"""At most so many source inputs are kept for the residual test."""

PER_CLASS = 5
"""Of fewer source inputs a class, the source's own mix is a matter of chance: nothing is matched with it."""

PULL = 10.0
"""Means over classes are drawn towards the mean of all as if by so many inputs."""

OUTPUTS = 3
"""The first coordinates are output scores, those after them features."""

REMIXED: Mapping[str, str] = {
    "balance": "balance_remixed",
    "transport": "transport_remixed",
    "transported": "transported_remixed",
}
"""Statistic -> the same after the target has been brought to the class mix of the source."""


def _balance(mean: Array) -> Array:
    return entropy(mean / mean.sum(-1, keepdims=True))


def _unknown(*_: object) -> Array:
    return np.empty(0)  # `Mixing` gives the values: a reference alone does not know them


STATISTICS: Mapping[str, Statistic] = {
    "posterior": Statistic(_unknown),
    "balance_remixed": Statistic(_unknown, _balance),
    "transport": Statistic(_unknown),
    "transport_remixed": Statistic(_unknown),
    "transported": Statistic(_unknown),
    "transported_remixed": Statistic(_unknown),
    "nuclear": Statistic(_unknown),
    "mano": Statistic(_unknown, lambda mean: mean ** (1 / POWER)),
    "mix_explains": Statistic(_unknown),
}
"""Name -> statistic: the mean probability of the answers under the mix found (CBPE), one less the cost of optimal
transport (COT) and the share below COTT's threshold, norms of outputs, and the p-value of the residual test."""


def _by_class(values: Array, classes: NDArray[np.int64], count: int) -> Array:
    """Return the mean of values by class, [K], drawn towards the mean of all by as much as ten values."""
    sums, sizes = np.bincount(classes, values, count), np.bincount(classes, minlength=count)
    found: Array = (sums + PULL * values.mean()) / (sizes + PULL)
    return found


@dataclass(frozen=True)
class ClassMix:
    """The shares of classes in a set, as found without labels, and those of the source.

    `explains` is the p-value that another mix is all that changed, `changed` that predicted classes are as ever.
    """

    shares: tuple[float, ...]
    source: tuple[float, ...]
    explains: float
    changed: float
    inputs: int

    @property
    def alone(self) -> bool:
        """Whether the mix explains all that changed."""
        return self.explains >= EXPLAINED and self.inputs >= MIN_INPUTS

    def told(self, classes: Sequence[str]) -> str:
        """Say which classes are more and less common than in the source, or nothing where the mix is as ever."""
        if self.changed > CHANGED:
            return ""
        gaps = np.array(self.shares) - np.array(self.source)
        named = [classes[k] if k < len(classes) else f"class {k}" for k in range(len(gaps))]

        def listed(places: NDArray[np.int64], over: str) -> str:
            some = [f"{named[k]} {100 * self.source[k]:.0f} to {100 * self.shares[k]:.0f}%" for k in places]
            return f"{over} {', '.join(some)}" if some else ""

        order = gaps.argsort()
        more, fewer = order[::-1][:3], order[:2]
        parts = [listed(more[gaps[more] > 0.02], "more"), listed(fewer[gaps[fewer] < -0.02], "fewer")]
        said = "; ".join(part for part in parts if part)
        if not said:
            return ""
        if self.alone:
            return f"Class mix changed: {said}. Nothing says that accuracy fell with it."
        return (
            f"Answers are in another mix: {said}. Whether the classes are, or the errors, cannot be told from outputs, "
            "as more than the mix has changed."
        )


@dataclass(frozen=True)
class Mixing:
    """What the labelled source says of its class mix: calibrated probabilities, their mean, and how each class looks.

    `coordinates` [M][D] (of outputs and features, by the `profiler`) and `labels` [M] are of source inputs, for the
    residual test; `predicted` are the counts of answers, `threshold` is COTT's. `certainty` [K] is the mean probability
    of the answers by predicted class, and `certainty_error` the standard error of their mean.
    """

    temperature: float
    biases: tuple[float, ...]
    mix: tuple[float, ...]
    threshold: float
    coordinates: tuple[tuple[float, ...], ...]
    labels: tuple[int, ...]
    predicted: tuple[int, ...]
    profiler: Profiler
    certainty: tuple[float, ...]
    certainty_error: float

    @classmethod
    def of(cls, source: Evidence, labels: NDArray[np.int64]) -> Mixing:
        """Learn from a labelled source."""
        scaling = fit_scaling(source.logits, labels)
        p, scores = scaling(source.logits), output_scores(source.logits, scaling)
        profiler = Profiler.of(source, scores)
        classes = p.shape[1]
        costs = matched_costs(p, np.bincount(labels, minlength=classes).astype(np.float64))
        return cls(
            temperature=scaling.temperature,
            biases=tuple(scaling.biases.tolist()),
            mix=tuple(p.mean(0).tolist()),
            threshold=cott_threshold(costs, int((~source.correct).sum())),
            coordinates=tuple(map(tuple, profiler.coordinates(source, scores)[:KEPT].round(4).tolist())),
            labels=tuple(labels[:KEPT].tolist()),
            predicted=tuple(np.bincount(source.logits.argmax(1), minlength=classes).tolist()),
            profiler=profiler,
            certainty=tuple(_by_class(p.max(1), source.logits.argmax(1), classes).tolist()),
            certainty_error=float(p.max(1).std() / np.sqrt(len(p))),
        )

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Mixing:
        """Return what `to_row` wrote."""
        profiler, classes = Profiler.from_row(row["profiler"]), len(row["mix"])
        coordinates = stored.matrix(row["coordinates"], len(profiler.level) + len(profiler.projection))
        labels = tuple(map(stored.count, row["labels"]))
        if classes < 2 or not coordinates or len(labels) != len(coordinates) or max(labels) >= classes:
            raise ValueError(f"{len(labels)} labels of {len(coordinates)} inputs of {classes} classes were stored")
        if len(profiler.level) != OUTPUTS or (not profiler.features and len(profiler.center) != classes):
            raise ValueError("the coordinates of inputs are of another kind")
        return cls(
            temperature=stored.number(row["temperature"], low=0.01),
            biases=stored.vector(row["biases"], classes),
            mix=stored.mix(row["mix"], classes),
            threshold=stored.number(row["threshold"]),
            coordinates=coordinates,
            labels=labels,
            predicted=tuple(map(stored.count, stored.vector(row["predicted"], classes, low=0))),
            profiler=profiler,
            certainty=stored.vector(row["certainty"], classes, 0, 1),
            certainty_error=stored.number(row["certainty_error"], low=0),
        )

    def to_row(self) -> dict[str, Json]:
        """Return everything as JSON-compatible values."""
        return asdict(self)

    @cached_property
    def scaling(self) -> Scaling:
        """The calibration of probabilities."""
        return Scaling(self.temperature, np.array(self.biases))

    @cached_property
    def source_mix(self) -> Array:
        """The class mix of the source, [K]."""
        return np.array(self.mix)

    def place(self, found: Evidence) -> Array:
        """Return the coordinates of inputs, [N, D]; those of the set that was placed last are known while it lives."""
        places: Array
        known, places = self.__dict__.get("_placed", (None, None))  # set at once: threads share a calibration
        if known is None or known() is not found:
            places = self.profiler.coordinates(found, output_scores(found.logits, self.scaling))
            self.__dict__["_placed"] = weakref.ref(found), places
        return places

    def __getstate__(self) -> dict[str, object]:
        """Leave behind where the last set was placed."""
        return {name: value for name, value in self.__dict__.items() if name != "_placed"}

    def profile(self, found: Evidence) -> Profile:
        """Return where a set lies, brought to the class mix of the source."""
        return profile_of(self.place(found), self.weights(found.logits))

    def find(self, found: Evidence) -> ClassMix:
        """Return the class mix of a set, and whether it explains all that changed in outputs and features."""
        from scipy.stats import chi2_contingency

        logits = found.logits
        shares = em_mix(self.scaling(logits), self.source_mix)
        counts = np.stack([self.predicted, np.bincount(logits.argmax(1), minlength=len(self.mix))])
        counts = counts[:, counts.sum(0) > 0]
        changed = float(chi2_contingency(counts).pvalue) if counts.shape[1] > 1 else 1.0
        weights = np.divide(shares, self.source_mix, out=np.zeros_like(shares), where=self.source_mix > 0)
        own, places = self._places, self.place(found)
        parts = [slice(OUTPUTS), slice(OUTPUTS, None)] if places.shape[1] > OUTPUTS else [slice(OUTPUTS)]
        each = [mix_explains(own[:, part], self._labels, weights, places[:, part]) for part in parts]
        explains = min(1.0, len(each) * min(each))
        return ClassMix(tuple(shares.tolist()), self.mix, explains, changed, len(logits))

    def posteriors(self, logits: NDArray[np.float32]) -> Array:
        """Return the probabilities of the classes under the mix that is found, [N, K]."""
        p = self.scaling(logits)
        return adjusted(p, self.source_mix, em_mix(p, self.source_mix))

    def values(self, found: Evidence, told: ClassMix | None = None) -> dict[str, Array]:
        """Return the values of the statistics of a set, one row per input, or one row where they are of the set."""
        logits = found.logits
        p = self.scaling(logits)
        told = told or self.find(found)
        mix = np.array(told.shares)
        posteriors = adjusted(p, self.source_mix, mix)
        plain = probabilities(logits, self.temperature)
        matched = {}
        if sum(self.predicted) >= PER_CLASS * len(self.mix):
            as_source, as_found = (matched_costs(p, each) for each in (self.source_mix, mix))
            matched = {
                "transport": 1 - as_source,
                "transport_remixed": 1 - as_found,
                "transported": (as_source < self.threshold).astype(np.float64),
                "transported_remixed": (as_found < self.threshold).astype(np.float64),
            }
        return {
            **matched,
            "posterior": posteriors[np.arange(len(p)), logits.argmax(1)],
            "balance_remixed": to_source_mix(posteriors, self.source_mix, mix)[:, None] * plain,
            "nuclear": np.array([nuclear_norm(plain)]),
            "mano": mano_rows(logits, self.temperature),
            "mix_explains": np.array([told.explains if told.alone else 0.0]),
        }

    def sureness(self, logits: NDArray[np.float32]) -> Array:
        """Return how likely each answer is right, [N], as if its class were as hard as any: a mix hardly moves it."""
        usual = np.array(self.certainty)
        overall = float(np.average(usual, weights=np.maximum(self.predicted, 1)))
        found: Array = self.scaling(logits).max(1) - usual[logits.argmax(1)] + overall
        return np.clip(found, 0, 1)

    def strangeness(self, places: Array) -> Array:
        """Return the share of source inputs that lie as far from its centre as each input at coordinates [N, D]."""
        own = np.sort(np.square(self._places[:, : places.shape[1]]).sum(1))
        found: Array = 1 - np.searchsorted(own, np.square(places).sum(1)) / len(own)
        return found

    def weights(self, logits: NDArray[np.float32]) -> Array:
        """Return weights of inputs, [N], under which their classes come in the source's mix."""
        p = self.scaling(logits)
        mix = em_mix(p, self.source_mix)
        return to_source_mix(adjusted(p, self.source_mix, mix), self.source_mix, mix)

    @cached_property
    def _places(self) -> Array:
        return np.array(self.coordinates)

    @cached_property
    def _labels(self) -> NDArray[np.int64]:
        return np.array(self.labels, np.int64)
