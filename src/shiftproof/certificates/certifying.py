"""`certify`: certificates for a set of images, in cells that can be lost and run again."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch

from shiftproof.certificates.certification import FIELDS, Certification, Terms, load_certificate
from shiftproof.certificates.checks import check_fixed, check_sizes
from shiftproof.certificates.driving import check_subject, measure_all
from shiftproof.certificates.rules import TOLERANCE, Rule, make_rule
from shiftproof.certificates.smoothed import Certificate, Precision, Smoothed, batch_size_for, precision_of
from shiftproof.data import DataLike, as_images
from shiftproof.errors import RunError
from shiftproof.models import BatchFitter, ModelLike, device_of
from shiftproof.runs import Executor, Json, OnProgress, Result, Row, Task, choose_executor
from shiftproof.shifts import Shift, as_shift
from shiftproof.subjects import Subject

FILE = "certificate.json"
CELL_SAMPLES = {"cpu": 2**16, "cuda": 2**20}
"""A cell draws about so many samples: seconds to a minute of work, and on a GPU enough to fill batches."""
SHARE_DRAWN = {"fixed": 1.0, "sequential": 0.3, "radius": 0.03}
"""The share of n that an image takes on average, by rule, to size cells by."""
CELL_IMAGES = 256


def certify(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    sigma: float,
    shift: str | Shift | None = None,
    rule: Literal["sequential", "fixed", "radius"] = "sequential",
    radius: float | None = None,
    n0: int = 100,
    n: int = 100_000,
    alpha: float = 0.001,
    tolerance: float = TOLERANCE,
    futility: bool = True,
    dtype: Precision = "float32",
    compile: bool = False,  # noqa: A002  (the option's name)
    images: int | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: int | None = None,
    out: str | Path | None = None,
    executor: str | Executor = "inline",
    on_progress: OnProgress | None = None,
) -> Certification:
    """Certify a model by randomized smoothing: L2 distances within which the smoothed model's class cannot change.

    The guarantee is the smoothed model's, served with noise and a vote (`Smoothed.predict`), not the model's own. With
    labels, images whose first guess is wrong are skipped, since they count 0.

    Args:
        model: What `load_model` takes or returned.
        data: What `load_data` takes or returned.
        sigma: Standard deviation of the noise, on the [0, 1] scale of images; 2 at most.
        shift: Certify shifted images, such as fog@3. Default: clean ones.
        rule: sequential: the full radius with fewer samples. fixed: n samples and one bound (Cohen et al. 2019).
            radius: is it at least the radius? Most images answer within a few hundred samples; every radius is that or
            0, and their average is that times the share certified.
        radius: The radius to ask for, with the rule radius.
        n0: Samples that choose a class.
        n: Fresh samples that count it, at most.
        alpha: Probability that a certificate is wrong, at most.
        tolerance: How much of the radius the rule sequential may give away (see `rules.Sequential`).
        futility: With the rule fixed, stop early on images that will not be certified.
        dtype: Certify a copy of the model in this precision.
        compile: Compile the model first.
        images: Use this many inputs, drawn in proportion to the classes. Default: all.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto is CUDA where there is one.
        batch_size: Inputs per forward pass. Default: what suits the device and the size of images.
        out: Run directory; the same call resumes it. Holds the certificate when all is done; one on other
            terms is never overwritten.
        executor: inline, processes, processes:4, ray or ray:16; the numbers are the same.
        on_progress: Called as on_progress(done, all, result).

    >>> model, images = (lambda images: images.mean((2, 3))), torch.eye(3)[:, :, None, None].expand(3, 3, 8, 8)
    >>> found = certify(model, (images, [0, 1, 2]), sigma=0.25, n=1000)
    >>> found.accuracy(at=0.5).value
    1.0
    """
    check_fixed(model)  # before loading puts a module into evaluation mode
    chosen = make_rule(rule, sigma=sigma, n=n, alpha=alpha, radius=radius, tolerance=tolerance, futility=futility)
    check_sizes(n0, n)
    job = CertificationJob(
        subject=Subject.of(model, data, images=images, seed=seed, device=device),
        rule=chosen,
        n0=n0,
        shift=None if shift is None else as_shift(shift),
        seed=seed,
        dtype=dtype,
        compiled=compile,
        batch_size=batch_size,
    )
    check_subject(job.subject)
    path = None if out is None else Path(out) / file_name(job.terms().shift)
    if path is not None and path.exists():
        check_same(path, job.terms())
    where = choose_executor(executor, device=job.subject.device)
    made = job.conclude(measure_all(job.subject, job.tasks(), job, out=out, executor=where, on_progress=on_progress))
    if path is not None:
        made.save(path)
    return made


@dataclass(frozen=True)
class CertificationJob:
    """A certification to be done, in this process or another: what is needed to make its worker again."""

    subject: Subject
    rule: Rule
    n0: int
    shift: Shift | None
    seed: int
    dtype: Precision
    compiled: bool
    batch_size: int | None

    def __call__(self) -> Certifier:
        """Return what certifies cells in this process."""
        return Certifier(self)

    def terms(self) -> Terms:
        """Return what decides the numbers."""
        model = self.subject.model
        own = precision_of(model) if self.dtype == "float32" else getattr(torch, self.dtype)
        return Terms(
            sigma=self.rule.sigma,
            n0=self.n0,
            rule=self.rule.facts(),
            seed=self.seed,
            dtype=str(own).removeprefix("torch."),
            compiled=self.compiled,
            device=device_of(model).type,
            shift="clean" if self.shift is None else self.shift.label,
        )

    def tasks(self) -> tuple[CertifiedRun, ...]:
        """Cut the images into runs."""
        terms, images = self.terms(), len(self.subject.data)
        most = CELL_SAMPLES.get(terms.device, CELL_SAMPLES["cuda"])
        step = int(most / (self.n0 + self.rule.n * SHARE_DRAWN.get(self.rule.name, 1.0)))
        step = max(1, min(CELL_IMAGES, step))
        return tuple(
            CertifiedRun(start, min(start + step, images), self.shift, self.rule, terms)
            for start in range(0, images, step)
        )

    def conclude(self, results: Sequence[Result]) -> Certification:
        """Put the rows of all cells together, in the order of the data."""
        rows = [result.row for result in results if result.row is not None]
        subject = self.subject
        order = subject.places.argsort().tolist()

        def column(name: str) -> list[Any]:
            values = [value for row in rows for value in cast("list[Any]", row[name])]
            return [values[place] for place in order]

        return Certification(
            model=subject.name,
            model_fingerprint=subject.model_fingerprint,
            data=subject.data.name,
            data_fingerprint=subject.fingerprints["sample"],
            terms=self.terms(),
            keys=tuple(column("key")),
            labels=None if subject.data.labels is None else tuple(column("label")),
            certificates=tuple(Certificate(*values) for values in zip(*map(column, FIELDS), strict=True)),
            batch_size=self.batch_size
            or batch_size_for(device_of(subject.model), math.prod(as_images(subject.data).shape)),
        )


class Certifier:
    """A worker of `runs`: certifies runs of images."""

    def __init__(self, job: CertificationJob) -> None:
        self.job = job
        self.data = as_images(job.subject.data)
        self.smoothed = Smoothed(
            job.subject.model,
            job.rule.sigma,
            seed=job.seed,
            batch_size=job.batch_size,
            dtype=job.dtype,
            compile=job.compiled,
        )
        self.fit = BatchFitter(job.batch_size or batch_size_for(self.smoothed.device, math.prod(self.data.shape)))

    def measure(self, task: CertifiedRun) -> Row:
        """Return the certificates of a run of images, in batches that fit into memory."""

        def certify(size: int) -> Row:
            self.smoothed.batch_size = size
            return task.measure(self)

        return self.fit(certify)


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
        rows: dict[str, list[Json]] = {name: [] for name in ("key", "label", *FIELDS)}
        for batch in chosen.batches(self.stop - self.start, device=subject.smoothed.device):
            images = batch.inputs if self.shift is None else self.shift(batch.inputs, batch.keys, seed=terms.seed)
            made = subject.smoothed.certify(images, batch.labels, keys=batch.keys, n0=terms.n0, rule=self.rule)
            rows["key"] += batch.keys.tolist()
            rows["label"] += [None] * len(batch) if batch.labels is None else batch.labels.tolist()
            for field in FIELDS:
                rows[field] += [getattr(each, field) for each in made]
        return rows

    def parameters(self) -> dict[str, Json]:
        """Return the run and its terms, which name the shift and the rule."""
        return {"start": self.start, "stop": self.stop, **self.terms.to_row()}


def check_same(path: Path, terms: Terms) -> None:
    """Refuse to write a certificate over one on other terms."""
    held, wanted = load_certificate(path)["terms"], terms.to_row()
    other = [name for name in {**held, **wanted} if held.get(name) != wanted.get(name)]
    if other:
        raise RunError(
            f"There is a certificate on other terms in {str(path)!r}.",
            expected=", ".join(f"{name} {held.get(name, 'not given')}" for name in other),
            got=", ".join(f"{name} {wanted.get(name, 'not given')}" for name in other),
            fix="write this one to another folder with --out (out=); nothing was overwritten",
        )


def file_name(shift: str) -> str:
    """Return the name of a certificate file: `certificate.json`, or `certificate.fog@3.json` under a shift."""
    if shift == "clean":
        return FILE
    stem, _, suffix = FILE.partition(".")
    label = re.sub(r"[^\w@.=-]+", "_", shift).strip("_")
    return f"{stem}.{label}.{suffix}"
