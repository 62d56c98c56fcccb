"""The main job: a model and images in; a report a person can decide from, and numbers a pipeline can gate on, out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from shiftproof.audits.bench import Bench, check_subject, choose_device
from shiftproof.audits.outcome import Audit, conclude
from shiftproof.audits.sections import SECTIONS, applicable, section
from shiftproof.audits.sections.base import Scope, Subject
from shiftproof.audits.settings import make_settings
from shiftproof.data import TextSet, load_data
from shiftproof.errors import ConfigurationError
from shiftproof.models import fingerprint
from shiftproof.models.texts import truncation
from shiftproof.runs import Executor, Inline, Plan, Processes, Result, Store, drive
from shiftproof.version import __version__

OUT = "shiftproof-audit"
BATCH_SIZES = {"cpu": 64, "cuda": 256}
"""Images per forward pass, by kind of device: enough to fill it, few enough to stay in a CPU's cache."""


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
    batch_size: int | None = None,
    weights: str | Path | None = None,
    size: int | None = None,
    labels: str | Path | None = None,
    on_bad_file: Literal["fail", "skip"] = "fail",
    text_column: str | None = None,
    label_column: str | None = None,
    executor: Literal["inline", "processes"] = "inline",
    workers: int | None = None,
    command: str | None = None,
    watch: Callable[[int, int, Result | None], None] | None = None,
) -> Audit:
    """Audit a classifier under distribution shift and write `report.html`, `results.json` and `results.csv` to `out`.

    `model` and `data` are what `load_model` and `load_data` take. The run directory `out` resumes: a second call with
    the same arguments goes on where the first stopped. `budget` sets how many images are used, `sections` which
    questions are asked, `shifts` which corruptions (or families) at which `severities`, `methods` which ways of
    adapting while serving. `text_column` and `label_column` name columns of a table of texts. `executor="processes"`
    spreads the work over `workers` processes; the numbers are the same. `watch(done, all, result)` hears of progress.

    >>> result = audit("demo", "demo", out=folder, images=20, shifts=["contrast"], severities=[5], methods=["bn"])
    >>> result.numbers["clean_accuracy"] > result.numbers["accuracy.contrast"]
    True
    """
    bench_options: dict[str, Any] = {
        "data_options": {
            "size": size,
            "labels": labels,
            "on_bad_file": on_bad_file,
            "text_column": text_column,
            "label_column": label_column,
        },
        "model_options": {"weights": weights},
    }
    whole = load_data(data, **bench_options["data_options"])
    inputs = "texts" if isinstance(whole, TextSet) else "images"
    settings = make_settings(
        budget=budget,
        sections=sections,
        shifts=shifts,
        severities=severities,
        images=images,
        seed=seed,
        methods=methods,
        inputs=inputs,
    )
    if batch_size is not None and batch_size < 1:
        raise ConfigurationError("The batch size must be positive.", expected="1 or more", came=str(batch_size))
    count = workers if workers is not None else os.cpu_count() or 1
    device = choose_device(device)
    bench = Bench(
        model=model,
        data=data,
        images=settings.images,
        seed=seed,
        device=device,
        batch_size=batch_size or BATCH_SIZES.get(device.partition(":")[0], 64),
        **bench_options,
        threads=max(1, (os.cpu_count() or 1) // count) if executor == "processes" else None,
    )
    subject = bench.subject(whole)
    check_subject(subject)
    scope = Scope(settings, len(subject.data), subject.data.side, inputs)
    identity = {"version": __version__, "model": fingerprint(subject.model), "data": whole.fingerprint}
    fingerprints = {**identity, "sample": subject.data.fingerprint}
    about = {
        "model": _name(model, subject.model),
        "data": subject.data.name,
        "data_notes": list(_data_notes(subject)),
        "settings": settings.to_row(),
        "budget": budget,
        "scope": {"images": scope.images, "side": scope.side, "inputs": inputs},
        "fingerprints": fingerprints,
        "device": bench.device,
        "command": command or f"shiftproof.audit({_name(model, subject.model)!r}, {subject.data.name!r}, ...)",
    }
    cells = [cell for name in settings.sections for cell in section(name).plan(scope)]
    plan = Plan(tuple(cells), fingerprints)
    with Store(Path(out), identity) as store:
        store.note({"audit": json.dumps(about)})
        _drive(plan, store, bench, Inline() if executor == "inline" else Processes(count), watch)
        return conclude(store)


def reopen(out: str | Path) -> Audit:
    """Return the audit of a run directory and write its report and result files again, from what its store holds."""
    with Store(Path(out)) as store:
        return conclude(store)


def _drive(
    plan: Plan,
    store: Store,
    bench: Bench,
    executor: Executor,
    watch: Callable[[int, int, Result | None], None] | None,
) -> None:
    identities = plan.identities()
    done = len(store.done() & identities.keys())

    def heard(result: Result | None) -> None:
        nonlocal done
        done += result is not None
        if watch is not None:
            watch(done, len(identities), result)

    heard(None)
    drive(plan, store, bench, executor=executor, watch=heard)


def _data_notes(subject: Subject) -> Iterator[str]:
    """Yield what the report should say of the data: of texts also those that are cut, and the sections left out."""
    yield from subject.data.notes
    if isinstance(subject.data, TextSet):
        if cut := truncation(subject.model, subject.data.texts):
            yield cut
        left_out = [name for name in SECTIONS if name not in applicable("texts")]
        yield f"Sections that do not apply to texts: {', '.join(left_out)}."


def _name(given: Any, model: Any) -> str:
    """Return what to call the model: the text it was given as, its own name, or its class."""
    return str(given) if isinstance(given, str | Path) else getattr(model, "name", type(model).__name__)
