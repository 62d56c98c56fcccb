"""The main job: a model and images in; a report a person can decide from, and numbers a pipeline can gate on, out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from shiftproof.adapters import Method
from shiftproof.audits.audit_record import TASKS, noted, understood
from shiftproof.audits.audit_settings import BudgetName, affordable, make_settings
from shiftproof.audits.audited_images import AuditedImages
from shiftproof.audits.caveats import check_subject
from shiftproof.audits.conclusion import CLEAN, Audit, answers_in, conclude
from shiftproof.audits.costs import note_end
from shiftproof.audits.executor_choice import quickest_executor
from shiftproof.audits.forecast import Forecast
from shiftproof.audits.mistakes import drawn, export
from shiftproof.audits.pacing import quickest
from shiftproof.audits.planning import (
    at_a_time,
    fitting_scale,
    noted_scale,
    scope_of,
    tell_plan,
    told_cut,
)
from shiftproof.audits.requirements import Requirement, parse_all, parse_known
from shiftproof.audits.requirements import junit as junit_xml
from shiftproof.audits.run_reports import RunReport, report_run
from shiftproof.audits.sections import SECTIONS, SECTIONS_BY_TASK, applicable, planned
from shiftproof.audits.sections.base import Measurement, Scope
from shiftproof.audits.sections.segmentation.trying import check_segmenter
from shiftproof.audits.staging import measure, steps_of
from shiftproof.audits.suite_cells import fingerprint_of
from shiftproof.audits.suite_subjects import SuiteSubject, as_suite, base_data, choose_parts
from shiftproof.data import DataLike, as_texts
from shiftproof.errors import ConfigurationError
from shiftproof.models import ModelLike
from shiftproof.models.arithmetic import operations as operations_of
from shiftproof.models.texts import pairing, truncation
from shiftproof.prediction_tasks import CLASSES, LABEL_MAPS
from shiftproof.prediction_tasks import TASKS as TASKS_OF_DATA
from shiftproof.runs import (
    Auto,
    Executor,
    OnProgress,
    Plan,
    Store,
    choose_executor,
    write_atomically,
)
from shiftproof.runs.files import expand, is_writable
from shiftproof.shifts import Shift
from shiftproof.subjects import Measurer, Subject

OUT = "shiftproof-audit"
CHECKS = {CLASSES.name: check_subject, LABEL_MAPS.name: check_segmenter}
"""What labels ask of a model -> what tries it before any long work."""


def audit(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    clean: DataLike | None = None,
    budget: BudgetName = "quick",
    sections: Sequence[str] | None = None,
    shifts: Sequence[str | Shift] | None = None,
    severities: Sequence[float] | None = None,
    methods: Sequence[str | Method] | None = None,
    require: Sequence[str] = (),
    junit: str | Path | None = None,
    export_failures: str | Path | None = None,
    amp: bool = False,
    images: int | None = None,
    minutes: float | None = None,
    precision: float | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: int | None = None,
    out: str | Path = OUT,
    executor: str | Executor = "inline",
    command: str | None = None,
    on_progress: OnProgress | None = None,
    on_plan: Callable[[Forecast], None] | None = None,
) -> Audit:
    """Audit a classifier or segmenter under distribution shift.

    Writes report.html, results.json, results.csv and images.csv.

    A downloaded suite (ImageNet-C, CIFAR-10-C) is audited from its own files, one per corruption and severity.

    Exits with 3 if a requirement fails, and with 1 if tasks failed or are missing.

    Args:
        model: Anything `load_model` accepts.
        data: Anything `load_data` accepts, or a whole suite such as ImageNet-C/.
        clean: The clean images of a suite, in any form `load_data` accepts. Default: none; only corruptions are
            measured.
        budget: quick (1,000 images), standard (5,000) or full (all).
        sections: Sections to run. Default: all.
        shifts: Families or names of shifts, each measured at every severity, or shifts with a fixed strength: fog@3,
            rotate=15, 'fog@3 + jpeg_compression@2'. Default: the family common; everyday for texts; all corruptions of
            a suite.
        severities: Severities, above 0 and up to 5. Default: 1 to 5, or all severities of a suite.
        methods: Test-time adaptation methods; `shiftproof list adapters` names them. Default: set by the budget.
        require: Requirements on the results, such as 'corruptions > 60%' or 'worst_case > 40%'.
        junit: File to write the results of the requirements to, as JUnit XML.
        export_failures: Folder to copy the most confident mistakes to, up to 20 per shift and severity.
        amp: Run the model in bfloat16 where PyTorch considers it safe (autocast); the report says what that changes.
        images: Number of inputs to use, drawn in proportion to the classes. Default: set by the budget.
        minutes: Approximate time limit in minutes; sample sizes are reduced to fit the measured speed of the model.
            Default: no limit.
        precision: Stop when the intervals of clean accuracy and of accuracy under corruption are at most this many
            points wide on either side; the budget sets the maximum number of inputs. Default: use all of them.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Inputs per forward pass. Default: chosen by device and image size.
        out: Run directory; the same call resumes it.
        executor: inline, processes, processes:4, ray, ray:16, or auto, which uses processes if a short trial shows that
            they are faster. Does not affect the numbers.
        on_progress: Called as on_progress(done, total, result).
        command: The command line that the report shows.
        on_plan: Called with a forecast of the running time before any long work.

    >>> result = audit("demo", "demo", out=folder, images=20, shifts=["contrast"], sections=["clean", "corruptions"])
    >>> result.numbers["clean_accuracy"] > result.numbers["accuracy.contrast"]
    True
    """
    suite = as_suite(data)
    if suite is None:
        _refuse_clean(clean)
    given = data if suite is None else base_data(suite, clean)
    subject = Subject.of(
        model, given, seed=seed, device=device, batch_size=batch_size, amp=amp, texts=True, tasks=tuple(TASKS_OF_DATA)
    )
    if suite is not None:
        parts, shifts = choose_parts(suite, shifts, severities)
        subject = SuiteSubject.on(subject, suite, parts, clean=clean is not None)
    inputs, task = subject.loaded_data.kind, subject.loaded_data.task
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
        task=task,
        clean=suite is None or clean is not None,
        minutes=minutes,
        precision=precision,
        amp=amp,
    )
    usual = asked()  # what is wrong with the options is told before a model is loaded
    requirements = parse_all(require, usual.sections, task)
    where = choose_executor(executor, device=subject.device)
    (one,) = subject.labelled_data.subset([0]).batches(1, device=subject.device)
    operations = operations_of(subject.model, one.inputs)
    scaled = partial(asked, available=(available := len(subject.labelled_data)))
    if minutes is None:
        settings = scaled(scale=affordable(budget, subject.device, operations))
    else:
        known = noted_scale(Path(out), minutes)
        settings = scaled(scale=known or fitting_scale(minutes, scaled, subject, at_a_time(where)))
    subject = subject.taking(settings.images)
    caveats = CHECKS[task](subject)
    scope = scope_of(settings, len(subject.data), subject)
    fingerprints = subject.fingerprints
    name = subject.data.name if suite is None else suite.name
    about = {
        "model": subject.name,
        "data": name,
        "data_notes": list(_data_notes(subject)),
        "caveats": [caveat.to_row() for caveat in caveats],
        "settings": settings.to_row(),
        "budget": budget,
        "fingerprints": {**fingerprints, **({"suite": fingerprint_of(scope.cells)} if scope.cells else {})},
        "device": subject.device,
        "operations": operations,
        "command": command or f"shiftproof.audit({subject.name!r}, {name!r}, ...)",
    }
    tasks = {name: planned(name, scope) for name in dict.fromkeys((CLEAN, *settings.sections))}
    plan = Plan(tuple(task for some in tasks.values() for task in some), fingerprints)
    with Store(Path(out), subject.identity) as store:
        subject.check_answers(store)
        keep = partial(_note, store, about, fingerprints, AuditedImages.of(subject))
        keep(scope, tasks)
        subject = quickest(subject, plan, operations, store, workers=at_a_time(where))
        where = quickest_executor(subject, scope, plan, operations, where) if isinstance(where, Auto) else where
        cut = partial(told_cut, tasks, scope.grown(usual, available), scope.told_cut(operations))
        if tell_plan(plan, store, subject, where, on_plan and (lambda forecast: on_plan(cut(forecast)))):
            report_now = partial(conclude, store, requirements, scope, interim=True)
            with where.open(partial(Measurer, subject)) as pool, _reported_if_interrupted(report_now):
                ended = measure(steps_of(tasks, scope), scope, store, pool, fingerprints, report_now, on_progress)
            if ended != scope:
                scope = ended
                keep(scope, {name: planned(name, scope) for name in tasks})
            note_end(store, subject.device)
        elif on_progress is not None:
            on_progress(len(plan.identities()), len(plan.identities()), None)
        result = _finish(store, requirements, scope, subject, export_failures)
    if junit is not None:
        write_atomically(Path(junit), junit_xml(result))
    return result


def report(run: str | Path) -> Audit | RunReport:
    """Rebuild the report of a run directory from the results so far.

    For training runs, certificates, spectra and searches, the report is built from the files in the folder, along with
    a CSV table.

    Exits with 1 if tasks of an audit failed or are missing.

    Args:
        run: A folder that `audit`, `train`, `certify`, `spectrum` or `search` wrote.

    >>> result = audit("demo", "demo", out=folder, images=20, shifts=["contrast"], sections=["clean", "corruptions"])
    >>> report(folder).report.name
    'report.html'
    """
    return report_run(Path(run)) or gate(run)


def gate(run: str | Path, *, require: Sequence[str] = (), junit: str | Path | None = None) -> Audit:
    """Check requirements against a finished audit.

    Exits with 3 if a requirement fails, and with 1 if tasks failed or are missing. If the folder is read-only, its
    files are not rewritten.

    Args:
        run: A folder that `audit` wrote.
        require: Requirements on the results, such as 'corruptions > 60%' or 'worst_case > 40%'.
        junit: File to write the results of the requirements to, as JUnit XML.

    >>> result = audit("demo", "demo", out=folder, images=20, shifts=["contrast"], sections=["clean", "corruptions"])
    >>> [check.passed for check in gate(folder, require=["clean > 50%", "corruptions > 99%"]).checks]
    [True, False]
    """
    requirements = parse_known(require)
    writable = is_writable(Path(run))
    with Store(Path(run)) as store, understood(run):
        result = conclude(store, requirements, write=writable)
    if not writable and not result.report.exists():
        warnings.warn(f"The folder {str(run)!r} is read-only, and has no report.", stacklevel=2)
    if junit is not None:
        write_atomically(Path(junit), junit_xml(result))
    return result


def _note(
    store: Store,
    about: Mapping[str, object],
    fingerprints: Mapping[str, str],
    images: AuditedImages,
    scope: Scope,
    tasks: Mapping[str, Sequence[Measurement]],
) -> None:
    """Keep what an audit is about, and its plan."""
    audited = json.dumps({**about, "scope": scope.to_row()})
    store.note({"audit": audited, TASKS: noted(tasks, fingerprints), **images.to_note()})


def _finish(
    store: Store,
    requirements: Sequence[Requirement],
    scope: Scope,
    subject: Subject,
    export_failures: str | Path | None,
) -> Audit:
    """Draw the most confident mistakes, write all files, and copy the images of mistakes where that is asked for."""
    with understood(store.folder):
        if (found := answers_in(store, scope)) is not None:
            store.note(drawn(found, subject, scope.settings.seed))
        result = conclude(store, requirements, scope)
    if export_failures is not None and result.answers is not None:
        export(result.answers, subject, expand(export_failures))
    return result


@contextmanager
def _reported_if_interrupted(report: Callable[[], object]) -> Iterator[None]:
    """Write the report of what there is where somebody interrupts."""
    try:
        yield
    except KeyboardInterrupt:
        report()
        raise


def _refuse_clean(clean: DataLike | None) -> None:
    if clean is not None:
        raise ConfigurationError(
            "clean= is only for a suite of corrupted images.",
            expected="data= (--data) a suite as a whole, such as ImageNet-C/ or CIFAR-10-C/",
            fix="leave clean out: other data is the clean set itself",
        )


def _data_notes(subject: Subject) -> Iterator[str]:
    """Yield what the report should say of the data: of texts also those that are cut, and the sections left out."""
    yield from subject.data.notes
    if isinstance(subject, SuiteSubject):
        if subject.suite.ignored:
            yield f"Arrays that are not as those of the suite were left out: {', '.join(subject.suite.ignored)}."
        if not subject.clean:
            left_out = [name for name in SECTIONS if name not in applicable(subject.data.kind, clean=False)]
            yield (
                "No clean set was given (--clean FOLDER, clean=): clean accuracy and what corruption costs are not "
                f"known, and sections that need clean images were left out: {', '.join(left_out)}."
            )
    lacking = [name for name in SECTIONS.own if name not in SECTIONS_BY_TASK[subject.data.task]]
    if lacking:
        yield f"Sections that are not available for {subject.data.task}: {', '.join(lacking)}."
    if subject.data.kind == "texts":
        for tell in (truncation, pairing):
            if said := tell(subject.model, as_texts(subject.data).texts):
                yield said
        left_out = [name for name in SECTIONS if name not in applicable(subject.data.kind)]
        yield f"Sections that do not apply to {subject.data.kind}: {', '.join(left_out)}."
