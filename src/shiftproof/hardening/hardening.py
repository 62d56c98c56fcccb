"""`harden`: a network and training images in; a network that stands more out, and proof of what it gained and lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shiftproof.data import DataLike
from shiftproof.hardening.hardened import Hardened
from shiftproof.hardening.mending import Mender, OnStep
from shiftproof.hardening.request import ImagesByUse, Request
from shiftproof.models import ModelLike
from shiftproof.training.rehearsal import TrainingPlan

OUT = "shiftproof-harden"


def harden(
    model: ModelLike = "demo",
    data: DataLike = "demo-source",
    *,
    test: DataLike | float = 0.3,
    audit: str | Path | None = None,
    recipe: str = "mixed+anchor",
    augment: str | None = None,
    minutes: float = 10.0,
    epochs: int | None = None,
    lr: float | None = None,
    max_clean_loss: float = 1.0,
    test_images: int = 1000,
    images: int | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: int | None = None,
    out: str | Path = OUT,
    executor: str = "inline",
    command: str | None = None,
    on_progress: OnStep | None = None,
    on_plan: Callable[[TrainingPlan], None] | None = None,
) -> Hardened:
    """Fine-tune a classifier against what it is weak to, and measure what that gained and cost.

    The model is audited on images held out for the proof, probed for what costs it accuracy, trained on augmentations
    against that, and audited again on the same images. The result, in the folder model/, is the point between the old
    and the new weights that is best under hold-out corruptions, and under what was weak in particular, and loses no
    more clean accuracy than allowed. No model is written where nothing is worth changing or nothing was gained.

    Args:
        model: Any model that `load_model` loads as a module; a module is copied.
        data: Labelled images to train on: what `load_data` takes or returned.
        test: Labelled images that neither the model's own training nor this one saw, or the share of the data to hold
            out for that. Those beyond `test_images`, at least two fifths and at most 7,000, are used for choosing.
        audit: Run directory of an audit of the model, whose findings count in choosing. If it is of the proof images
            with the same settings, as before/ of another run is, it is used as the first audit. Default: a new one.
        recipe: How to train: mixed+anchor, mixed+jsd, augmix+jsd, gaussian+jsd, ...
        augment: The text form of the augmentation. Default: chosen by what the model is weak to.
        minutes: Time for training; audits come on top.
        epochs: Passes over the training images. Default: what fits into the minutes, 30 at most.
        lr: The learning rate. Default: 0.003 with SGD where there is batch normalisation, else 0.0001 with AdamW.
        max_clean_loss: Points of clean accuracy that it may lose; a model that loses more is not accepted.
        test_images: Images of the audits, at most.
        images: Use this many inputs of the data, drawn in proportion to the classes. Default: all.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Images of one step. Default: 128.
        out: Run directory; the same call resumes it.
        executor: Where audits run: inline, processes, processes:4, ray or ray:16.
        command: What the report says it was made by.
        on_progress: Called as on_progress(done, all, result) by each audit, and with rows of the log while it trains.
        on_plan: Called with a forecast before it trains.

    >>> found = harden("demo", "demo", images=60, epochs=1, test=0.5, out=folder)
    >>> len(found.weaknesses), found.report.name
    (7, 'report.html')
    """
    request = Request(
        recipe=recipe,
        augment=augment,
        minutes=minutes,
        epochs=epochs,
        lr=lr,
        max_clean_loss=max_clean_loss,
        test_images=test_images,
        batch_size=128 if batch_size is None else batch_size,
        seed=seed,
    )
    parts = ImagesByUse.of(data, test, images=images, proof=test_images, seed=seed)
    mender = Mender(model, parts, request, Path(out), device=device, executor=executor, on_progress=on_progress)
    made_by = command or f"shiftproof.harden({str(getattr(model, 'given', model))!r}, ...)"
    return mender.mend(None if audit is None else Path(audit), made_by, on_plan)
