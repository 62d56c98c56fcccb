"""What certifies images in a process: a job that can be sent there, and the worker that it makes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shiftproof.certificates.certification import Terms
from shiftproof.certificates.conditions import label_of
from shiftproof.certificates.covering import certify_covered
from shiftproof.certificates.laws import law_of
from shiftproof.certificates.rules import Grid, Rule
from shiftproof.certificates.smoothed import Certificate, Precision, Smoothed, batch_size_for
from shiftproof.data import as_images
from shiftproof.models import BatchFitter, device_of, fingerprint
from shiftproof.models.outputs import precision_of
from shiftproof.runs import AnyTask, Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject


@dataclass(frozen=True)
class CertificationJob:
    """A certification to be done, in this process or another: what is needed to make its worker again."""

    subject: Subject
    rule: Rule
    n0: int
    shifts: tuple[Shift | None, ...]
    seed: int
    joint: int
    wrong: bool
    denoiser: nn.Module | None
    dtype: Precision
    compiled: bool
    batch_size: int | None

    def __call__(self) -> Certifier:
        """Return what certifies cells in this process."""
        return Certifier(self)

    def terms(self, shift: Shift | None) -> Terms:
        """Return what decides the numbers under a shift."""
        model = self.subject.model
        own = precision_of(model) if self.dtype == "float32" else getattr(torch, self.dtype)
        where = device_of(model).type
        rounded = where == "cuda" and own == torch.float32 and torch.backends.cudnn.allow_tf32
        return Terms(
            sigma=self.rule.sigma,
            n0=self.n0,
            rule=self.rule.facts(),
            seed=self.seed,
            dtype=str(own).removeprefix("torch.") + " (TF32 convolutions)" * rounded,
            compiled=self.compiled,
            device=where,
            shift=label_of(shift),
            joint=self.joint,
            wrong=self.wrong,
            denoiser="" if self.denoiser is None else fingerprint(self.denoiser),
        )


class Certifier:
    """A worker of `runs`: certifies runs of images."""

    def __init__(self, job: CertificationJob) -> None:
        self.job = job
        self.data = as_images(job.subject.data)
        self.smoothed = Smoothed(
            job.subject.model,
            job.rule.sigma,
            against="l2" if law_of(job.rule.against).pixels else job.rule.against,
            denoiser=job.denoiser,
            seed=job.seed,
            batch_size=job.batch_size,
            dtype=job.dtype,
            compile=job.compiled,
        )
        self.fit = BatchFitter(job.batch_size or batch_size_for(self.smoothed.device, math.prod(self.data.shape)))

    def measure(self, task: AnyTask) -> Row:
        """Return the certificates of a run of images, in batches that fit into memory."""

        def certify(size: int) -> Row:
            self.smoothed.batch_size = size
            return task.measure(self)

        return self.fit(certify)

    def certified(
        self, images: Tensor, labels: Tensor | None, keys: Tensor, rule: Rule, n0: int
    ) -> Sequence[Certificate]:
        """Return the certificates of images by a rule."""
        if not isinstance(rule, Grid):
            return self.smoothed.certify(images, labels, keys=keys, n0=n0, rule=rule)
        known = [None] * len(images) if labels is None else labels.tolist()
        return [
            certify_covered(self.smoothed, image, key, label, rule, n0=n0)
            for image, key, label in zip(images, keys.tolist(), known, strict=True)
        ]
