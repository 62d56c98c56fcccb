"""Endurance: methods of adaptation along one long stream, each beside the model as it is, resumable at any point."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shiftproof.adapters import Counts
from shiftproof.audits.sections.advice import diagnoses, steps_that_tell
from shiftproof.audits.sections.measuring import make_adapter, preset_for
from shiftproof.data import as_images
from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models import choose_device
from shiftproof.registry import unknown
from shiftproof.runs import Json, OnProgress, Processes, Row, Task, write_atomically
from shiftproof.streams import STREAMS, Stream, StreamCalibration, Trace, calibrate, evaluate, make_stream
from shiftproof.streams.ccc.calibrating import IMAGES, PRECISION
from shiftproof.streams.ccc.schedule import LENGTH, SEED, SPEED
from shiftproof.streams.ccc.targets import Target, read_target
from shiftproof.subjects import Subject

if TYPE_CHECKING:
    from rich.console import Console

METHODS = ("source", "bn", "tent", "eta", "eata", "rdumb", "guard")
FILE = "endurance.json"


@dataclass(frozen=True)
class StreamComparison:
    """The trace of each method along the stream, why some do not apply, and what has to be said of the stream."""

    folder: Path
    traces: Mapping[str, Trace]
    reasons: Mapping[str, str]
    notes: tuple[str, ...]

    def to_rows(self) -> list[dict[str, Json]]:
        """Return one row per method: accuracy, area against the source model, where it collapsed, and its pace."""
        source = self.traces["source"]
        return [
            {
                "method": name,
                **trace.to_row(),
                "area_against_source": trace.area(source),
                "collapsed_after": None if name == "source" else trace.collapse(source),
                "batches": len(trace.images),
                "updates": trace.updates,
                "resets": trace.resets,
            }
            for name, trace in self.traces.items()
        ]


def compare_on_stream(
    model: Any = "demo",
    data: Any = "demo",
    *,
    out: str | Path = "shiftproof-stream",
    stream: str = "ccc",
    methods: Sequence[str] = METHODS,
    images: int | None = None,
    target: Target | None = None,
    speed: int | None = None,
    seed: int | None = None,
    shifts: Sequence[str] | None = None,
    batch_size: int = 64,
    preset: str | None = None,
    lr_scale: float = 1.0,
    calibration: str | Path | None = None,
    calibration_images: int = IMAGES,
    precision: float = PRECISION,
    device: str = "auto",
    workers: int = 1,
    weights: str | Path | None = None,
    size: int | None = None,
    labels: str | Path | None = None,
    classes: str | Path | Sequence[str] = "auto",
    on_bad_file: Literal["fail", "skip"] = "fail",
    on_progress: OnProgress | None = None,
) -> StreamComparison:
    """Send the same stream of `images` images through every method, and trace how often each is right.

    `stream` is a name in `streams.STREAMS`, and what is None is the stream's own: `images` all of one round, 100,000 of
    CCC; `speed`, images a step. CCC keeps the source model at the accuracy `target` (a number, or `easy`, `medium` or
    `hard`; easy by default) by a `calibration`, a file or folder, which then says what is None, or made in `out` where
    there is none, on up to `calibration_images` images a place to a standard error of `precision`. One of another model
    is taken as it is, and said. `methods` are names of `adapters.METHODS`;
    the source model is always among them. `lr_scale` multiplies learning rates. `workers` methods run at a time, in a
    process each. Every method has a run directory in `out`: the same call goes on where it was killed. Writes
    `endurance.json`.
    """
    from shiftproof.adapters import method_names

    names = method_names(methods)
    if stream not in STREAMS:
        raise unknown("stream", stream, STREAMS)
    if (images is not None and images < 1) or workers < 1 or lr_scale <= 0:
        raise ConfigurationError(
            "A run needs images, workers and a learning rate.",
            expected="more than 0 of each",
            got=f"images {images}, workers {workers}, lr_scale {lr_scale:g}",
        )
    if stream == "mixed" and speed is not None:
        raise ConfigurationError("A mixed stream has no steps.", expected="no speed", got=f"speed {speed}")
    device, folder = choose_device(device, model), Path(out)
    target = None if target is None else read_target(target)
    data_options = {"size": size, "labels": labels, "classes": classes, "on_bad_file": on_bad_file}
    made: Path | None = None
    if stream == "ccc":
        made = Path(calibration) if calibration is not None else folder / "calibration" / "calibration.json"
        if calibration is None:
            calibrate(
                model,
                data,
                out=made.parent,
                length=LENGTH if images is None else images,
                target=target or "easy",
                speed=SPEED if speed is None else speed,
                seed=SEED if seed is None else seed,
                shifts=shifts,
                images=calibration_images,
                precision=precision,
                device=device,
                model_options={"weights": weights},
                data_options=data_options,
                on_progress=on_progress,
            )
    given: dict[str, Any] = {"length": images, "seed": seed, "batch_size": batch_size, "speed": speed}
    given |= {"shifts": None if stream == "ccc" else shifts}
    subject = Subject.of(
        model, data, device=device, model_options={"weights": weights}, data_options=data_options, batch_size=batch_size
    )
    contest = _Contest(subject, folder, stream, given, made, target, preset, lr_scale)
    traces, reasons = _run(contest, names, workers, on_progress)
    made_stream = contest.stream()
    result = StreamComparison(folder, traces, reasons, (*contest.notes(), *_said(traces)))
    run = {"length": len(made_stream), "seed": made_stream.seed, "speed": getattr(made_stream, "speed", None)}
    content = {"stream": stream, **given, **run, "target": target, "lr_scale": lr_scale, "notes": result.notes}
    write_atomically(folder / FILE, json.dumps({**content, "rows": result.to_rows()}, indent=1) + "\n")
    return result


@dataclass(frozen=True)
class MethodRun(Task["_Contest"]):
    """The whole stream through one method."""

    kind = "stream"
    method: str

    def measure(self, subject: _Contest) -> Row:
        """Run the method, or what is left of its run."""
        return subject.trace(self.method).to_row()


@dataclass(frozen=True)
class _Contest:
    """Everything needed to make the stream and a method's adapter, here or as the worker of another process."""

    subject: Subject
    folder: Path
    kind: str
    options: Mapping[str, Any]
    calibration: Path | None
    target: Target | None
    preset: str | None
    lr_scale: float

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what was made."""
        return {name: value for name, value in self.__dict__.items() if name != "made"}

    def __call__(self) -> _Contest:
        """Return what runs methods in this process."""
        return self

    def measure(self, task: MethodRun) -> Row:
        """Run a method, or what is left of its run."""
        return task.measure(self)

    @cached_property
    def made(self) -> Stream:
        """The stream, wherever it is."""
        options = dict(self.options)
        if self.calibration is not None:
            options["calibration"] = StreamCalibration.load(self.calibration)
            options["calibration"].check(target=self.target)
        return make_stream(self.kind, as_images(self.subject.labelled_data), device=self.subject.device, **options)

    def stream(self) -> Stream:
        """Return the stream at its start."""
        self.made.seek(0)
        return self.made

    def notes(self) -> tuple[str, ...]:
        """Return what the stream has to say, and whether its difficulty is another model's."""
        stream = self.stream()
        calibration = getattr(stream, "calibration", None)
        return (*stream.notes, *(calibration.notes_for(self.subject.model_fingerprint) if calibration else ()))

    def trace(self, method: str, on_progress: OnProgress | None = None) -> Trace:
        """Run one method, or what is left of its run."""
        stream = self.stream()
        preset = self.preset or preset_for(self.subject)
        adapter = make_adapter(self.subject.model, method, preset=preset, lr_scale=self.lr_scale)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what an adapter has to say of itself is said in the notes
            return evaluate(adapter, stream, out=self.folder / method, on_progress=on_progress)


def _run(
    contest: _Contest, names: Sequence[str], workers: int, on_progress: OnProgress | None
) -> tuple[dict[str, Trace], dict[str, str]]:
    """Run the methods, one after another or so many at a time; a method the model cannot have gives its reason."""
    contest.stream()  # what is wrong with it is told before any process starts
    if workers > 1:
        tasks = [MethodRun(name) for name in names]
        with Processes(min(workers, len(names)), contest.subject.device).open(contest) as crew:
            for number, _ in enumerate(crew.run(tasks), 1):
                if on_progress is not None:
                    on_progress(number, len(names), None)
        on_progress = None
    # What is done is only read; what failed in its process fails here, in its own words, once the others are safe.
    traces: dict[str, Trace] = {}
    reasons: dict[str, str] = {}
    for number, name in enumerate(names):
        try:
            traces[name] = contest.trace(name, _part(on_progress, number, len(names)))
        except ModelError as error:
            reasons[name] = error.headline
    return traces, reasons


def _said(traces: Mapping[str, Trace]) -> list[str]:
    """Return which methods hardly learnt, and whether the stream is long enough to tell who lasts."""
    steps = len(traces["source"].images)
    said = diagnoses({name: Counts(steps, each.updates, each.resets) for name, each in traces.items()})
    if "rdumb" in traces and steps < steps_that_tell():
        said.append(
            f"{steps:,} batches are too short to tell who lasts: rdumb goes back every {steps_that_tell() // 2:,}."
        )
    return said


def _part(on_progress: OnProgress | None, number: int, parts: int) -> OnProgress | None:
    """Return what hears of one part of a run and tells of the whole."""
    if on_progress is None:
        return None
    return lambda done, total, result: on_progress(number * total + done, parts * total, result)


def show(result: StreamComparison, console: Console | None = None) -> None:
    """Print a row per method: accuracy, against the source model, where it collapsed, resets and pace."""
    from rich.console import Console
    from rich.table import Table

    console = console or Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("method", "accuracy, %", "against source", "collapsed after", "updates", "resets", "ms/batch"):
        table.add_column(title, justify="left" if title == "method" else "right")
    for row in result.to_rows():
        after = row["collapsed_after"]
        table.add_row(
            str(row["method"]),
            f"{100 * float(str(row['accuracy'])):.1f}",
            "" if row["method"] == "source" else f"{100 * float(str(row['area_against_source'])):+.1f}",
            "" if after is None else f"{after:,} images",
            *(f"{row[count]:,}" if row[count] else "" for count in ("updates", "resets")),
            f"{1e3 * float(str(row['seconds_per_batch'])):.1f}",
        )
    console.print(table)
    for name, reason in result.reasons.items():
        console.print(f"{name}: {reason}", markup=False, soft_wrap=True)
    for note in result.notes:
        console.print(note, markup=False, soft_wrap=True)
    console.print(f"\nnumbers  {result.folder / FILE}", markup=False, soft_wrap=True)
