"""`certify`: certificates for a set of images, in cells that can be lost and run again."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, overload

from torch import Tensor, nn

from shiftproof.certificates.certification import FIELDS, Certification, Terms, load_certificate
from shiftproof.certificates.certifier import CertificationJob, Certifier
from shiftproof.certificates.certifying_maps import MapCertification, certify_maps, check_applies, map_options
from shiftproof.certificates.checks import check_fixed, check_sizes
from shiftproof.certificates.conditions import PUBLISHED_SIDE, SuiteName, conditions, groups_of, label_of
from shiftproof.certificates.driving import check_same, check_subject, measure_all
from shiftproof.certificates.laws import Against, law_of, scale_of
from shiftproof.certificates.radius import round_down
from shiftproof.certificates.rules import TOLERANCE, Rule, make_rule
from shiftproof.certificates.smoothed import Certificate, Precision, batch_size_for, denoised
from shiftproof.certificates.suite import FILE as SUITE_FILE
from shiftproof.certificates.suite import CertifiedSuite
from shiftproof.certificates.transformations import TRANSFORMATIONS
from shiftproof.data import DataLike, as_images
from shiftproof.errors import ConfigurationError
from shiftproof.models import ModelLike, device_of, logits
from shiftproof.models.denoising import load_denoiser
from shiftproof.prediction_tasks import TASKS
from shiftproof.runs import Executor, Json, OnProgress, Result, Row, Task, choose_executor
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

FILE = "certificate.json"
CELL_SAMPLES = {"cpu": 2**16, "cuda": 2**20}
"""A cell draws about so many samples: seconds to a minute of work, and on a GPU enough to fill batches."""
SHARE_DRAWN = {"fixed": 1.0, "sequential": 0.3, "radius": 0.03}
"""The share of n that an image takes on average, by rule, to size cells by."""
CELL_IMAGES = 256
SAMPLES = 100, 100_000
"""Samples that choose a class, and that count it at most, where nothing else is said."""
CLASSES_ONLY: Mapping[str, object] = {
    **{"against": "l2", "rule": "sequential", "wrong": False, "at": (), "denoiser": None},
    **{"dtype": "float32", "compile": False},
}
"""Options that say nothing of label maps, as they are where they are not given."""


@overload
def certify(
    model: ModelLike = ..., data: DataLike = ..., *, shift: str | Shift | None = ..., suite: None = ..., **options: Any
) -> Certification: ...
@overload
def certify(
    model: ModelLike = ...,
    data: DataLike = ...,
    *,
    shift: list[str] | list[Shift] | list[str | Shift] | tuple[str | Shift, ...],
    **options: Any,
) -> CertifiedSuite: ...
@overload
def certify(
    model: ModelLike = ..., data: DataLike = ..., *, suite: SuiteName, shift: None = ..., **options: Any
) -> CertifiedSuite: ...


def certify(  # type: ignore[misc]  # options are those of this signature: there is no second list of them
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    sigma: float | None = None,
    against: Against = "l2",
    shift: str | Shift | Sequence[str | Shift] | None = None,
    severities: Sequence[float] | None = None,
    suite: SuiteName | None = None,
    rule: Literal["sequential", "fixed", "radius"] = "sequential",
    radius: float | None = None,
    n0: int | None = None,
    n: int | None = None,
    alpha: float = 0.001,
    joint: bool = False,
    wrong: bool = False,
    at: Sequence[float] = (),
    tolerance: float = TOLERANCE,
    futility: bool = True,
    denoiser: str | Path | nn.Module | None = None,
    dtype: Precision = "float32",
    compile: bool = False,  # noqa: A002  (the option's name)
    images: int | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: int | None = None,
    out: str | Path | None = None,
    executor: str | Executor = "inline",
    on_progress: OnProgress | None = None,
) -> Certification | CertifiedSuite | MapCertification:
    """Certify a model by randomized smoothing: radii within which the smoothed model's class cannot change.

    The guarantee is for the smoothed model, a majority vote under noise (`Smoothed.predict`), not for the model itself.
    With labels, images whose first guess is wrong are skipped, since they count as radius 0. Several shifts, or a
    suite, return a `CertifiedSuite` with the mean over shifts (mACR). Against a transformation, the noise is on its
    parameter, and a radius is a range of that parameter. For label maps, the pixels of an image are certified jointly
    or abstain (SegCertify), and a `MapCertification` is returned.

    Args:
        model: Anything `load_model` accepts.
        data: Anything `load_data` accepts.
        sigma: Standard deviation of the noise, on the [0, 1] scale of images; at most 2. For a transformation, that of
            its parameter: in pixels for a translation; for blur, the mean variance in square pixels. Required for l2.
            Default: for a transformation, a value that most networks tolerate.
        against: What to certify against. l2: any perturbation within an L2 distance. brightness, contrast+brightness,
            blur, translation: noise on that parameter. rotation, scaling: pixel noise on a grid of transformed images,
            tens of thousands of forward passes per image.
        shift: Shift of the images to certify: fog@3, several of these, or a family such as common; clean means
            unshifted. Default: clean.
        severities: Severities of families, and of corruptions given without one. Default: 1 to 5.
        suite: A set of shifts instead of `shift`: cifar-c or imagenet-c (15 corruptions at 5 severities), or cifar-f
            (192 sets of noise by frequency).
        rule: How to sample. sequential: about a third of the samples, for a slightly smaller radius. fixed: n samples
            and one bound, as in published tables (Cohen et al. 2019). radius: only test whether the radius is at least
            `radius`, which takes a few hundred samples for most images.
        radius: With the rule radius, the radius to test for. For rotation and scaling, the range to cover, in degrees
            or as a fraction.
        n0: Samples used to select the class. Default: 100; for label maps 10.
        n: Largest number of samples used to bound its probability. Default: 100,000; for label maps 100.
        alpha: Largest probability that a certificate is wrong; for label maps, that any pixel of an image is.
        joint: Let alpha bound the probability that any of the certificates is wrong (Bonferroni).
        wrong: Certify images with a wrong guess too, to find predictions that are wrong and stable.
        at: Further radii at which to report certified accuracy. Default: a fixed set, the same for all models.
        tolerance: With the rule sequential, the gain in radius, in units of sigma, below which sampling stops.
        futility: With the rule fixed, stop early on images that will not be certified.
        denoiser: Denoiser to put before the model: cifar10, cifar10-demo, or a file or folder that the recipe denoiser
            wrote; in Python also a module from images to images. Default: none.
        dtype: Precision of the model, such as bfloat16; the certificates are for the model in that precision. Default:
            unchanged.
        compile: Compile the model with torch.compile first.
        images: Number of inputs to use, drawn in proportion to the classes. Default: all.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Inputs per forward pass. Default: chosen by device and image size.
        out: Run directory for the certificates; the same call resumes it. A certificate with other settings is never
            overwritten.
        executor: inline, processes, processes:4, ray or ray:16. Does not affect the numbers.
        on_progress: Called as on_progress(done, total, result).

    >>> import torch
    >>> model, images = (lambda images: images.mean((2, 3))), torch.eye(3)[:, :, None, None].expand(3, 3, 8, 8)
    >>> found = certify(model, (images, [0, 1, 2]), sigma=0.25, n=1000)
    >>> found.accuracy(at=0.5).value
    1.0
    """
    check_fixed(model)  # before loading puts a module into evaluation mode
    samples, counted = SAMPLES[0] if n0 is None else n0, SAMPLES[1] if n is None else n
    chosen = make_rule(
        rule,
        sigma=scale_of(against, sigma),
        n=counted,
        alpha=alpha,
        radius=radius,
        tolerance=tolerance,
        futility=futility,
        against=against,
    )
    check_sizes(samples if n0 is not None else min(samples, counted), counted)
    if wrong_distance := next((each for each in at if not 0 <= each < math.inf), None):
        raise ConfigurationError(
            "Distances must not be negative.", expected="at= distances of 0 or more", got=f"{wrong_distance:g}"
        )
    several = suite is not None or not (shift is None or isinstance(shift, str | Shift))
    named: list[str | Shift] = [] if shift is None else [shift] if isinstance(shift, str | Shift) else list(shift)
    asked = conditions(named, severities, suite, (3, PUBLISHED_SIDE, PUBLISHED_SIDE))  # before anything is loaded
    if not several and (severities is not None or len(asked) > 1):
        raise ConfigurationError(
            "Give several shifts as a list.", expected=f"shift=[{shift!r}]", got=f"shift={shift!r}"
        )
    subject = Subject.of(
        model, data, images=images, seed=seed, device=device, batch_size=batch_size, tasks=tuple(TASKS)
    )
    shape = as_images(subject.data).shape
    shifts = conditions(named, severities, suite, shape) or [None]
    if subject.task.per_pixel:
        given = (against, rule if radius is None else "sequential", wrong, tuple(at), denoiser, dtype, compile)
        check_applies(dict(zip(CLASSES_ONLY, given, strict=True)), CLASSES_ONLY)
        return certify_maps(
            subject,
            map_options(chosen.sigma, radius, n0, n, alpha),
            shifts,
            joint=joint,
            seed=seed,
            out=out,
            executor=choose_executor(executor, device=subject.device),
            on_progress=on_progress,
        )
    check_sizes(samples, counted)
    together = len(shifts) * len(subject.data) if joint else 0
    job = CertificationJob(
        subject=subject,
        rule=replace(chosen, alpha=alpha / together) if together else chosen,
        n0=samples,
        shifts=tuple(shifts),
        seed=seed,
        joint=together,
        wrong=wrong,
        denoiser=None if denoiser is None else load_denoiser(denoiser),
        dtype=dtype,
        compiled=compile,
        batch_size=batch_size,
    )
    check_subject(subject)
    if job.denoiser is not None:
        denoised(subject.model, job.denoiser, chosen.sigma, against)  # refuses other noise before any long work
    paths = {} if out is None else {each: Path(out) / file_name(label_of(each)) for each in shifts}
    for each, path in paths.items():
        if path.exists():
            check_same(path, load_certificate(path)["terms"], job.terms(each).to_row())
    where = choose_executor(executor, device=subject.device)
    results = measure_all(subject, _runs(job), job, out=out, executor=where, on_progress=on_progress)
    distances = tuple(sorted({*law_of(chosen.against).distances, *map(float, at)}))
    made = [replace(_conclude(job, results, each), distances=distances) for each in shifts]
    for one, path in zip(made, paths.values(), strict=False):
        one.save(path)
    if not several:
        return made[0]
    found = CertifiedSuite(tuple(made), groups_of(shifts, math.sqrt(shape[1] * shape[2])))
    if out is not None:
        found.save(Path(out) / SUITE_FILE)
    return found


@dataclass(frozen=True)
class CertifiedRun(Task[Certifier]):
    """A run of images, clean or under a shift, certified by a rule; the terms are all else that decides the numbers."""

    kind = "certify"
    start: int
    stop: int
    shift: Shift | None
    rule: Rule
    terms: Terms

    def measure(self, subject: Certifier) -> Row:
        """Return the certificates, column by column."""
        chosen, terms = subject.data.subset(range(self.start, self.stop)), self.terms
        rows: dict[str, list[Json]] = {name: [] for name in ("key", "label", "plain", "room", *FIELDS)}
        model, size = subject.job.subject.model, subject.smoothed.batch_size or self.stop
        for batch in chosen.batches(self.stop - self.start, device=subject.smoothed.device):
            images = batch.inputs if self.shift is None else self.shift(batch.inputs, batch.keys, seed=terms.seed)
            made = subject.certified(images, None if terms.wrong else batch.labels, batch.keys, self.rule, terms.n0)
            rows["key"] += batch.keys.tolist()
            rows["plain"] += [each for part in images.split(size) for each in logits(model, part).argmax(1).tolist()]
            rows["label"] += [None] * len(batch) if batch.labels is None else batch.labels.tolist()
            rows["room"] += room_of(images, self.rule.against)
            for field in FIELDS:
                rows[field] += [getattr(each, field) for each in made]
        return rows

    def parameters(self) -> dict[str, Json]:
        """Return the run and its terms, which name the shift and the rule."""
        return {"start": self.start, "stop": self.stop, **self.terms.to_row()}


def _runs(job: CertificationJob) -> tuple[CertifiedRun, ...]:
    """Cut the images into runs, under each shift."""
    images = len(job.subject.data)
    most = CELL_SAMPLES.get(device_of(job.subject.model).type, CELL_SAMPLES["cuda"])
    step = int(most / (job.n0 + job.rule.n * SHARE_DRAWN.get(job.rule.name, 1.0)))
    step = max(1, min(CELL_IMAGES, step))
    return tuple(
        CertifiedRun(start, min(start + step, images), shift, job.rule, job.terms(shift))
        for shift in job.shifts
        for start in range(0, images, step)
    )


def _conclude(job: CertificationJob, results: Sequence[Result], shift: Shift | None) -> Certification:
    """Put the rows of all cells under a shift together, in the order of the data."""
    subject, label = job.subject, label_of(shift)
    rows = [
        result.row
        for result in results
        if isinstance(result.task, CertifiedRun) and result.row is not None and result.task.terms.shift == label
    ]
    order = subject.places.argsort().tolist()

    def column(name: str) -> list[Any]:
        values = [value for row in rows for value in cast("list[Any]", row[name])]
        return [values[place] for place in order]

    return Certification(
        model=subject.name,
        model_fingerprint=subject.model_fingerprint,
        data=subject.data.name,
        data_fingerprint=subject.fingerprints["sample"],
        terms=job.terms(shift),
        keys=tuple(column("key")),
        labels=None if subject.data.labels is None else tuple(column("label")),
        certificates=tuple(Certificate(*values) for values in zip(*map(column, FIELDS), strict=True)),
        plain=tuple(column("plain")),
        room=tuple(column("room")),
        values=math.prod(as_images(subject.data).shape),
        batch_size=job.batch_size or batch_size_for(device_of(subject.model), math.prod(as_images(subject.data).shape)),
    )


def room_of(images: Tensor, against: str) -> list[Json]:
    """Return how large a range keeps each image's values in [0, 1], rounded down; None where every range does."""
    if against not in TRANSFORMATIONS:
        return [None] * len(images)
    room = TRANSFORMATIONS[against].room(images).tolist()
    return [round_down(max(0.0, each)) if math.isfinite(each) else None for each in room]


def file_name(shift: str) -> str:
    """Return the name of a certificate file: `certificate.json`, or `certificate.fog@3.json` under a shift."""
    if shift == "clean":
        return FILE
    stem, _, suffix = FILE.partition(".")
    label = re.sub(r"[^\w@.=-]+", "_", shift).strip("_")
    return f"{stem}.{label}.{suffix}"
