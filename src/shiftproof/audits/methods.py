"""Methods of adaptation side by side: each on the same shifted streams, from a fresh start, resumable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from shiftproof.adapters import METHODS, Counts, method_names
from shiftproof.adapters import method as find
from shiftproof.audits.bench import Bench, check_subject
from shiftproof.audits.sections.advice import diagnoses
from shiftproof.audits.sections.measuring import accuracy, preset_for
from shiftproof.data import load_images
from shiftproof.errors import ConfigurationError
from shiftproof.measures import Accuracy
from shiftproof.models import choose_device, fingerprint
from shiftproof.models.answers import check_behaviour
from shiftproof.models.identity import digest, plugin_codes
from shiftproof.runs import Cell, Json, Plan, Result, Row, Store, Watch, drive, write_atomically
from shiftproof.shifts import Shift, as_shift
from shiftproof.shifts.catalogue import as_text
from shiftproof.version import __version__


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
    model: Any = "demo",
    data: Any = "demo",
    *,
    shifts: Sequence[str | Shift],
    methods: Sequence[str] = ("bn", "tent", "rdumb"),
    out: str | Path = "shiftproof-adapt",
    images: int | None = None,
    batch_size: int = 64,
    preset: str | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    weights: str | Path | None = None,
    size: int | None = None,
    labels: str | Path | None = None,
    classes: str | Path | Sequence[str] = "auto",
    on_bad_file: Literal["fail", "skip"] = "fail",
    watch: Watch | None = None,
) -> MethodComparison:
    """Let every method adapt to the same images under each shift, in batches, and measure how often it is right.

    `shifts` are texts that `shifts.parse` reads (`fog@3`), or shifts that have such a text; `images` a number of
    images, None all. `preset` is by default the one for the model's number of classes and kind of normalisation;
    `options` are given to every method that has them. The source model is always measured too. `out` is a run
    directory: the same call goes on where it stopped. Writes `methods.json` there.

    >>> found = compare_methods("demo", "demo", shifts=["contrast@5"], methods=["bn"], images=64, out=folder)
    >>> found.gain("bn") > 0.1
    True
    """
    names = method_names(methods)
    codes: dict[str, dict[str, Json]] = {}
    for name in names:
        find(name)  # what is wrong with one is told now
        codes[name] = {"code": plugin_codes(METHODS, name)} if name in METHODS.added else {}
    parsed = {as_text(shift): digest(as_shift(shift)) for shift in shifts}
    if not parsed:
        raise ConfigurationError("There is nothing to adapt to.", expected="a shift such as fog@3", came="none")
    if batch_size < 1:
        raise ConfigurationError("The batch size must be positive.", expected="1 or more", came=str(batch_size))
    device = choose_device(device, model)
    bench = Bench(
        model=model,
        data=data,
        images=images,
        seed=seed,
        device=device,
        batch_size=batch_size,
        data_options={"size": size, "labels": labels, "classes": classes, "on_bad_file": on_bad_file},
        model_options={"weights": weights},
    )
    whole = load_images(data, **bench.data_options)
    subject = bench.subject(whole)
    mixed = whole.take()  # so that the names of files decide nothing
    prints = {"version": __version__, "model": fingerprint(subject.model), "data": mixed.fingerprint}
    check_subject(subject)
    count = len(subject.data)
    chosen: dict[str, Json] = {
        "preset": preset or preset_for(subject),
        "options": dict(options or {}),
    }
    cells = tuple(
        Cell(
            "adaptation",
            method=name,
            shift=shift,
            digest=content,
            images=count,
            seed=seed,
            batch=batch_size,
            **chosen,
            **codes[name],
        )
        for shift, content in parsed.items()
        for name in names
    )
    plan = Plan(cells, {**prints, "sample": subject.data.fingerprint})
    with Store(Path(out), prints) as store:
        check_behaviour(store, subject.model, mixed)
        results = drive(plan, store, bench, watch=watch)
    comparison = _compared(Path(out), tuple(parsed), names, results, str(chosen["preset"]))
    write_atomically(
        comparison.folder / "methods.json",
        json.dumps({"fingerprints": plan.fingerprints, **chosen, "rows": comparison.to_rows()}, indent=1) + "\n",
    )
    return comparison


def _compared(
    folder: Path, shifts: tuple[str, ...], methods: tuple[str, ...], results: Sequence[Result], preset: str
) -> MethodComparison:
    accuracies: dict[tuple[str, str], Accuracy] = {}
    counts: dict[tuple[str, str], Counts] = {}
    spent: dict[str, list[float]] = {name: [] for name in methods}
    reasons: dict[str, str] = {}
    for result in results:
        name = cast(str, result.cell["method"])
        row: Row = result.row or {"applies": False, "reason": (result.error or "").splitlines()[0]}
        value = accuracy([row]) if row.get("applies", True) else None
        if value is None:
            reasons[name] = str(row.get("reason", "no images"))
        else:
            shift = cast(str, result.cell["shift"])
            accuracies[name, shift] = value
            counts[name, shift] = Counts(*(cast(int, row.get(part, 0)) for part in Counts._fields))
            spent[name].append(cast(float, row["milliseconds"]))
    means = {name: sum(times) / len(times) for name, times in spent.items() if times}
    costs = {name: mean / means["source"] for name, mean in means.items()} if "source" in means else {}
    return MethodComparison(folder, shifts, methods, accuracies, costs, reasons, counts, preset)
