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
    """Fine-tune a classifier against its weaknesses, and measure the gain and the cost.

    The model is audited on held-out test images, probed for weaknesses, fine-tuned with augmentations against them, and
    audited again on the same images. The result, in the folder model/, is the interpolation between the old and the new
    weights that is best under hold-out corruptions and the weaknesses found, and loses no more clean accuracy than
    allowed. No model is written if there is nothing to gain or nothing was gained.

    Args:
        model: Any model that `load_model` loads as a PyTorch module; it is copied, not changed.
        data: Labelled images to train on: anything `load_data` accepts.
        test: Labelled images that neither the model's own training nor this run saw: a data set, split=val for another
            split of the data, or the share of the data to hold out. Those beyond `test_images`, at least two fifths and
            at most 7,000, are used for model selection.
        audit: Run directory of an audit of the model, whose findings are used in choosing augmentations. If it is of
            the test images with the same settings, such as before/ of another run, it replaces the first audit.
            Default: run a new one.
        recipe: Training recipe: mixed+anchor, mixed+jsd, augmix+jsd, gaussian+jsd, ...
        augment: Augmentation, as the text form of a shift. Default: chosen by the weaknesses found.
        minutes: Time for training in minutes, not counting the audits.
        epochs: Passes over the training images. Default: as many as fit into `minutes`, at most 30.
        lr: Learning rate. Default: 0.003 with SGD if the model has batch normalisation, else 0.0001 with AdamW.
        max_clean_loss: Largest loss of clean accuracy to accept, in points.
        test_images: Largest number of images for the audits.
        images: Number of inputs of the data to use, drawn in proportion to the classes. Default: all.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Images per training step. Default: 128.
        out: Run directory; the same call resumes it.
        executor: Executor of the audits: inline, processes, processes:4, ray or ray:16.
        command: The command line that the report shows.
        on_progress: Called as on_progress(done, total, result) by each audit, and as on_progress(step, steps, row)
            while training.
        on_plan: Called with a forecast of the running time before training.

    >>> found = harden("demo", "demo", images=60, epochs=1, test=0.5, out=folder)
    >>> len(found.weaknesses), found.report.name
    (8, 'report.html')
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
