"""Every method of estimation by name: which statistics of unlabelled inputs it reads, and how they say an accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from shiftproof.estimators import mixing
from shiftproof.estimators.evidence import Evidence
from shiftproof.estimators.references import STATISTICS, Reference, Statistic, values_of
from shiftproof.measures.estimation import Array
from shiftproof.registry import Registry


@dataclass(frozen=True)
class EstimationMethod:
    """A method that estimates accuracy from statistics of a set.

    Args:
        does: Short description for tables.
        paper: Reference.
        needs: Names of the statistics it reads, from `STATISTICS`.
        statistic: Function of its own statistic, which it reads under the method's name.
        read: From the source's reference and the statistics to an accuracy. Default: a line fitted to shifted copies.
        second_model: Whether it compares two models and reads nothing else.

    >>> mine = EstimationMethod("confidence", needs=("confidence",), read=lambda source, found: found["confidence"])
    >>> mine.second_model
    False
    """

    does: str
    paper: str = ""
    needs: tuple[str, ...] = ()
    statistic: Statistic | None = None
    read: Callable[[Reference, Mapping[str, float]], float] | None = None
    second_model: bool = False


_LINE = "a line over "
_OWN: Mapping[str, EstimationMethod] = {
    "invariance": EstimationMethod(f"{_LINE}neighborhood invariance", "Ng et al. 2023", ("invariance",)),
    "invariance_entropy": EstimationMethod(
        f"{_LINE}the entropy of decisions on views", "Ng et al. 2023", ("decision_entropy",)
    ),
    "calibrated_confidence": EstimationMethod(f"{_LINE}mean confidence", "", ("confidence",)),
    "calibrated_atc": EstimationMethod(f"{_LINE}the share above ATC's threshold", "", ("confident",)),
    "bn_distance": EstimationMethod(
        f"{_LINE}the distance of batch norm statistics", "Schneider et al. 2020", ("drift",)
    ),
    "combined": EstimationMethod(f"{_LINE}confidence and the balance of answers", "", ("confidence", "balance")),
    "calibrated_cot": EstimationMethod(f"{_LINE}COT", "", ("transport",)),
    "calibrated_cott": EstimationMethod(f"{_LINE}COTT", "", ("transported",)),
    "nuclear_norm": EstimationMethod(f"{_LINE}the nuclear norm of predictions", "Deng et al. 2023", ("nuclear",)),
    "mano": EstimationMethod(f"{_LINE}the norm of normalised logits", "Xie et al. 2024", ("mano",)),
    "average_confidence": EstimationMethod(
        "mean confidence", "Hendrycks & Gimpel 2017", ("confidence",), read=lambda _, now: now["confidence"]
    ),
    "difference_of_confidences": EstimationMethod(
        "source accuracy, less the fall in confidence",
        "Guillory et al. 2021",
        ("confidence",),
        read=lambda source, now: source.accuracy - source.confidence + now["confidence"],
    ),
    "atc_confidence": EstimationMethod(
        "the share above a threshold of confidence",
        "Garg et al. 2022",
        ("confident",),
        read=lambda _, now: now["confident"],
    ),
    "atc_entropy": EstimationMethod(
        "the share above a threshold of negative entropy",
        "Garg et al. 2022",
        ("certain",),
        read=lambda _, now: now["certain"],
    ),
    "cot": EstimationMethod(
        "one less the cost of moving predictions to labels in the source's class mix",
        "Lu et al. 2023",
        ("transport",),
        read=lambda _, now: now["transport"],
    ),
    "cott": EstimationMethod(
        "the share of predictions that are moved for less than a threshold",
        "Lu et al. 2023",
        ("transported",),
        read=lambda _, now: now["transported"],
    ),
    "cbpe": EstimationMethod(
        "the mean probability of the answers under the class mix that is found",
        "Saerens et al. 2002",
        ("posterior",),
        read=lambda _, now: now["posterior"],
    ),
    "agreement": EstimationMethod("how often a second model agrees", "Jiang et al. 2022", second_model=True),
}

METHODS: Registry[EstimationMethod] = Registry(
    "method of estimation",
    "shiftproof.estimators",
    _OWN,
    lambda found: isinstance(found, EstimationMethod),
    "an estimators.EstimationMethod",
    lambda: ("auto", *STATISTICS, *mixing.STATISTICS),
)
"""Name -> estimation method; plugins can add more, which are used if requested by name."""


def needs(method: str) -> tuple[str, ...]:
    """Return the names of the statistics a method reads, its own last."""
    found = METHODS.load(method)
    return found.needs if found.statistic is None else (*found.needs, method)


def statistic(name: str) -> Statistic:
    """Return a statistic by name: one of `STATISTICS`, or that of a method of this name."""
    known = {**STATISTICS, **mixing.STATISTICS}
    own = None if name in known else METHODS.load(name).statistic
    return known[name] if own is None else own


def values_for(found: Evidence, source: Reference, methods: Iterable[str] = ()) -> dict[str, Array]:
    """Return the values of every statistic that is known of a set, and of those that some methods have of their own."""
    own = {name: METHODS.load(name).statistic for name in methods}
    return values_of(found, source) | {
        name: each.values(found, source) for name, each in own.items() if each is not None
    }


def summary(values: Mapping[str, Array]) -> dict[str, float]:
    """Return the statistics of values, methods' own among them."""
    return {name: statistic(name).of(rows) for name, rows in values.items()}
