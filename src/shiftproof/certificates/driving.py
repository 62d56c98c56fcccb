"""What certifications and spectra share: what is tried before any long work, and the driving of their tasks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from shiftproof.certificates.checks import check_fixed, check_function
from shiftproof.errors import DataError, RunError
from shiftproof.runs import AnyTask, Executor, Json, OnProgress, Plan, Result, Setup, Store, drive
from shiftproof.subjects import Subject


def check_subject(subject: Subject) -> None:
    """Put a few images to the model before any long work, and see that labels are classes of its own."""
    data, labels = subject.data, subject.data.known_labels
    check_fixed(subject.model)
    batch = next(iter(data.subset(range(min(4, len(data)))).batches(4, device=subject.device)))
    classes = check_function(subject.model, batch.inputs, ask=subject.task.scores)
    if labels is not None and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise DataError(
            "Labels and model outputs do not fit.",
            expected=f"labels from 0 to {classes - 1}: the model has {classes} outputs",
            got=f"labels from {int(labels.min())} to {int(labels.max())}",
        )


def measure_all(
    subject: Subject,
    tasks: tuple[AnyTask, ...],
    setup: Setup,
    *,
    out: str | Path | None,
    executor: Executor,
    on_progress: OnProgress | None,
) -> list[Result]:
    """Measure the tasks that the run directory lacks, or all of them without one.

    The first task that fails ends it: a gap would make the numbers wrong.
    """
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(TemporaryDirectory()))
        store = stack.enter_context(Store(folder, subject.fingerprints))
        subject.check_answers(store)
        plan = Plan(tasks, subject.fingerprints)
        return drive(plan, store, setup, executor=executor, on_progress=on_progress, essential="A measurement")


def check_same(path: Path, held: Mapping[str, Json], wanted: Mapping[str, Json]) -> None:
    """Refuse to write a certificate over one on other terms."""
    other = [name for name in {**held, **wanted} if held.get(name) != wanted.get(name)]
    if other:
        raise RunError(
            f"There is a certificate with other settings in {str(path)!r}.",
            expected=", ".join(f"{name} {held.get(name, 'not given')}" for name in other),
            got=", ".join(f"{name} {wanted.get(name, 'not given')}" for name in other),
            fix="write this one to another folder with --out (out=); nothing was overwritten",
        )
