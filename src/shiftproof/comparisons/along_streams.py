"""Long-stream stability: methods of adaptation along one long stream, each beside the model as it is."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq
from pathlib import Path
from typing import Any

import torch

from shiftproof.adapters import Adapter, Counts, Method, make_adapter, with_source
from shiftproof.adapters.checks import normalises_alone
from shiftproof.adapters.resets import Every
from shiftproof.audits.sections.advice import diagnoses, steps_that_tell
from shiftproof.audits.sections.measuring import naming, preset_for
from shiftproof.comparisons.methods import BATCH_SIZES, read_method_options
from shiftproof.comparisons.prediction_table import PREDICTIONS, Answers, Asked, write_predictions
from shiftproof.data import DataLike, as_images
from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.measures.windows import WINDOW
from shiftproof.models import ModelLike, choose_device
from shiftproof.prediction_tasks import CLASSES, TASKS
from shiftproof.runs import Executor, Inline, Json, OnProgress, Row, Task, choose_executor, write_atomically
from shiftproof.streams import Stream, StreamCalibration, Trace, calibrate, evaluate, make_stream
from shiftproof.streams.ccc.calibrating import IMAGES, PRECISION
from shiftproof.streams.ccc.schedule import LENGTH, SEED, SPEED
from shiftproof.streams.ccc.targets import Target, read_target
from shiftproof.streams.making import check_options, read_stream, severities_of
from shiftproof.subjects import Subject

METHODS = ("source", "bn", "tent", "eta", "eata", "rdumb", "guard")
FILE = "stream.json"


@dataclass(frozen=True)
class StreamComparison:
    """The trace of each method along a stream, and why some methods do not apply.

    Without labels, traces hold predictions but no correct ones. Predictions for your own images are in the file
    `predictions`. For label maps, the accuracies of traces are the mean over images of each image's mIoU.

    Args:
        folder: The run directory.
        traces: Correct predictions per batch, by method.
        reasons: Why a method does not apply, by method.
        notes: Caveats on the results.
        shifts: The shifts that occur along the stream.
        labelled: Whether labels are known.
        predictions: Path of the predictions for your own images; None for other streams.
        measure: accuracy, or mIoU for label maps.
    """

    folder: Path
    traces: Mapping[str, Trace]
    reasons: Mapping[str, str]
    notes: tuple[str, ...]
    shifts: tuple[str, ...] = ()
    labelled: bool = True
    predictions: Path | None = None
    measure: str = CLASSES.measure

    def to_rows(self) -> list[dict[str, Json]]:
        """Return one row per method: accuracy, mean gain over the source model, where it collapsed, and time per batch.

        Without labels, the first three are replaced by the agreement with the source model.
        """
        return [
            {
                "method": name,
                **trace.to_row(),
                **self._standing(name, trace),
                "batches": len(trace.images),
                "updates": trace.updates,
                "resets": trace.resets,
            }
            for name, trace in self.traces.items()
        ]

    def _standing(self, name: str, trace: Trace) -> dict[str, Json]:
        source = self.traces["source"]
        if not self.labelled:
            same = sum(map(eq, trace.predicted, source.predicted))
            return {"right": None, "accuracy": None, "agreement": same / len(source.predicted)}
        collapsed = None if name == "source" else trace.collapse(source)
        return {"area_against_source": trace.area(source), "collapsed_after": collapsed}


def compare_on_stream(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    stream: str = "ccc",
    methods: Sequence[str | Method] = METHODS,
    target: Target | None = None,
    speed: int | None = None,
    shifts: Sequence[str] | None = None,
    severity: float | None = None,
    preset: str | None = None,
    options: Mapping[str, object] | None = None,
    lr_scale: float = 1.0,
    calibration: str | Path | None = None,
    calibration_images: int = IMAGES,
    precision: float = PRECISION,
    images: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    batch_size: int | None = None,
    out: str | Path = "shiftproof-stream",
    executor: str | Executor = "inline",
    on_progress: OnProgress | None = None,
) -> StreamComparison:
    """Compare test-time adaptation methods along one long stream, where some collapse. Writes stream.json.

    The source model is always included. Every method has its own run directory in `out`. Without a `calibration`, CCC
    is calibrated on the model first; a calibration of another model is used as given, with a note. A stream of your own
    folders may be unlabelled; predictions per image are written to predictions.csv.

    Args:
        model: Anything `load_model` accepts.
        data: Anything `load_data` accepts.
        stream: ccc, concatenated, mixed, correlated, recurring or gradual; folders:day,night for your own folders one
            after another, instead of `data`; or suite:CIFAR-10-C for the corruptions of a downloaded suite.
        methods: Test-time adaptation methods to compare; `shiftproof list adapters` names them.
        target: With ccc, the source model's accuracy along the stream: easy, medium, hard, or a number such as 0.34.
            Default: easy, or as in the calibration.
        speed: Images per step of the stream. Default: 1,000 for ccc and gradual, or as in the calibration; otherwise
            all images.
        shifts: Shifts or families of the stream.
        severity: Severity of corruptions; not for ccc and gradual. Default: 5; for mixed 1 to 5.
        preset: Default settings of methods: imagenet, imagenet_vit, cifar, cifar100 or cifar_vit. Default: chosen by
            the number of classes and the normalisation layers.
        options: Options of methods, applied to each method that has them, such as reset=500; in Python also {"reset":
            500}.
        lr_scale: Factor applied to all learning rates.
        calibration: With ccc, a file or folder that `calibrate` wrote. Default: calibrate in the run directory.
        calibration_images: With ccc, the largest number of images to measure per pair of severities.
        precision: With ccc, standard error of the accuracy along the paths.
        images: Length of the stream. Default: one round of all images; for ccc 100,000, or as in the calibration.
        seed: Seed of every random draw. Default: 0; for ccc 43, or as in the calibration.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Images per batch. Default: 64; with label maps 8.
        out: Run directory; the same call resumes it.
        executor: inline, or processes:4 to run four methods at a time. Does not affect the numbers.
        on_progress: Called as on_progress(done, total, result).

    >>> options = {"shifts": ["contrast"], "images": 128, "out": folder}
    >>> found = compare_on_stream("demo", "demo", stream="concatenated", methods=["bn"], **options)
    >>> found.traces["bn"].accuracy > found.traces["source"].accuracy
    True
    """
    tried = with_source(methods)
    chosen = read_method_options(tried, options or {})
    kind, data = read_stream(stream, data)
    if (images is not None and images < 1) or lr_scale <= 0:
        raise ConfigurationError(
            "The number of images and lr_scale must be positive.",
            expected="images of 1 or more, lr_scale above 0",
            got=f"images {images}, lr_scale {lr_scale:g}",
        )
    check_options(kind, shifts=shifts, speed=speed)
    device, folder = choose_device(device, model), Path(out)
    target = None if target is None else read_target(target)
    made: Path | None = None
    subject = Subject.of(model, data, device=device, batch_size=batch_size, tasks=tuple(TASKS))
    batch_size = batch_size or BATCH_SIZES[subject.task.name]
    subject = subject.at_batch_size(batch_size)
    if stream == "ccc" and subject.task.per_pixel:
        raise ConfigurationError(
            "Not available for segmentation: the stream ccc, which is calibrated by accuracy.",
            expected="concatenated, mixed, recurring or gradual",
            fix="--stream gradual; the section stability of an audit has an uncalibrated one",
        )
    if stream == "ccc":
        made = Path(calibration) if calibration is not None else folder / "calibration" / "calibration.json"
        if calibration is None:
            calibrate(
                model,
                data,
                out=made.parent,
                images=LENGTH if images is None else images,
                target=target or "easy",
                speed=SPEED if speed is None else speed,
                seed=SEED if seed is None else seed,
                shifts=shifts,
                calibration_images=calibration_images,
                precision=precision,
                device=device,
                on_progress=on_progress,
            )
    given: dict[str, Any] = {"length": images, "seed": seed, "batch_size": batch_size, "speed": speed}
    given |= {"shifts": None if stream == "ccc" else shifts, **severities_of(kind, severity)}
    stream_runs = _StreamRuns(subject, folder, kind, given, made, target, preset, chosen, lr_scale)
    traces, reasons = _run(stream_runs, tried, choose_executor(executor, device=device), on_progress)
    made_stream = stream_runs.stream()
    result = StreamComparison(
        folder,
        traces,
        reasons,
        (*stream_runs.notes(), *_said(traces, chosen.get("reset")), *_small(stream_runs, traces, tried)),
        made_stream.shift_names,
        made_stream.data.labels is not None,
        folder / PREDICTIONS if stream_runs.names_images else None,
        subject.task.measure,
    )
    run = {"length": len(made_stream), "seed": made_stream.seed, "speed": getattr(made_stream, "speed", None)}
    content = {"stream": stream, **given, **run, "target": target, "lr_scale": lr_scale, "options": chosen}
    content |= {"shifts": result.shifts, "notes": result.notes, "measure": result.measure, "rows": result.to_rows()}
    write_atomically(folder / FILE, json.dumps(content, indent=1, default=str) + "\n")
    if result.predictions is not None:
        _write_predictions(result.predictions, stream_runs, traces)
    return result


def _write_predictions(path: Path, stream_runs: _StreamRuns, traces: Mapping[str, Trace]) -> None:
    stream = stream_runs.stream()
    positions = torch.arange(len(stream))
    rows, (shifts, which) = stream.rows_at(positions), stream.shifts_at(positions)
    unread = {bad.file for bad in stream.data.bad_files}
    names = [name for name in as_images(stream_runs.subject.labelled_data).take().names if name not in unread]
    labels = None if stream.data.labels is None else stream.data.labels.tolist()
    write_predictions(
        path,
        naming(stream_runs.subject),
        [
            Asked(position, names[row], shifts[domain].label, None if labels is None else labels[row])
            for position, (row, domain) in enumerate(zip(rows.tolist(), which.tolist(), strict=True))
        ],
        {name: Answers(trace.predicted, trace.confidences) for name, trace in traces.items()},
    )


@dataclass(frozen=True)
class MethodRun(Task["_StreamRuns"]):
    """The whole stream through one method."""

    kind = "stream"
    method: Method

    def measure(self, subject: _StreamRuns) -> Row:
        """Run the method, or what is left of its run."""
        return subject.trace(self.method).to_row()


@dataclass(frozen=True)
class _StreamRuns:
    """Everything needed to make the stream and a method's adapter, here or as the worker of another process."""

    subject: Subject
    folder: Path
    kind: str
    options: Mapping[str, Any]
    calibration: Path | None
    target: Target | None
    preset: str | None
    given: Mapping[str, Json]
    lr_scale: float

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what was made."""
        return {name: value for name, value in self.__dict__.items() if name != "made"}

    def __call__(self) -> _StreamRuns:
        """Return what runs methods in this process."""
        return self

    def measure(self, task: MethodRun) -> Row:
        """Run a method, or what is left of its run."""
        return task.measure(self)

    @property
    def names_images(self) -> bool:
        """Whether a prediction for each image is written: along one's own images, one class for each."""
        return self.kind == "domains" and not self.subject.task.per_pixel

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

    def trace(self, method: Method, on_progress: OnProgress | None = None) -> Trace:
        """Run one method, or what is left of its run."""
        stream = self.stream()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what an adapter has to say of itself is said in the notes
            return evaluate(
                self.adapter(method),
                stream,
                out=self.folder / method.name,
                predictions=self.names_images,
                on_progress=on_progress,
            )

    def adapter(self, method: Method) -> Adapter:
        """Return a fresh adapter of a method, with the options that it has."""
        preset = self.preset or preset_for(self.subject)
        return make_adapter(self.subject.model, method, preset=preset, lr_scale=self.lr_scale, given=self.given)


def _run(
    stream_runs: _StreamRuns, methods: Sequence[Method], executor: Executor, on_progress: OnProgress | None
) -> tuple[dict[str, Trace], dict[str, str]]:
    """Run the methods, one after another or so many at a time; a method the model cannot have gives its reason."""
    stream_runs.stream()  # what is wrong with it is told before any process starts
    if not isinstance(executor, Inline):
        with executor.open(stream_runs) as workers:
            for number, _ in enumerate(workers.run([MethodRun(each) for each in methods]), 1):
                if on_progress is not None:
                    on_progress(number, len(methods), None)
        on_progress = None
    # What is done is only read; what failed in its process fails here, in its own words, once the others are safe.
    traces: dict[str, Trace] = {}
    reasons: dict[str, str] = {}
    for number, each in enumerate(methods):
        try:
            traces[each.name] = stream_runs.trace(each, _part(on_progress, number, len(methods)))
        except ModelError as error:
            reasons[each.name] = error.headline
    return traces, reasons


def _said(traces: Mapping[str, Trace], reset: object) -> list[str]:
    """Return which methods hardly learnt, and whether the stream is long enough to tell which lasts."""
    steps = len(traces["source"].images)
    said = diagnoses({name: Counts(steps, each.updates, each.resets) for name, each in traces.items()})
    interval = reset.steps if isinstance(reset, Every) else steps_that_tell() // 2
    if "rdumb" in traces and steps < 2 * interval:
        said.append(f"{steps:,} batches are too few to tell which method lasts: rdumb goes back every {interval:,}.")
    return said


def _small(stream_runs: _StreamRuns, traces: Mapping[str, Trace], methods: Sequence[Method]) -> list[str]:
    """Return what batches of one image, and a stream shorter than a window, keep the numbers from saying."""
    said = []
    dense, images = stream_runs.subject.task.per_pixel, sum(traces["source"].images)
    if stream_runs.stream().batch_size == 1 and not dense:
        tried = [each for each in methods if each.name in traces]
        alone = [each.name for each in tried if normalises_alone(stream_runs.adapter(each))]
        if alone:
            said.append(
                f"{', '.join(alone)}: every batch is one image, normalised by its own statistics, which classifiers "
                "seldom survive. Use larger batches, or --option window=16."
            )
    if len(traces) > 1 and stream_runs.stream().data.labels is not None and images < WINDOW:
        said.append(f"A collapse is looked for in windows of {WINDOW:,} images; with {images:,}, none is told.")
    return said


def _part(on_progress: OnProgress | None, number: int, parts: int) -> OnProgress | None:
    """Return what hears of one part of a run and tells of the whole."""
    if on_progress is None:
        return None
    return lambda done, total, result: on_progress(number * total + done, parts * total, result)
