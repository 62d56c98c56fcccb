"""The spectral view: how accuracy, or the average certified radius, depends on the frequency of a disturbance.

* The map: one Fourier wave at a time is added to images (Yin et al. 2019; Sun et al. 2022, section 3.2.2).
* The sets: noise around a centre frequency, falling off by a power law, as in CIFAR-10-F (Sun et al. 2022, section 6).
* The amplitudes: at which frequencies corruptions change images (Sun et al. 2022, appendix A).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof import shifts
from shiftproof.certificates.checks import check_fixed, check_sizes
from shiftproof.certificates.driving import check_subject, measure_all
from shiftproof.certificates.frequencies import BANDS, Band, Frequency, band, band_means, frequencies, laid_out, radial
from shiftproof.certificates.rules import Rule, make_rule
from shiftproof.certificates.smoothed import Smoothed, batch_size_for
from shiftproof.data import DataLike, as_images
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.models import BatchFitter, ModelLike, device_of, logits
from shiftproof.runs import Executor, Json, OnProgress, Result, Row, Task, choose_executor, write_atomically
from shiftproof.shifts import Shift
from shiftproof.shifts.spectral.waves import FourierBasis, PowerLaw, amplitude_spectrum, radial_profile
from shiftproof.subjects import Subject
from shiftproof.version import __version__

Measure: TypeAlias = Literal["accuracy", "acr"]

FORMAT = "shiftproof-spectrum/1"
ALPHAS = (0.5, 1.0, 2.0, 3.0)
STRENGTHS = (8.0, 10.0, 12.0)
CLEAN = "clean"


@dataclass(frozen=True)
class Spectrum:
    """Values (accuracies or average certified radii) by frequency.

    `clean` is the value on the images as they are, `waves` under each wave, `sets` under power-law noise by (alpha,
    centre), averaged over strengths; `amplitudes` by corruption are the mean amplitude of its change at radial
    frequencies 0, 1, 2, ..., and under `clean` that of the images themselves.
    """

    measure: Measure
    model: str
    data: str
    shape: tuple[int, int]
    step: int
    clean: float
    waves: Mapping[Frequency, float]
    sets: Mapping[tuple[float, float], float]
    amplitudes: Mapping[str, tuple[float, ...]]
    facts: Mapping[str, Json]

    @property
    def side(self) -> float:
        """The geometric mean of height and width."""
        return math.sqrt(self.shape[0] * self.shape[1])

    def heat(self) -> NDArray[np.float64]:
        """Return the map of `waves`, the zero frequency in its middle."""
        return laid_out(self.waves, *self.shape, self.step)

    def bands(self) -> dict[Band, float]:
        """Return the mean value under waves of low, mid and high frequency."""
        return band_means([(radial(each, *self.shape), value) for each, value in self.waves.items()], self.side)

    def set_bands(self) -> dict[float, dict[Band, float]]:
        """Return, by alpha, the mean value under noise around low, mid and high centres."""
        return {
            alpha: band_means(
                [(center, value) for (other, center), value in self.sets.items() if other == alpha], self.side
            )
            for alpha in sorted({alpha for alpha, _ in self.sets})
        }

    def worst(self) -> tuple[Frequency, float]:
        """Return the wave that costs most, and the value under it."""
        return min(self.waves.items(), key=lambda each: (each[1], each[0]))

    def shares(self) -> dict[str, dict[Band, float]]:
        """Return, by corruption, which share of its change (in squared amplitude) is in each band."""
        return {name: power_shares(profile, self.side) for name, profile in self.amplitudes.items()}

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "format": FORMAT,
            "version": __version__,
            "model": self.model,
            "data": self.data,
            "measure": self.measure,
            "shape": list(self.shape),
            "facts": dict(self.facts),
            "clean": self.clean,
            "bands": self.bands(),
            "waves": [[*frequency, value] for frequency, value in self.waves.items()],
            "sets": [[*place, value] for place, value in self.sets.items()],
            "amplitudes": {name: list(profile) for name, profile in self.amplitudes.items()},
        }

    def save(self, path: str | Path) -> Path:
        """Write everything to a JSON file, whole or not at all."""
        write_atomically(Path(path), json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")
        return Path(path)


def spectrum(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    measure: Measure = "accuracy",
    eps: float = 4.0,
    step: int = 1,
    alphas: Sequence[float] = ALPHAS,
    strengths: Sequence[float] = STRENGTHS,
    corruptions: Sequence[str] | None = None,
    severity: float = 3.0,
    sigma: float = 0.25,
    n0: int = 100,
    n: int = 10_000,
    alpha: float = 0.001,
    images: int = 200,
    seed: int = 0,
    device: str = "auto",
    batch_size: int | None = None,
    out: str | Path | None = None,
    executor: str | Executor = "inline",
    on_progress: OnProgress | None = None,
) -> Spectrum:
    """Measure a model by frequency: under single waves, under noise around a frequency. Writes spectrum.json.

    Args:
        model: What `load_model` takes or returned.
        data: What `load_data` takes or returned.
        measure: accuracy, or acr: the average certified radius, by the rule sequential.
        eps: L2 norm of a wave, in each channel.
        step: Measure frequencies that are multiples of this.
        alphas: Powers of the noise around a frequency.
        strengths: L2 norms of that noise; values are averaged over them.
        corruptions: Corruptions whose amplitudes are reported. Default: common.
        severity: Their severity.
        sigma: With the measure acr, standard deviation of the noise.
        n0: With the measure acr, samples that choose a class.
        n: With the measure acr, samples that count it, at most.
        alpha: Probability that a certificate is wrong, at most.
        images: Use this many inputs, drawn in proportion to the classes. Default: 200.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto is CUDA where there is one.
        batch_size: Inputs per forward pass. Default: what suits the device and the size of images.
        out: Run directory; the same call resumes it.
        executor: inline, processes, processes:4, ray or ray:16; the numbers are the same.
        on_progress: Called as on_progress(done, all, result).

    >>> found = spectrum("demo", "demo", images=20, step=16, alphas=[1], strengths=[8], corruptions=["fog"])
    >>> sorted(found.waves), found.amplitudes.keys() >= {"clean", "fog"}
    ([(0, 0), (0, 16), (16, 0), (16, 16)], True)
    """
    check_fixed(model)
    if measure not in ("accuracy", "acr"):
        raise ConfigurationError(f"There is no measure {measure!r}.", expected="accuracy or acr")
    if step < 1 or images < 1 or not 0 < eps < math.inf:
        raise ConfigurationError(
            "Invalid spectrum settings.",
            expected="a step and a number of images of 1 or more, and a finite eps above 0",
            got=f"step={step}, images={images}, eps={eps:g}",
        )
    rule = None
    if measure == "acr":
        rule = make_rule("sequential", sigma=sigma, n=n, alpha=alpha)
        check_sizes(n0, n)
    subject = Subject.of(model, data, images=images, seed=seed, device=device)
    job = SpectrumJob(subject, rule, n0, seed, batch_size)
    check_subject(subject)
    if subject.data.labels is None:
        raise DataError("The images have no labels.", expected="labels, of which accuracy and certified radii speak")
    plan = Disturbances(
        eps, step, tuple(alphas), tuple(strengths), tuple(corruptions or shifts.names("common")), severity
    )
    tasks = plan.tasks(as_images(subject.data).shape, job.terms())
    where = choose_executor(executor, device=subject.device)
    results = measure_all(subject, tasks, job, out=out, executor=where, on_progress=on_progress)
    made = _conclude(results, subject, measure, step, {**job.terms(), "eps": eps, "images": len(subject.data)})
    if out is not None:
        made.save(Path(out) / "spectrum.json")
    return made


@dataclass(frozen=True)
class Disturbances:
    """Which disturbances are measured."""

    eps: float
    step: int
    alphas: tuple[float, ...]
    strengths: tuple[float, ...]
    corruptions: tuple[str, ...]
    severity: float

    def tasks(self, shape: tuple[int, int, int], terms: Mapping[str, Json]) -> tuple[SpectrumValue | Amplitude, ...]:
        """Return a task per wave, set and corruption, of images of this shape."""
        _, height, width = shape
        centers = range(1, int(math.sqrt(height * width)) // 2 + 1, self.step)
        disturbances: list[FourierBasis | PowerLaw] = [
            FourierBasis(i, j, self.eps) for i, j in frequencies(height, width, self.step)
        ]
        disturbances += [
            PowerLaw(strength, float(center), alpha)
            for alpha in self.alphas
            for strength in self.strengths
            for center in centers
        ]
        corruptions = [shifts.corruption(name, self.severity) for name in self.corruptions]
        return (
            *(SpectrumValue(shift, terms) for shift in (None, *disturbances)),
            *(Amplitude(shift, cast(int, terms["seed"])) for shift in (None, *corruptions)),
        )


@dataclass(frozen=True)
class SpectrumValue(Task["SpectrumMeasurer"]):
    """Accuracy, or certified radii, under a disturbance or none; the terms are all else that decides the number."""

    kind = "spectrum.value"
    shift: FourierBasis | PowerLaw | None
    terms: Mapping[str, Json]

    def measure(self, subject: SpectrumMeasurer) -> Row:
        """Return the value."""
        return subject.fit(lambda size: {"value": subject.value(self.shift, size)})

    def parameters(self) -> dict[str, Json]:
        """Return the name of the disturbance and the terms."""
        return {"shift": CLEAN if self.shift is None else self.shift.label, **self.terms}


@dataclass(frozen=True)
class Amplitude(Task["SpectrumMeasurer"]):
    """What a corruption changes by frequency; of none, the images themselves."""

    kind = "spectrum.amplitudes"
    shift: Shift | None
    seed: int

    def measure(self, subject: SpectrumMeasurer) -> Row:
        """Return the mean amplitude at each radial frequency."""
        before, images = subject.batch.inputs, subject.shifted(self.shift)
        return {"profile": list(amplitude_profile(images if self.shift is None else images - before))}


@dataclass(frozen=True)
class SpectrumJob:
    """A spectrum to be measured, in this process or another."""

    subject: Subject
    rule: Rule | None
    n0: int
    seed: int
    batch_size: int | None

    def terms(self) -> dict[str, Json]:
        """Return what decides the numbers, apart from the disturbance."""
        if self.rule is None:
            return {"measure": "accuracy", "seed": self.seed}
        device = device_of(self.subject.model).type
        return {"measure": "acr", "seed": self.seed, "n0": self.n0, "device": device, **self.rule.facts()}

    def __call__(self) -> SpectrumMeasurer:
        """Return what measures cells in this process."""
        return SpectrumMeasurer(self)


class SpectrumMeasurer:
    """A worker of `runs`, with all images in memory."""

    def __init__(self, job: SpectrumJob) -> None:
        self.job = job
        self.model, data = job.subject.model, job.subject.data
        (batch,) = data.batches(len(data), device=device_of(self.model))
        self.batch = batch
        self.fit = BatchFitter(job.batch_size or batch_size_for(batch.inputs.device, batch.inputs[0].numel()))

    def measure(self, task: SpectrumValue | Amplitude) -> Row:
        """Measure one task."""
        return task.measure(self)

    def shifted(self, shift: Shift | None) -> Tensor:
        """Return the images under a shift, or as they are."""
        batch = self.batch
        made: Tensor = batch.inputs if shift is None else shift(batch.inputs, batch.keys, seed=self.job.seed)
        return made

    def value(self, shift: Shift | None, size: int) -> float:
        """Return the accuracy, or the mean certified radius, under a shift, in batches of a size."""
        images, labels = self.shifted(shift), cast(Tensor, self.batch.labels)
        if self.job.rule is None:
            parts = [logits(self.model, part).argmax(1) for part in torch.split(images, size)]
            return float((torch.cat(parts) == labels.cpu()).double().mean())
        smoothed = Smoothed(self.model, self.job.rule.sigma, seed=self.job.seed, batch_size=size)
        made = smoothed.certify(images, labels, keys=self.batch.keys, n0=self.job.n0, rule=self.job.rule)
        return float(np.mean([each.radius for each in made]))


def amplitude_profile(images: Tensor) -> tuple[float, ...]:
    """Return the mean amplitude of images, or of changes of them, at radial frequencies 0, 1, 2, ..., side / 2."""
    return tuple(radial_profile(amplitude_spectrum(images).mean((0, 1))).tolist())


def power_shares(profile: Sequence[float], side: float) -> dict[Band, float]:
    """Return the share of the squared amplitude in each band, given mean amplitudes at radial frequencies 0, 1, 2, ...

    A ring counts with the number of its frequencies, which grows as its radius.
    """
    power = dict.fromkeys(BANDS, 0.0)
    for ring, value in enumerate(profile):
        power[band(ring, side)] += max(1.0, 2 * math.pi * ring) * value**2
    total = sum(power.values()) or 1.0
    return {name: value / total for name, value in power.items()}


def _conclude(
    results: Sequence[Result], subject: Subject, measure: Measure, step: int, facts: Mapping[str, Json]
) -> Spectrum:
    """Put the rows of all cells together."""
    waves: dict[Frequency, float] = {}
    sets: dict[tuple[float, float], list[float]] = {}
    amplitudes: dict[str, tuple[float, ...]] = {}
    clean = 0.0
    for result in results:
        task, row = result.task, cast(Row, result.row)
        if isinstance(task, Amplitude):
            amplitudes[CLEAN if task.shift is None else task.shift.name] = tuple(cast("list[float]", row["profile"]))
        elif isinstance(task, SpectrumValue):
            value, shift = cast(float, row["value"]), task.shift
            if shift is None:
                clean = value
            elif isinstance(shift, FourierBasis):
                waves[shift.i, shift.j] = value
            else:
                sets.setdefault((shift.alpha, shift.center), []).append(value)
    data = as_images(subject.data)
    means = {place: sum(some) / len(some) for place, some in sets.items()}
    shape = (data.shape[1], data.shape[2])
    return Spectrum(measure, subject.name, data.name, shape, step, clean, waves, means, amplitudes, facts)
