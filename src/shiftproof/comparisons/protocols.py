"""Published protocols of test-time adaptation as one call: many streams, means with intervals over them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shiftproof.adapters import Method
from shiftproof.comparisons.along_streams import METHODS, StreamComparison, compare_on_stream
from shiftproof.data import DataLike, DataSpec
from shiftproof.data.loading import is_joined
from shiftproof.errors import ConfigurationError
from shiftproof.measures.intervals import batch_intervals
from shiftproof.models import ModelLike, choose_device
from shiftproof.registry import unknown
from shiftproof.runs import Executor, Json, OnProgress, write_atomically
from shiftproof.runs.files import expand
from shiftproof.streams import Trace, calibrate
from shiftproof.streams.ccc.calibrating import IMAGES
from shiftproof.streams.ccc.schedule import LENGTH, SEED

FILE = "protocol.json"
MIN_STREAMS = 3
"""Fewer streams are too few for an interval."""
ProtocolName: TypeAlias = Literal["cin-c", "ccc", "recurring", "correlated", "batch-sizes", "mixed"]


@dataclass(frozen=True)
class PlannedStream:
    """One stream of a protocol: which of its groups it counts for, and how it is made."""

    group: str
    stream: str
    seed: int
    batch_size: int
    target: str | None = None
    speed: int | None = None
    severity: float | None = None

    @property
    def folder(self) -> str:
        """Where in a run directory it is."""
        parts = [self.group.replace(" ", "-"), *([f"speed-{self.speed}"] if self.speed else []), f"seed-{self.seed}"]
        return "-".join(parts)


@dataclass(frozen=True)
class Protocol:
    """A named set of streams: what it is, how many seeds it has, and the published length of a stream."""

    what: str
    seeds: int
    published: int | None = None

    def plan(self, name: str, runs: int, seed: int, batch_size: int, stream: str | None) -> list[PlannedStream]:
        """Return the streams of so many seeds."""
        seeds = range(seed, seed + runs)
        match name:
            case "ccc":
                levels = product(("easy", "medium", "hard"), (1000, 2000, 5000), seeds)
                return [
                    PlannedStream(level, "ccc", SEED + each, batch_size, level, speed) for level, speed, each in levels
                ]
            case "batch-sizes":
                return [
                    PlannedStream(f"batches of {size}", "concatenated", each, size, severity=5.0)
                    for size, each in product((1, 8, 64), seeds)
                ]
        kind = {"cin-c": "concatenated"}.get(name, name)
        severity = None if stream else 5.0
        return [PlannedStream(name, stream or kind, each, batch_size, severity=severity) for each in seeds]


PROTOCOLS: Mapping[str, Protocol] = {
    "cin-c": Protocol("all corruptions at severity 5 one after another, in ten orders (Press et al. 2023)", 10),
    "ccc": Protocol("CCC at three targets, three speeds and three seeds (Press et al. 2023)", 3, 7_500_000),
    "recurring": Protocol("one order of all corruptions at severity 5 visited 20 times, Dirichlet labels (PeTTA)", 3),
    "correlated": Protocol("all corruptions at severity 5, labels ordered by a Dirichlet distribution", 3),
    "batch-sizes": Protocol("all corruptions at severity 5 in batches of 1, 8 and 64", 3),
    "mixed": Protocol("every image under a corruption of its own at severity 5", 3),
}


@dataclass(frozen=True)
class ProtocolResult:
    """The results of every method along every stream of a protocol.

    Args:
        protocol: The name of the protocol.
        folder: The run directory.
        planned: The streams of the protocol.
        runs: One comparison for each stream.
        notes: Caveats on the results.
    """

    protocol: str
    folder: Path
    planned: tuple[PlannedStream, ...]
    runs: tuple[StreamComparison, ...]
    notes: tuple[str, ...]

    def to_rows(self) -> list[dict[str, Json]]:
        """Return one row per group of streams and method: means over streams, with Student's t 95% intervals.

        An interval covers the draw of orders and seeds, on these images; it needs three streams or more.
        """
        made: list[dict[str, Json]] = []
        for group in dict.fromkeys(each.group for each in self.planned):
            here = [run for plan, run in zip(self.planned, self.runs, strict=True) if plan.group == group]
            for name in dict.fromkeys(name for run in here for name in run.traces):
                rows = [row for run in here for row in run.to_rows() if row["method"] == name]
                accuracy, above = (_numbers(rows, part) for part in ("accuracy", "area_against_source"))
                made.append(
                    {
                        "group": group,
                        "method": name,
                        "streams": len(rows),
                        "accuracy": float(accuracy.mean()),
                        **_interval("accuracy", accuracy, here),
                        "worst": float(accuracy.min()),
                        "against_source": float(above.mean()),
                        **_interval("against_source", above, here),
                        "collapsed": sum(row["collapsed_after"] is not None for row in rows),
                        **{part: int(_numbers(rows, part).sum()) for part in ("batches", "updates", "resets")},
                    }
                )
        return made

    def visits(self, method: str, visits: int = 20) -> list[float | None]:
        """Return the mean accuracy of a method in each visit of a recurring stream; None if no batch begins in it."""
        found = np.array([_by_part(run.traces[method], visits) for run in self.runs]).mean(0)
        return [None if np.isnan(value) else float(value) for value in found]


def run_protocol(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    protocol: ProtocolName = "cin-c",
    methods: Sequence[str | Method] = METHODS,
    runs: int | None = None,
    shifts: Sequence[str] | None = None,
    preset: str | None = None,
    options: Mapping[str, object] | None = None,
    lr_scale: float = 1.0,
    calibration_images: int = IMAGES,
    images: int | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: int = 64,
    out: str | Path = "shiftproof-protocol",
    executor: str | Executor = "inline",
    on_progress: OnProgress | None = None,
) -> ProtocolResult:
    """Run a published test-time adaptation protocol: means over many streams. Writes protocol.json.

    Every stream has its own run directory in `out`. Notes say where a run is shorter than the published protocol or
    leaves something out.

    Args:
        model: Anything `load_model` accepts.
        data: Anything `load_data` accepts; with cin-c also suite:ImageNet-C, whose files are then the stream.
        protocol: cin-c: ten orders of all corruptions; ccc: three targets at three speeds and three seeds; recurring:
            20 visits; correlated: labels ordered by a Dirichlet distribution; batch-sizes: 1, 8 and 64; mixed: all
            corruptions at once.
        methods: Test-time adaptation methods to compare; `shiftproof list adapters` names them.
        runs: Number of orders or seeds. Default: 10 for cin-c, otherwise 3.
        shifts: Shifts or families; holdout is for choosing hyper-parameters.
        preset: Default settings of methods: imagenet, imagenet_vit, cifar, cifar100 or cifar_vit. Default: chosen by
            the number of classes and the normalisation layers.
        options: Options of methods, applied to each method that has them, such as reset=500; in Python also {"reset":
            500}.
        lr_scale: Factor applied to all learning rates.
        calibration_images: With ccc, the largest number of images to measure per pair of severities.
        images: Length of each stream. Default: one round of all images; for ccc 100,000.
        seed: Offset added to the seeds of the protocol.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Images per batch; not used by the protocol batch-sizes.
        out: Run directory; the same call resumes it.
        executor: inline, or processes:4 to run four methods at a time. Does not affect the numbers.
        on_progress: Called as on_progress(done, total, result).

    >>> options = {"runs": 2, "shifts": ["contrast"], "images": 40, "out": folder}
    >>> found = run_protocol("demo", "demo", protocol="cin-c", methods=["bn"], **options)
    >>> [row["method"] for row in found.to_rows()]
    ['source', 'bn']
    """
    if protocol not in PROTOCOLS:
        raise unknown("protocol", protocol, PROTOCOLS)
    chosen = PROTOCOLS[protocol]
    count = chosen.seeds if runs is None else runs
    if count < 1 or batch_size < 1:
        raise ConfigurationError(
            "The number of runs and the batch size must be positive.",
            expected="1 or more of each",
            got=f"runs {runs}, batch_size {batch_size}",
        )
    folder, device = expand(out), choose_device(device, model)
    given = data.given if isinstance(data, DataSpec) else data
    stored = str(given) if is_joined(given) else None
    if stored and protocol != "cin-c":
        raise ConfigurationError(
            f"The protocol {protocol} cannot use a suite or folders.",
            expected="cin-c with a suite or folders",
            got=protocol,
        )
    planned = chosen.plan(protocol, count, seed, batch_size, stored)
    found = []
    for number, each in enumerate(planned):
        place = folder / each.folder
        calibration = None
        if each.target is not None:
            calibration = place / "calibration.json"
            calibrate(
                model,
                data,
                target=each.target,
                speed=each.speed or 1,
                seed=each.seed,
                images=LENGTH if images is None else images,
                shifts=shifts,
                calibration_images=calibration_images,
                device=device,
                out=folder / "calibration",  # one for all: what a pair of severities does is measured once
                on_progress=on_progress,
            ).save(calibration)
        found.append(
            compare_on_stream(
                model,
                _beside(data) if stored else data,
                stream=each.stream,
                methods=methods,
                speed=each.speed,
                severity=each.severity,
                shifts=None if each.target is not None or stored else shifts,
                preset=preset,
                options=options,
                lr_scale=lr_scale,
                calibration=calibration,
                images=images,
                seed=each.seed,
                device=device,
                batch_size=each.batch_size,
                out=place,
                executor=executor,
                on_progress=_part(on_progress, number, len(planned)),
            )
        )
    notes = (*_shorter(chosen, protocol, found), *dict.fromkeys(note for run in found for note in run.notes))
    result = ProtocolResult(protocol, folder, tuple(planned), tuple(found), notes)
    content = {"protocol": protocol, "what": chosen.what, "runs": count, "lr_scale": lr_scale, "preset": preset}
    content |= {
        "streams": [{"folder": each.folder, "shifts": run.shifts} for each, run in zip(planned, found, strict=True)]
    }
    content |= {"notes": result.notes, "rows": result.to_rows()}
    if protocol == "recurring":
        content["visits"] = {name: result.visits(name) for name in found[0].traces}
    write_atomically(folder / FILE, json.dumps(content, indent=1, default=str) + "\n")
    return result


def _shorter(chosen: Protocol, name: str, found: Sequence[StreamComparison]) -> list[str]:
    """Return what has to be said of streams that are shorter than published, and of too few of them."""
    length = min(sum(run.traces["source"].images) for run in found)
    said = []
    if chosen.published is not None and length < chosen.published:
        said.append(f"Streams have {length:,} images; the published ones have {chosen.published:,}.")
    streams = len(found)
    if streams < chosen.seeds:
        said.append(f"{streams} of the {chosen.seeds} streams of {name} were run.")
    return said


def _by_part(trace: Trace, parts: int) -> NDArray[np.float64]:
    """Return the accuracy in equal parts of a trace; a batch counts for the part that it begins in, NaN without any."""
    images, right = np.array(trace.images), np.array(trace.right)
    part = (np.cumsum(images) - images) * parts // images.sum()
    with np.errstate(invalid="ignore"):
        shares: NDArray[np.float64] = np.bincount(part, right, parts) / np.bincount(part, images, parts)
    return shares


def _numbers(rows: Sequence[Mapping[str, Json]], part: str) -> NDArray[np.float64]:
    return np.array([row[part] for row in rows], dtype=np.float64)


def _interval(name: str, values: NDArray[np.float64], runs: Sequence[StreamComparison]) -> dict[str, Json]:
    """Return the limits of a mean over streams, of at least so many images each; None where they are too few."""
    images = min(sum(run.traces["source"].images) for run in runs)
    low, high = batch_intervals(values[:, None], images)[0].tolist() if len(values) >= MIN_STREAMS else (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _beside(data: DataLike) -> DataLike:
    """Return what stands for data where the stream is the data: only how they are read."""
    return DataSpec("demo", **data.options) if isinstance(data, DataSpec) else "demo"


def _part(on_progress: OnProgress | None, number: int, parts: int) -> OnProgress | None:
    """Return what hears of one stream and tells of all."""
    if on_progress is None:
        return None
    return lambda done, total, result: on_progress(number * total + done, parts * total, result)
