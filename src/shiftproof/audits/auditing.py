"""The main job: a model and images in; a report a person can decide from, and numbers a pipeline can gate on, out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from shiftproof.audits.audit_settings import affordable, make_settings
from shiftproof.audits.caveats import check_subject
from shiftproof.audits.conclusion import CLEAN, TASKS, Audit, conclude, noted, understood
from shiftproof.audits.costs import PLANNED, note_memory
from shiftproof.audits.forecast import Forecast, Prices, estimate
from shiftproof.audits.gate import junit as junit_xml
from shiftproof.audits.gate import parse, parse_all
from shiftproof.audits.sections import SECTIONS, applicable, planned
from shiftproof.audits.sections.base import Measurement, Scope
from shiftproof.data import as_texts
from shiftproof.models import BatchFitter
from shiftproof.models.arithmetic import operations as operations_of
from shiftproof.models.texts import pairing, truncation
from shiftproof.runs import (
    Executor,
    Inline,
    OnProgress,
    Plan,
    Processes,
    Store,
    choose_executor,
    drive,
    write_atomically,
)
from shiftproof.runs.hosting import cores
from shiftproof.subjects import Measurer, Subject

OUT = "shiftproof-audit"


def audit(
    model: Any = "demo",
    data: Any = "demo",
    *,
    out: str | Path = OUT,
    budget: str = "quick",
    sections: Sequence[str] | None = None,
    shifts: Sequence[str] | None = None,
    severities: Sequence[float] | None = None,
    images: int | None = None,
    seed: int = 0,
    methods: Sequence[str] | None = None,
    device: str = "auto",
    amp: bool = False,
    batch_size: int | None = None,
    weights: str | Path | None = None,
    size: int | None = None,
    labels: str | Path | None = None,
    classes: str | Path | Sequence[str] = "auto",
    on_bad_file: Literal["fail", "skip"] = "fail",
    text_column: str | None = None,
    label_column: str | None = None,
    executor: str | Executor = "inline",
    workers: int | None = None,
    require: Sequence[str] = (),
    junit: str | Path | None = None,
    command: str | None = None,
    on_progress: OnProgress | None = None,
    on_plan: Callable[[Forecast], None] | None = None,
) -> Audit:
    """Audit a classifier under distribution shift and write `report.html`, `results.json` and `results.csv` to `out`.

    `model` and `data` are what `load_model` and `load_data` take. The run directory `out` resumes: a second call with
    the same arguments goes on where the first stopped. `budget` sets how many images are used, `sections` which
    questions are asked, `shifts` which corruptions (or families) at which `severities`, `methods` which ways of
    adapting while serving. With `amp` the model computes in bfloat16 where PyTorch deems it safe. Classes are matched
    to the model's outputs by name; where it does not know the data's names, `classes` lists them in the order of its
    outputs, or names a file with one a line. `text_column` and `label_column` name columns of a table of texts.
    `executor` is `inline`, `processes` or `ray`; the last two spread the work over `workers` processes, and the numbers
    are the same.
    `require` is what must hold of the numbers, such as "mce < 70": `checks` of the result says whether it does, and
    `junit` names a file for that in JUnit's XML. `on_plan(forecast)` hears, before any long work, how long it should
    take, and `on_progress(done, all, result)` of progress.

    >>> result = audit("demo", "demo", out=folder, images=20, shifts=["contrast"], sections=["clean", "corruptions"])
    >>> result.numbers["clean_accuracy"] > result.numbers["accuracy.contrast"]
    True
    """
    subject = Subject.of(
        model,
        data,
        seed=seed,
        device=device,
        batch_size=batch_size,
        amp=amp,
        texts=True,
        model_options={"weights": weights},
        data_options={
            "size": size,
            "labels": labels,
            "classes": classes,
            "on_bad_file": on_bad_file,
            "text_column": text_column,
            "label_column": label_column,
        },
    )
    inputs = subject.loaded_data.kind
    asked = partial(
        make_settings,
        budget=budget,
        sections=sections,
        shifts=shifts,
        severities=severities,
        images=images,
        seed=seed,
        methods=methods,
        inputs=inputs,
    )
    settings = asked()  # what is wrong with the options is told before a model is loaded
    requirements = parse_all(require, settings.sections)
    where = choose_executor(executor, workers, device=subject.device)
    (one,) = subject.labelled_data.subset([0]).batches(1, device=subject.device)
    operations = operations_of(subject.model, one.inputs)
    settings = asked(scale=affordable(budget, subject.device, operations))
    subject = subject.taking(settings.images)
    caveats = check_subject(subject)
    scope = Scope(settings, len(subject.data), subject.data.side, inputs)
    fingerprints = subject.fingerprints
    about = {
        "model": subject.name,
        "data": subject.data.name,
        "data_notes": list(_data_notes(subject)),
        "caveats": [caveat.to_row() for caveat in caveats],
        "settings": settings.to_row(),
        "budget": budget,
        "scope": {"images": scope.images, "side": scope.side, "inputs": inputs},
        "fingerprints": fingerprints,
        "device": subject.device,
        "operations": operations,
        "command": command or f"shiftproof.audit({subject.name!r}, {subject.data.name!r}, ...)",
    }
    tasks = {name: planned(name, scope) for name in dict.fromkeys((CLEAN, *settings.sections))}
    plan = Plan(tuple(task for some in tasks.values() for task in some), fingerprints)
    with Store(Path(out), subject.identity) as store:
        subject.check_answers(store)
        store.note({"audit": json.dumps(about), TASKS: noted(tasks, fingerprints)})
        missing = _tell_plan(plan, store, subject, where, on_plan)
        drive(plan, store, partial(Measurer, subject), executor=where, on_progress=on_progress)
        if missing:
            note_memory(store, subject.device)
        with understood(out):
            result = conclude(store, requirements)
    if junit is not None:
        write_atomically(Path(junit), junit_xml(result))
    return result


def reopen(out: str | Path, *, require: Sequence[str] = (), junit: str | Path | None = None) -> Audit:
    """Return the audit of a run directory and write its report and result files again, from what its store holds.

    What is required of its numbers is checked as in `audit`.
    """
    requirements = tuple(map(parse, require))
    with Store(Path(out)) as store, understood(out):
        result = conclude(store, requirements)
    if junit is not None:
        write_atomically(Path(junit), junit_xml(result))
    return result


def _tell_plan(
    plan: Plan,
    store: Store,
    subject: Subject,
    executor: Executor,
    on_plan: Callable[[Forecast], None] | None,
) -> bool:
    """Tell how long what is missing should take, and note it, where somebody listens; return whether any is missing."""
    tasks = {identity: task for identity, task in plan.identities().items() if isinstance(task, Measurement)}
    done = store.done()
    if not tasks.keys() - done or on_plan is None:
        return bool(tasks.keys() - done)
    at_a_time = _at_a_time(executor)
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // at_a_time))  # as many as each worker will have
    try:
        forecast = BatchFitter(subject.batch_size)(
            lambda size: estimate(tasks, done, Prices(subject.at_batch_size(size)), at_a_time=at_a_time)
        )
    finally:
        torch.set_num_threads(threads)
    store.note({PLANNED: json.dumps(forecast.planned)})
    on_plan(forecast)
    return True


def _at_a_time(executor: Executor) -> int:
    """Return how many tasks an executor runs at once, as far as it is known beforehand."""
    if isinstance(executor, Inline):
        return 1
    given = getattr(executor, "count", getattr(executor, "workers", None))
    return given or (cores() if isinstance(executor, Processes) else 1)


def _data_notes(subject: Subject) -> Iterator[str]:
    """Yield what the report should say of the data: of texts also those that are cut, and the sections left out."""
    yield from subject.data.notes
    if subject.data.kind == "texts":
        for tell in (truncation, pairing):
            if said := tell(subject.model, as_texts(subject.data).texts):
                yield said
        left_out = [name for name in SECTIONS if name not in applicable(subject.data.kind)]
        yield f"Sections that do not apply to {subject.data.kind}: {', '.join(left_out)}."
