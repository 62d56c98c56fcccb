"""Methods of adaptation side by side: each on the same shifted streams, from a fresh start, resumable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from shiftproof.adapters import Counts, Method, with_source
from shiftproof.audits.caveats import check_subject
from shiftproof.audits.sections.adaptation import AdaptedStream
from shiftproof.audits.sections.advice import diagnoses
from shiftproof.audits.sections.measuring import accuracy, preset_for
from shiftproof.data import DataLike
from shiftproof.errors import ConfigurationError
from shiftproof.measures import Accuracy
from shiftproof.models import ModelLike
from shiftproof.registry import unknown
from shiftproof.runs import Executor, OnProgress, Plan, Result, Row, Store, choose_executor, drive, write_atomically
from shiftproof.shifts import Shift, as_shift
from shiftproof.subjects import Measurer, Subject


@dataclass(frozen=True)
class MethodComparison:
    """The accuracy of each method under each shift, with what was counted, its cost, and why some do not apply.

    Costs are times per batch, the source model's being 1; `preset` is that of all methods.
    """

    folder: Path
    shifts: tuple[str, ...]
    methods: tuple[str, ...]
    accuracies: Mapping[tuple[str, str], Accuracy]
    costs: Mapping[str, float]
    reasons: Mapping[str, str]
    counts: Mapping[tuple[str, str], Counts]
    preset: str

    def total(self, method: str) -> Counts:
        """Return batches, updates and resets of a method over all shifts."""
        return Counts(*map(sum, zip(*(each for (name, _), each in self.counts.items() if name == method), strict=True)))

    @property
    def notes(self) -> tuple[str, ...]:
        """What has to be said of methods that hardly learnt."""
        return tuple(diagnoses({name: self.total(name) for name in self.methods if name not in self.reasons}))

    def gain(self, method: str) -> float | None:
        """Return the mean accuracy a method adds to the source model's, over the shifts; None where it did not run."""
        gains = [
            self.accuracies[method, shift].value - self.accuracies["source", shift].value
            for shift in self.shifts
            if (method, shift) in self.accuracies and ("source", shift) in self.accuracies
        ]
        return sum(gains) / len(gains) if gains else None

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one row per method and shift that was measured."""
        return [
            {
                "method": method,
                "shift": shift,
                "accuracy": found.value,
                "images": found.images,
                **self.counts[method, shift]._asdict(),
            }
            for (method, shift), found in self.accuracies.items()
        ]


def compare_methods(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    shifts: Sequence[str | Shift],
    methods: Sequence[str | Method] = ("bn", "tent", "rdumb"),
    preset: str | None = None,
    options: Mapping[str, Any] | None = None,
    images: int | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: int = 64,
    out: str | Path = "shiftproof-methods",
    executor: str | Executor = "inline",
    on_progress: OnProgress | None = None,
) -> MethodComparison:
    """Compare methods of test-time adaptation under shifts, each from a fresh start. Writes methods.json.

    The source model is always measured too.

    Args:
        model: What `load_model` takes or returned.
        data: What `load_data` takes or returned.
        shifts: Shifts such as fog@3, contrast=0.8, 'fog@3 + jpeg_compression@2'; in Python also `Shift` objects.
        methods: Methods; `shiftproof list adapters` names them.
        preset: imagenet, imagenet_vit, cifar or cifar100. Default: by classes and layers.
        options: Given to every method that has them, such as prior=16; in Python also {"prior": 16}.
        images: Use this many inputs, drawn in proportion to the classes. Default: all.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto is CUDA where there is one.
        batch_size: Images per batch.
        out: Run directory; the same call resumes it.
        executor: inline, processes, processes:4, ray or ray:16; the numbers are the same.
        on_progress: Called as on_progress(done, all, result).

    >>> found = compare_methods("demo", "demo", shifts=["contrast@5"], methods=["bn"], images=64, out=folder)
    >>> found.gain("bn") > 0.1
    True
    """
    tried = with_source(methods)  # what is wrong with one is told now
    names = tuple(each.name for each in tried)
    given = _read_options(tried, options or {})
    made = _labelled([as_shift(shift) for shift in shifts])
    if not made:
        raise ConfigurationError("There is nothing to adapt to.", expected="a shift such as fog@3", got="none")
    subject = Subject.of(model, data, images=images, seed=seed, device=device, batch_size=batch_size)
    where = choose_executor(executor, device=subject.device)
    check_subject(subject)
    count = len(subject.data)
    fixed = preset or preset_for(subject)
    tasks = tuple(
        AdaptedStream(method, shift, count, seed, batch_size, fixed, given)
        for shift in made.values()
        for method in tried
    )
    plan = Plan(tasks, subject.fingerprints)
    with Store(Path(out), subject.identity) as store:
        subject.check_answers(store)
        results = drive(plan, store, partial(Measurer, subject), executor=where, on_progress=on_progress)
    comparison = _compared(Path(out), tuple(made), names, results, fixed)
    about = {"fingerprints": plan.fingerprints, "preset": fixed, "options": given}
    write_atomically(
        comparison.folder / "methods.json",
        json.dumps({**about, "rows": comparison.to_rows()}, indent=1) + "\n",
    )
    return comparison


def _read_options(methods: Sequence[Method], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options, which may be texts, as the methods that have them read them; refuse those that none has."""
    known = {name: each for each in methods for name in each.defaults.to_dict()}
    for name in options:
        if name not in known:
            raise unknown("option of these methods", name, known)
    return {
        name: getattr(known[name].defaults.changed({name: value}, known[name].name), name)
        for name, value in options.items()
    }


def _labelled(shifts: Sequence[Shift]) -> dict[str, Shift]:
    """Return shifts by the labels that tables have; refuse different ones of one label."""
    made: dict[str, Shift] = {}
    for shift in shifts:
        if made.setdefault(shift.label, shift).content_digest() != shift.content_digest():
            raise ConfigurationError(
                "Two shifts have the same label.",
                expected="labels that tell shifts apart",
                got=f"{shift.label} twice, of different content",
                fix="compare them in two calls, or let `label` say what is different",
            )
    return made


def _compared(
    folder: Path, shifts: tuple[str, ...], methods: tuple[str, ...], results: Sequence[Result], preset: str
) -> MethodComparison:
    accuracies: dict[tuple[str, str], Accuracy] = {}
    counts: dict[tuple[str, str], Counts] = {}
    spent: dict[str, list[float]] = {name: [] for name in methods}
    reasons: dict[str, str] = {}
    for result in results:
        if not isinstance(result.task, AdaptedStream):
            continue
        name, shift = result.task.method.name, result.task.shift.label
        row: Row = result.row or {"applies": False, "reason": (result.error or "").splitlines()[0]}
        value = accuracy([row]) if row.get("applies", True) else None
        if value is None:
            reasons[name] = str(row.get("reason", "no images"))
        else:
            accuracies[name, shift] = value
            counts[name, shift] = Counts(*(cast(int, row.get(part, 0)) for part in Counts._fields))
            spent[name].append(cast(float, row["milliseconds"]))
    means = {name: sum(times) / len(times) for name, times in spent.items() if times}
    costs = {name: mean / means["source"] for name, mean in means.items()} if "source" in means else {}
    return MethodComparison(folder, shifts, methods, accuracies, costs, reasons, counts, preset)
