"""What comes of certifying a set of images: numbers, and a file that says what is guaranteed of which model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from shiftproof.certificates.radius import FloatArray, round_down
from shiftproof.certificates.rules import rule_of
from shiftproof.certificates.smoothed import Certificate
from shiftproof.errors import DataError, RunError
from shiftproof.measures import Accuracy, MeanRadius, average_radius, certified_accuracy
from shiftproof.runs import Json, write_atomically
from shiftproof.runs.files import read_json
from shiftproof.version import __version__

FORMAT = "shiftproof-certificate/1"
FIELDS = tuple(each.name for each in fields(Certificate))
"""What there is to say of an image."""
STEPS = 8
"""Certified accuracy is written at so many distances above 0, up to the largest radius the samples can show."""

NOT_GUARANTEED = (
    "that a prediction is right: a radius says that it stays the same",
    "anything of the model without noise, in another precision, or with other weights",
    "anything of images that are further away, and of changes that move many pixels by little but are far in L2: blur, "
    "fog, a shift by one pixel",
    "that all certificates hold at once: each of them is wrong with probability at most alpha",
)


@dataclass(frozen=True)
class Terms:
    """Everything that decides a certification's numbers, apart from the model and the images."""

    sigma: float
    n0: int
    rule: Mapping[str, float | int | str]
    seed: int
    dtype: str
    compiled: bool
    device: str
    shift: str

    def to_row(self) -> dict[str, Json]:
        """Return the terms as JSON values, those of the rule among them."""
        terms: dict[str, Json] = {key: value for key, value in asdict(self).items() if key != "rule"}
        return {**terms, **self.rule}


@dataclass(frozen=True)
class Certification:
    """Certificates of a set of images, with what they are about.

    `labels` are None where nobody knows them; then `radii` counts whatever class is certified. `batch_size` is how many
    noisy images the model was given at a time.
    """

    model: str
    model_fingerprint: str
    data: str
    data_fingerprint: str
    terms: Terms
    keys: tuple[int, ...]
    labels: tuple[int, ...] | None
    certificates: tuple[Certificate, ...]
    batch_size: int = field(default=0, compare=False)

    @property
    def radii(self) -> FloatArray:
        """The certified radius of each image, [N], 0 where nothing is certified or the class is not the label."""
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
        """All samples drawn, those that chose classes included."""
        return sum(each.samples + self.terms.n0 for each in self.certificates)

    def accuracy(self, at: float = 0.0) -> Accuracy:
        """Return the share of images that are right and certified at an L2 distance."""
        return certified_accuracy(self.radii, at)

    def to_row(self) -> dict[str, Json]:
        """Return the headline numbers."""
        acr = self.acr
        low, high = acr.interval or (None, None)
        return {
            "images": acr.images,
            "acr": acr.value,
            "acr_low": low,
            "acr_high": high,
            "certified_accuracy": self.accuracy().value,
            "abstained": sum(each.prediction < 0 and not each.skipped for each in self.certificates),
            "skipped": sum(each.skipped for each in self.certificates),
            "samples": self.samples,
        }

    def guarantee(self) -> str:
        """Say in one sentence what is guaranteed."""
        terms = self.terms
        under = "" if terms.shift == "clean" else f" under {terms.shift}"
        return (
            f"The model with fingerprint {self.model_fingerprint}, run in {terms.dtype} and smoothed with Gaussian "
            f"noise of standard deviation {terms.sigma:g} on [0, 1] images, gives an image{under} listed here and "
            "every image within the L2 distance `radius` of it the same class, `prediction`. For each image by itself, "
            f"this is wrong with probability at most {terms.rule['alpha']:g} over the draw of the noise."
        )

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; radii are rounded down."""
        reach = max([each.radius for each in self.certificates], default=0.0)
        distances = sorted({round_down(reach * step / STEPS, 3) for step in range(STEPS + 1)})
        labels: Sequence[int | None] = self.labels if self.labels is not None else [None] * len(self.keys)
        return {
            "format": FORMAT,
            "version": __version__,
            "guarantee": self.guarantee(),
            "not_guaranteed": list(NOT_GUARANTEED),
            "model": {"name": self.model, "fingerprint": self.model_fingerprint},
            "data": {"name": self.data, "fingerprint": self.data_fingerprint, "images": len(self.keys)},
            "terms": self.terms.to_row(),
            "batch_size": self.batch_size,
            "numbers": {
                **self.to_row(),
                "certified_accuracy_at": {f"{distance:g}": self.accuracy(distance).value for distance in distances},
            },
            "columns": ["key", "label", *FIELDS],
            "images": [
                [key, label, *astuple(replace(each, radius=round_down(each.radius)))]
                for key, label, each in zip(self.keys, labels, self.certificates, strict=True)
            ],
        }

    def save(self, path: str | Path) -> Path:
        """Write the certificate file, whole or not at all."""
        path = Path(path)
        content = self.to_json()
        head = {name: value for name, value in content.items() if name != "images"}
        rows = ",\n  ".join(json.dumps(row) for row in content["images"])  # a line per image, to be read and compared
        text = json.dumps(head, indent=1, allow_nan=False, ensure_ascii=False).removesuffix("\n}")
        write_atomically(path, f'{text},\n "images": [\n  {rows}\n ]\n}}\n')
        return path


def load_certificate(path: str | Path) -> dict[str, Any]:
    """Return what a certificate file says, as written by `Certification.save`."""
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
