"""The spectral view: how accuracy, mIoU or the average certified radius depends on the frequency of a disturbance.

* The map: one Fourier wave at a time is added to images (Yin et al. 2019; Sun et al. 2022, section 3.2.2).
* The sets: noise around a centre frequency, falling off by a power law, as in CIFAR-10-F (Sun et al. 2022, section 6).
* The amplitudes: at which frequencies corruptions change images (Sun et al. 2022, appendix A).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, cast, get_args

import numpy as np
import torch
from torch import Tensor

from shiftproof import shifts
from shiftproof.certificates.checks import check_fixed, check_sizes
from shiftproof.certificates.driving import check_subject, measure_all
from shiftproof.certificates.frequencies import Band, Frequency, amplitude_profile, frequencies, power_shares
from shiftproof.certificates.rules import Rule, make_rule
from shiftproof.certificates.smoothed import Smoothed, batch_size_for
from shiftproof.certificates.spectrum_result import Measure, Spectrum
from shiftproof.data import DataLike, as_images
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.models import BatchFitter, ModelLike, device_of
from shiftproof.prediction_tasks import TASKS
from shiftproof.runs import Executor, Json, OnProgress, Result, Row, Task, choose_executor
from shiftproof.shifts import Shift
from shiftproof.shifts.spectral.waves import FourierBasis, PowerLaw
from shiftproof.subjects import Subject

ALPHAS = (0.5, 1.0, 2.0, 3.0)
WAVE, STRENGTHS = 4.0, (8.0, 10.0, 12.0)
"""L2 norms at 32 pixels: of a wave in each channel, and of noise. They grow with the side of the image."""
LARGE_SIDE, POINTS = 64, 16
"""Of larger images than this, so many frequencies along a side are measured: all of them would take days."""
SHARE_DRAWN = 0.3
"""Of the samples that count a class, the share that the rule sequential draws on average."""
TIMED_IMAGES = 8
CLEAN = "clean"


def spectrum(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    measure: Measure | None = None,
    eps: float | None = None,
    step: int | None = None,
    alphas: Sequence[float] = ALPHAS,
    strengths: Sequence[float] | None = None,
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
    on_plan: Callable[[SpectrumPlan], None] | None = None,
) -> Spectrum:
    """Measure a model's sensitivity by frequency: to single waves and to band noise. Writes spectrum.json.

    Args:
        model: Anything `load_model` accepts.
        data: Anything `load_data` accepts.
        measure: accuracy, acr (average certified radius, by the rule sequential), or miou for label maps. Default:
            accuracy; miou for label maps.
        eps: L2 norm of a wave in each channel, before clipping to [0, 1]. Default: 4 at 32 pixels, growing with the
            image side.
        step: Measure only frequencies that are multiples of this. Default: 1 up to 64 pixels; for larger images, 16
            frequencies along a side.
        alphas: Exponents of the power-law noise around a frequency.
        strengths: L2 norms of that noise before clipping; results are averaged over them. Default: 8, 10 and 12 at 32
            pixels, larger for larger images.
        corruptions: Corruptions whose amplitude spectra are reported. Default: the family common.
        severity: Severity of these corruptions.
        sigma: With the measure acr, standard deviation of the noise.
        n0: With the measure acr, samples used to select the class.
        n: With the measure acr, the largest number of samples used to bound its probability.
        alpha: With the measure acr, the largest probability that a certificate is wrong.
        images: Number of inputs to use, drawn in proportion to the classes. Default: 200.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Inputs per forward pass. Default: chosen by device and image size.
        out: Run directory; the same call resumes it.
        executor: inline, processes, processes:4, ray or ray:16. Does not affect the numbers.
        on_progress: Called as on_progress(done, total, result).
        on_plan: Called with a `SpectrumPlan` (number of tasks and approximate seconds) before any long work.

    >>> found = spectrum("demo", "demo", images=20, step=16, alphas=[1], strengths=[8], corruptions=["fog"])
    >>> sorted(found.waves), found.amplitudes.keys() >= {"clean", "fog"}
    ([(0, 0), (0, 16), (16, 0), (16, 16)], True)
    """
    check_fixed(model)
    if measure not in (None, *get_args(Measure)):
        raise ConfigurationError(f"There is no measure {measure!r}.", expected=" or ".join(get_args(Measure)))
    if (step is not None and step < 1) or images < 1 or (eps is not None and not 0 < eps < math.inf):
        raise ConfigurationError(
            "Invalid spectrum settings.",
            expected="a step and a number of images of 1 or more, and a finite eps above 0",
            got=f"step={step}, images={images}, eps={eps}",
        )
    rule = None
    if measure == "acr":
        rule = make_rule("sequential", sigma=sigma, n=n, alpha=alpha)
        check_sizes(n0, n)
    subject = Subject.of(model, data, images=images, seed=seed, device=device, tasks=tuple(TASKS))
    own = cast(Measure, subject.task.measure.lower())
    if measure not in (None, own) and (measure != "acr" or subject.task.per_pixel):
        raise ConfigurationError(f"Not available for {subject.task.name}: the measure {measure}.", expected=own)
    job = SpectrumJob(subject, rule, n0, seed, batch_size)
    check_subject(subject)
    if subject.data.labels is None:
        raise DataError(
            "The images have no labels.",
            expected="labels, which scores and certified radii need",
            fix="one sub-folder per class, or --labels with a CSV (columns file, label)",
        )
    shape = as_images(subject.data).shape
    side = math.sqrt(shape[1] * shape[2])
    step = step or (1 if side <= LARGE_SIDE else max(1, int(side) // POINTS))
    eps = eps or WAVE * side / 32
    plan = Disturbances(
        eps,
        step,
        tuple(alphas),
        tuple(each * side / 32 for each in STRENGTHS) if strengths is None else tuple(strengths),
        tuple(corruptions or shifts.names("common")),
        severity,
    )
    tasks = plan.tasks(shape, job.terms())
    if on_plan is not None:
        on_plan(SpectrumPlan.of(job, sum(isinstance(task, SpectrumValue) for task in tasks)))
    where = choose_executor(executor, device=subject.device)
    results = measure_all(subject, tasks, job, out=out, executor=where, on_progress=on_progress)
    made = _conclude(results, subject, measure or own, step, {**job.terms(), "eps": eps, "images": len(subject.data)})
    if out is not None:
        made.save(Path(out) / "spectrum.json")
    return made


@dataclass(frozen=True)
class SpectrumPlan:
    """What a spectrum will take: cells of so many images each, and about how many seconds in one process."""

    cells: int
    images: int
    seconds: float

    @classmethod
    def of(cls, job: SpectrumJob, cells: int) -> Self:
        """Time the model on a few images."""
        subject, images = job.subject, len(job.subject.data)
        few = min(TIMED_IMAGES, images)
        batch = next(iter(subject.data.subset(range(few)).batches(few, device=subject.device)))
        subject.task.scores(subject.model, batch.inputs)
        begun = time.perf_counter()
        subject.task.scores(subject.model, batch.inputs)
        each = (time.perf_counter() - begun) / few
        passes = 1.0 if job.rule is None else job.n0 + SHARE_DRAWN * job.rule.n
        return cls(cells, images, cells * images * passes * each)


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
        change = images if self.shift is None else images - before
        shares: dict[str, Json] = {str(name): share for name, share in power_shares(change).items()}
        return {"profile": list(amplitude_profile(change)), "shares": shares}


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
            return {"measure": self.subject.task.measure.lower(), "seed": self.seed}
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
        """Return the score, or the mean certified radius, under a shift, in batches of a size."""
        images, labels = self.shifted(shift), cast(Tensor, self.batch.labels)
        if self.job.rule is None:
            task, maps = self.job.subject.task, labels
            if shift is not None:
                maps = task.moved(shift, labels, self.batch.keys, self.job.seed)
            parts = [
                task.tally(some, task.scores(self.model, part))
                for some, part in zip(torch.split(maps, size), torch.split(images, size), strict=True)
            ]
            return task.value(parts, self.job.subject.data)
        smoothed = Smoothed(self.model, self.job.rule.sigma, seed=self.job.seed, batch_size=size)
        made = smoothed.certify(images, labels, keys=self.batch.keys, n0=self.job.n0, rule=self.job.rule)
        return float(np.mean([each.radius for each in made]))


def _conclude(
    results: Sequence[Result], subject: Subject, measure: Measure, step: int, facts: Mapping[str, Json]
) -> Spectrum:
    """Put the rows of all cells together."""
    waves: dict[Frequency, float] = {}
    sets: dict[tuple[float, float], list[float]] = {}
    amplitudes: dict[str, tuple[float, ...]] = {}
    powers: dict[str, dict[Band, float]] = {}
    clean = 0.0
    for result in results:
        task, row = result.task, cast(Row, result.row)
        if isinstance(task, Amplitude):
            name = CLEAN if task.shift is None else task.shift.name
            amplitudes[name] = tuple(cast("list[float]", row["profile"]))
            powers[name] = cast("dict[Band, float]", row["shares"])
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
    return Spectrum(measure, subject.name, data.name, shape, step, clean, waves, means, amplitudes, powers, facts)
