"""What comes of certifying a set of images: numbers, and a file that says what is guaranteed of which model."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from shiftproof.certificates.laws import Law, law_of
from shiftproof.certificates.radius import FloatArray, round_down
from shiftproof.certificates.rules import Fixed, rule_of
from shiftproof.certificates.smoothed import Certificate
from shiftproof.certificates.transformations import TRANSFORMATIONS
from shiftproof.errors import DataError, RunError
from shiftproof.measures import Accuracy, MeanRadius, average_radius, certified_accuracy
from shiftproof.measures.intervals import lower_bound
from shiftproof.runs import Json, write_atomically
from shiftproof.runs.files import read_json
from shiftproof.version import __version__

FORMAT = "shiftproof-certificate/1"
FIELDS = tuple(each.name for each in fields(Certificate))
"""What there is to say of an image."""
NOT_GUARANTEED = (
    "that a prediction is right: a radius says that it stays the same",
    "anything of the model without noise and a vote, in another precision, or with other weights",
    "anything finer than floating-point arithmetic: noise of 24-bit numbers is added, and scores are computed, in it",
)
FAR_AWAY = (
    "anything of images that are further away, and of changes that move many pixels by little but are far in L2: blur, "
    "fog, a shift by one pixel"
)
"""What certificates in L2 do not say besides."""
OUTSIDE = ("anything of larger ranges, and of other changes of the image, however small",)
LEFT_OUT = {
    **{name: each.limits for name, each in TRANSFORMATIONS.items()},
    **dict.fromkeys(
        ("rotation", "scaling"),
        "images that were rounded to 256 levels after they were transformed, other interpolation",
    ),
}
"""What certificates against transformations do not say besides."""
APART = "that all certificates hold at once: each of them is wrong with probability at most alpha"


@dataclass(frozen=True)
class Terms:
    """Everything that decides a certification's numbers, apart from the model and the images.

    `joint` is how many certificates hold together with probability 1 - `joint` * alpha, 0 where each is for itself;
    `wrong` says that images with a wrong guess were certified too; `denoiser` is the fingerprint of what stands before
    the model.
    """

    sigma: float
    n0: int
    rule: Mapping[str, float | int | str]
    seed: int
    dtype: str
    compiled: bool
    device: str
    shift: str
    joint: int = 0
    wrong: bool = False
    denoiser: str = ""

    @property
    def law(self) -> Law:
        """What a radius of these certificates is."""
        return law_of(self.against)

    @property
    def against(self) -> str:
        """What the certificates are against."""
        return str(self.rule["against"])

    def to_row(self) -> dict[str, Json]:
        """Return the terms as JSON values, those of the rule among them."""
        terms: dict[str, Json] = {key: value for key, value in asdict(self).items() if key != "rule"}
        return {**terms, **self.rule}


@dataclass(frozen=True)
class Certification:
    """The certificates of a set of images, with their settings.

    Without labels, `radii` counts whatever class is certified.

    Args:
        model: Name of the model.
        model_fingerprint: Fingerprint of the model.
        data: Name of the data set.
        data_fingerprint: Fingerprint of the data.
        terms: Settings of the certification: noise, rule, shift.
        keys: The keys of the images.
        labels: Class indices; None if unknown.
        certificates: One for each image.
        plain: Prediction of the model itself, without noise, for each image.
        values: Number of values per image (channels x height x width).
        room: For each image, the largest range of the transformation that keeps its values in [0, 1].
        batch_size: Noisy images per batch.
        distances: Radii at which certified accuracy is reported.
    """

    model: str
    model_fingerprint: str
    data: str
    data_fingerprint: str
    terms: Terms
    keys: tuple[int, ...] = field(repr=False)
    labels: tuple[int, ...] | None = field(repr=False)
    certificates: tuple[Certificate, ...] = field(repr=False)
    plain: tuple[int, ...] = field(repr=False)
    values: int
    room: tuple[float | None, ...] = field(repr=False)
    batch_size: int = field(default=0, compare=False)
    distances: tuple[float, ...] = field(default=(), compare=False)

    @property
    def radii(self) -> FloatArray:
        """The certified radius of each image, [N]; 0 if nothing is certified or the class is not the label."""
        radii = np.array([each.radius for each in self.certificates], float)
        if self.labels is None:
            return radii
        right: FloatArray = radii * (np.array([each.prediction for each in self.certificates]) == np.array(self.labels))
        return right

    @property
    def acr(self) -> MeanRadius:
        """The average certified radius, with its interval over images."""
        return average_radius(self.radii, rule_of(self.terms.rule).reach)

    @property
    def samples(self) -> int:
        """Total number of samples, including those used to select classes."""
        return sum(each.samples + self.terms.n0 for each in self.certificates)

    def accuracy(self, at: float = 0.0) -> Accuracy:
        """Return the certified accuracy at a radius."""
        return certified_accuracy(self.radii, at)

    @property
    def plain_accuracy(self) -> Accuracy | None:
        """Accuracy of the model itself, without smoothing; None without labels."""
        return self._right(self.plain)

    @property
    def smoothed_accuracy(self) -> Accuracy | None:
        """Accuracy of the smoothed model, by a vote of n0 samples; None without labels."""
        return self._right([each.guess for each in self.certificates])

    def _right(self, classes: Sequence[int]) -> Accuracy | None:
        if self.labels is None:
            return None
        return Accuracy(int((np.array(classes) == np.array(self.labels)).sum()), len(self.labels))

    def certified_wrong(self, at: float = 0.0) -> Accuracy | None:
        """Return the share of images certified at a radius with a wrong class; None if those were skipped."""
        if self.labels is None or not self.terms.wrong:
            return None
        wrong = [
            each.radius if each.prediction != label else 0.0
            for each, label in zip(self.certificates, self.labels, strict=True)
        ]
        return certified_accuracy(wrong, at)

    def unclipped(self, at: float) -> Accuracy:
        """Return the certified accuracy at a range over which no image value leaves [0, 1]."""
        wide = np.array([np.inf if each is None else each for each in self.room])
        return certified_accuracy(np.where(wide >= at, self.radii, 0.0), at)

    def linf(self, distance: float) -> float:
        """Return the Linf radius implied by an L2 radius: r / sqrt(d), rounded down."""
        return round_down(distance / math.sqrt(self.values))

    @property
    def acr_by_fixed(self) -> float | None:
        """The average radius expected of the rule fixed, at each image's share of hits; None for other rules.

        Only for the rule sequential: the difference is the price of stopping early.
        """
        if self.terms.rule["rule"] != "sequential":
            return None
        rule = rule_of(self.terms.rule)
        fixed = Fixed(sigma=rule.sigma, n=rule.n, alpha=rule.alpha, against=rule.against)
        counted = np.array([each.samples for each in self.certificates])
        share = np.array([each.hits for each in self.certificates]) / np.maximum(counted, 1)
        radii = fixed.radius(lower_bound(share * rule.n, rule.n, rule.alpha))
        if self.labels is not None:
            radii = radii * (np.array([each.guess for each in self.certificates]) == np.array(self.labels))
        return float(radii.mean())

    def to_row(self) -> dict[str, Json]:
        """Return the headline numbers."""
        acr = self.acr
        low, high = acr.interval or (None, None)
        return {
            "images": acr.images,
            "acr": acr.value,
            "acr_low": low,
            "acr_high": high,
            "accuracy": _value(self.plain_accuracy),
            "smoothed_accuracy": _value(self.smoothed_accuracy),
            "certified_accuracy": self.accuracy().value,
            "certified_wrong": _value(self.certified_wrong()),
            "abstained": sum(each.prediction < 0 and not each.skipped for each in self.certificates),
            "skipped": sum(each.skipped for each in self.certificates),
            "samples": self.samples,
        }

    def guarantee(self) -> str:
        """Return the guarantee in one sentence."""
        terms = self.terms
        under = "" if terms.shift == "clean" else f" under {terms.shift}"
        behind = f" behind the denoiser with fingerprint {terms.denoiser}" if terms.denoiser else ""
        alpha = float(terms.rule["alpha"])
        wrong = f"For each image by itself, this is wrong with probability at most {alpha:g}"
        if terms.joint:
            wrong = f"That any of {terms.joint:,} such certificates is wrong has probability at most "
            wrong += f"{alpha * terms.joint:g}"
        return (
            f"The model with fingerprint {self.model_fingerprint}{behind}, run in {terms.dtype} and smoothed with "
            f"{terms.law.noise.format(terms.sigma)}, gives an image{under} listed here and {terms.law.range} the same "
            f"class, `prediction`. {wrong} over the draw of the noise."
        )

    def not_guaranteed(self) -> list[str]:
        """Return the limits of the guarantee, as sentences."""
        own = [FAR_AWAY] if self.terms.against == "l2" else [*OUTSIDE, LEFT_OUT[self.terms.against]]
        return [*NOT_GUARANTEED, *own, *([] if self.terms.joint else [APART])]

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON-compatible values; radii are rounded down."""
        labels: Sequence[int | None] = self.labels if self.labels is not None else [None] * len(self.keys)
        numbers: dict[str, Json] = {
            **self.to_row(),
            "certified_accuracy_at": {f"{distance:g}": self.accuracy(distance).value for distance in self.distances},
        }
        if self.terms.wrong:
            wrong = {f"{distance:g}": _value(self.certified_wrong(distance)) for distance in self.distances}
            numbers["certified_wrong_at"] = wrong
        if any(each is not None for each in self.room):
            numbers["unclipped_at"] = {f"{each:g}": self.unclipped(each).value for each in self.distances}
        if self.terms.against == "l2":
            numbers["linf_of_l2"] = {f"{distance:g}": self.linf(distance) for distance in self.distances}
        return {
            "format": FORMAT,
            "version": __version__,
            "guarantee": self.guarantee(),
            "not_guaranteed": self.not_guaranteed(),
            "model": {"name": self.model, "fingerprint": self.model_fingerprint},
            "data": {"name": self.data, "fingerprint": self.data_fingerprint, "images": len(self.keys)},
            "terms": self.terms.to_row(),
            "batch_size": self.batch_size,
            "numbers": numbers,
            "columns": ["key", "label", "plain", "room", *FIELDS],
            "images": [
                [*about, *astuple(replace(each, radius=round_down(each.radius)))]
                for *about, each in zip(self.keys, labels, self.plain, self.room, self.certificates, strict=True)
            ],
        }

    def save(self, path: str | Path) -> Path:
        """Write the certificate file, atomically."""
        path = Path(path)
        content = self.to_json()
        head = {name: value for name, value in content.items() if name != "images"}
        rows = ",\n  ".join(json.dumps(row) for row in content["images"])  # a line per image, to be read and compared
        text = json.dumps(head, indent=1, allow_nan=False, ensure_ascii=False).removesuffix("\n}")
        write_atomically(path, f'{text},\n "images": [\n  {rows}\n ]\n}}\n')
        return path


def _value(found: Accuracy | None) -> float | None:
    return None if found is None else found.value


def load_certificate(path: str | Path) -> dict[str, Any]:
    """Load a certificate file that `Certification.save` wrote.

    Args:
        path: A file that `Certification.save` wrote.
    """
    try:
        content = read_json(Path(path))
    except OSError as error:
        raise RunError(
            f"Cannot read the certificate {str(path)!r}.", expected="what `shiftproof certify` wrote", reason=str(error)
        ) from error
    except ValueError as error:
        raise DataError(
            f"{str(path)!r} is not a certificate.", expected="what `shiftproof certify` wrote", reason=str(error)
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        got = content.get("format", "no format") if isinstance(content, dict) else "something else"
        raise DataError(f"{str(path)!r} is not a certificate of this version.", expected=FORMAT, got=str(got))
    return content
