r"""Safe adaptation along many streams: who stays above the source model, and how near to the best fixed method.

    python -m benchmarks.safe_adaptation record --data cifar10/test.npz --source cifar10/train.npz --out runs/safe \
        --models demo,cifar10-vit --device cuda --workers 14 --seconds 500
    python -m benchmarks.safe_adaptation table --out runs/safe --models demo,cifar10-vit --workers 14

`record` finds the paths of CCC for the first model, makes every stream once, sends all methods along each at the usual
and at ten times the learning rates, and writes what each answered; it stops when its time is up, and a second call
resumes. `table` chooses among the answers as `safe` does, for several shares of labels and seeds of its coins: since
configurations learn side by side, whoever serves, the choice can be made afterwards. It prints means over the streams
that a method went along, and differences paired by stream, which alone compare methods that went along different ones.
Streams of two models, or at two rates, count as two.

`--holdout` makes all streams of the hold-out corruptions; settings are chosen on those. `table --also runs/other`
counts the streams of other runs, with other data or models, in the same table.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import shiftproof
from benchmarks.safe_streams import Classes, Shape, held, shapes
from shiftproof.adapters import PairedAudit, adapt, choose_preset, method
from shiftproof.data import as_images
from shiftproof.errors import ModelError
from shiftproof.models import logits
from shiftproof.runs import write_atomically

METHODS = ("source", "bn", "rdumb", "eata", "guard", "rdumbpp", "asr", "tent", "eta", "petta")
"""The cheapest first: what a call has no time for is the dearest at ten times the rates."""
RATES = (1.0, 10.0)
CANDIDATES = {"safe": ("bn", "rdumb"), "safe+petta": ("bn", "rdumb", "petta")}
SHARES = {"safe": (50, 200, 500), "safe+petta": (50,)}
COINS = 3
"""Seeds of the coins that each choice is repeated with."""
WINDOW = 64
"""Smaller batches are joined by so many recent images: statistics of one image are none."""
FROM_SOURCE = 2_000
"""Images of the source for the features that PeTTA compares with."""
Unit = tuple[Shape, str, str, float]
"""A stream, a model, a method, and how many times its rate."""


@cache
def loaded(model: str, device: str) -> nn.Module:
    """Return a model, loaded once in a process."""
    found = shiftproof.load_model(model)
    if not isinstance(found, nn.Module):
        raise SystemExit("a black box cannot learn")
    made: nn.Module = found.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return made


def answers(
    model: nn.Module,
    name: str,
    rate: float,
    images: Tensor,
    batch: int,
    source: Tensor | None,
    amp: str | None,
    graph: bool,
) -> Classes:
    """Return what a method answers along the images, at the preset of the model and so many times its rate.

    The name may have options: `eta[reset=125]`.
    """
    classes = logits(model, images[:2].float() / 255).shape[1]
    preset = choose_preset(model, classes)
    name, given = parsed(name)
    given |= {"source": source} if name == "petta" and source is not None else {}
    lr = method(name).options(preset, "paper", {}).to_dict().get("lr")
    given |= {"amp": amp} | ({} if lr is None else {"lr": lr * rate})
    given |= {"graph": True} if graph and batch >= WINDOW else {}
    given |= {"window": WINDOW} if batch < WINDOW and not method(name).own_memory else {}
    adapter = adapt(model, name, preset=preset, **given)
    found = [adapter(part.float() / 255).argmax(1) for part in torch.split(images, batch)]
    return torch.cat(found).cpu().numpy().astype(np.uint16)


def file_of(out: Path, unit: Unit) -> Path:
    """Return where the answers of a method are: none where it does not apply to the model."""
    shape, model, name, rate = unit
    return out / "answers" / model / shape.name / f"{name}-{rate:g}.npy"


def save(path: Path, values: NDArray[Any]) -> None:
    """Write an array, all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (part := path.with_suffix(".part")).open("wb") as file:
        np.save(file, values.astype(np.min_scalar_type(values.max(initial=0))))
    part.replace(path)


def prepare(chosen: argparse.Namespace) -> None:
    """Make this process one of many."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if chosen.device != "cpu":
        torch.zeros(1, device=chosen.device)


def make_one(shape: Shape, chosen: argparse.Namespace) -> str:
    """Find the paths of a stream, where it has some, and make it."""
    begun = time.perf_counter()
    prepare(chosen)
    shifts = ["holdout"] if chosen.holdout else None
    said = shape.name
    if shape.kind == "ccc" and not shape.calibration(chosen.out).exists():
        said = shape.calibrate(
            chosen.models[0],
            str(chosen.data),
            chosen.out,
            shifts=shifts,
            images=min(shape.length, chosen.images or shape.length),
            calibration_images=chosen.calibration_images,
            precision=chosen.precision,
            device=chosen.device,
        )
    data = as_images(shiftproof.load_data(str(chosen.data)))
    images, labels = held(shape.make(data, chosen.out, shifts, chosen.device, chosen.images))
    save(chosen.out / "labels" / f"{shape.name}.npy", labels)
    save(chosen.held / f"{shape.name}.npy", images)
    return f"{said}: {len(labels):,} images, {time.perf_counter() - begun:.0f} s"


def record_one(unit: Unit, chosen: argparse.Namespace) -> str:
    """Send a method along a stream; return what was done and how long it took."""
    begun = time.perf_counter()
    prepare(chosen)
    shape, model, name, rate = unit
    label = f"{model} {shape.name} {name} x{rate:g}"
    if time.time() > chosen.deadline:
        return f"{label}: no time left"
    images = torch.from_numpy(np.load(chosen.held / f"{shape.name}.npy")).to(chosen.device)
    source = None
    if chosen.source and name == "petta":
        (first,) = shiftproof.load_data(str(chosen.source)).take(FROM_SOURCE).batches(FROM_SOURCE)
        source = first.inputs.to(chosen.device)
    run = partial(answers, loaded(model, chosen.device), name, rate, images, shape.batch, source, chosen.amp)
    try:
        try:
            found = run(parsed(name)[0] in chosen.graph)
        except RuntimeError as error:  # what cannot be recorded as a graph
            if name not in chosen.graph:
                raise
            found, label = run(False), f"{label} (eager: {error})"
    except ModelError as error:
        found, label = np.zeros(0, np.uint16), f"{label} ({error.headline})"
    save(file_of(chosen.out, unit), found)
    return f"{label}: {time.perf_counter() - begun:.1f} s"


def units(chosen: argparse.Namespace) -> list[Unit]:
    """Return all there is to record, in the order it is done in: what `safe` chooses from, then its rivals."""
    wanted = sorted(chosen.shapes, key=lambda shape: -shape.length / shape.batch)
    runs = [(name, rate) for rate in RATES for name in chosen.methods if rate == 1.0 or has_rate(name)]
    first = [(name, rate) for name, rate in runs if name in ("source", *CANDIDATES["safe"])]
    return [
        (shape, model, name, rate)
        for name, rate in dict.fromkeys([*first, *runs])
        for shape in wanted
        for model in chosen.models
    ]


def has_rate(name: str) -> bool:
    """Return whether a method has a learning rate."""
    return "lr" in method(parsed(name)[0]).defaults.to_dict()


def parsed(name: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a method and its options, as text.

    >>> parsed("eta[reset=125]")
    ('eta', {'reset': '125'})
    """
    method_name, _, options = name.partition("[")
    return method_name, dict(each.split("=") for each in options.removesuffix("]").split(",") if each)


def workers(count: int) -> Executor:
    """Return so many processes; one is this one."""
    if count == 1:
        return ThreadPoolExecutor(1)
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))


def record(chosen: argparse.Namespace) -> None:
    """Make the streams that are missing, then record what is."""
    chosen.deadline = time.time() + (chosen.seconds or math.inf)
    with workers(chosen.workers) as pool:
        every(pool, partial(make_one, chosen=chosen), [s for s in chosen.shapes if not made(s, chosen)])
        every(
            pool, partial(record_one, chosen=chosen), [u for u in units(chosen) if not file_of(chosen.out, u).exists()]
        )


def every(pool: Executor, work: Callable[[Any], str], tasks: Sequence[Any]) -> None:
    """Do all tasks, and say what each came to as it ends; one that fails is said, and left."""
    for done in as_completed([pool.submit(work, task) for task in tasks]):
        print(done.exception() or done.result(), flush=True)


def made(shape: Shape, chosen: argparse.Namespace) -> bool:
    """Return whether a stream is there, with its labels."""
    return all((folder / f"{shape.name}.npy").exists() for folder in (chosen.held, chosen.out / "labels"))


def serve(
    table: NDArray[np.int64], labels: NDArray[np.int64], batch: int, share: int, seed: int
) -> tuple[NDArray[np.int64], PairedAudit]:
    """Return what the safe choice among answers, [configurations, N], serves, and the test that chose."""
    audit, served = PairedAudit(len(table), 1 / share, seed=seed), []
    for low in range(0, table.shape[1], batch):
        part = table[:, low : low + batch]
        served.append(part[audit.serving])
        audit.tell({place: int(labels[place]) for place in audit.ask(part)})
    return np.concatenate(served), audit


def choose(table: NDArray[np.int64], labels: NDArray[np.int64], batch: int, share: int, seed: int) -> dict[str, float]:
    """Return what the safe choice among answers, [configurations, N], comes to, with its bounds and labels."""
    served, audit = serve(table, labels, batch, share, seed)
    least, most = audit.gain()
    right = float((served == labels).mean())
    return {"accuracy": right, "low": least, "high": most, "labels": audit.labels, "switches": len(audit.switches)}


def row_of(task: tuple[Shape, str, float], chosen: argparse.Namespace) -> dict[str, Any] | None:
    """Return the accuracies of the methods recorded and of the choices along one stream at one rate.

    Methods without a rate have the same answers at both. None where the source is not recorded. All are compared on as
    many images as all of them have answered. Choices are made where all candidates are, but for those that do not apply
    to the model.
    """
    shape, model, rate = task
    torch.set_num_threads(1)
    table: dict[str, NDArray[np.int64]] = {}
    for name in chosen.methods:
        path = file_of(chosen.out, (shape, model, name, rate if has_rate(name) else 1.0))
        if path.exists():
            table[name] = np.load(path).astype(np.int64)
    if "source" not in table:
        return None
    length = min(len(each) for each in table.values() if len(each))  # what all have answered
    table = {name: each[:length] for name, each in table.items()}
    labels = np.load(chosen.out / "labels" / f"{shape.name}.npy").astype(np.int64)[:length]
    choices = {
        f"{name} 1/{share}": [choose(stacked(table, among), labels, shape.batch, share, coin) for coin in range(COINS)]
        for name, among in CANDIDATES.items()
        if set(among) <= set(table)
        for share in SHARES[name]
    }
    accuracy = {name: float((each == labels).mean()) for name, each in table.items() if len(each)}
    row = {"model": model, "stream": shape.name, "rate": rate, "images": len(labels), "accuracy": accuracy}
    return {**row, "choices": choices}


def stacked(table: Mapping[str, NDArray[np.int64]], among: Sequence[str]) -> NDArray[np.int64]:
    """Return the answers of the source and of the candidates that apply, [configurations, N]."""
    return np.stack([table[name] for name in ("source", *among) if len(table[name])])


def interval(values: Sequence[float]) -> str:
    """Return a mean with the half-width of its 95 % interval over streams."""
    from scipy.stats import t

    reach = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{100 * float(np.mean(values)):.1f} ± {100 * reach:.1f}"


def summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table: per method and choice, its mean accuracy and how often and how far it is below others."""
    singles = {
        (number, name): value
        for number, row in enumerate(rows)
        for name, value in (row["accuracy"] | means_of(row)).items()
    }
    yield (
        "| method | accuracy, % | streams not 2 points below source | below the best fixed, points | "
        "not 1 point below rdumb | labels, % |"
    )
    yield "|---|---:|---:|---:|---:|---:|"
    for name in dict.fromkeys(name for _, name in singles):
        own = {number: value for (number, each), value in singles.items() if each == name}
        safe = sum(value >= singles[number, "source"] - 0.02 for number, value in own.items())
        gaps = [max(rows[number]["accuracy"].values()) - value for number, value in own.items()]
        near = np.mean([value >= singles.get((number, "rdumb"), 0.0) - 0.01 for number, value in own.items()])
        spent = [each["labels"] / rows[n]["images"] for n in own for each in rows[n]["choices"].get(name, ())]
        told = f"{100 * np.mean(spent):.2f}" if spent else ""
        means = f"{interval(list(own.values()))} | {safe} of {len(own)} | {interval(gaps)}"
        yield f"| {name} | {means} | {near:.0%} | {told} |"


def paired(rows: Sequence[Mapping[str, Any]], to: Sequence[str] = ("source", "rdumb", "safe 1/50")) -> Iterator[str]:
    """Yield what each method and choice is above some of them, in points, over the streams that both went along.

    Means over different streams cannot be compared: these differences are of the same streams.
    """
    flat = [row["accuracy"] | means_of(row) for row in rows]
    yield "| method | streams | " + " | ".join(f"above {name}, points" for name in to) + " |"
    yield "|---|---:|" + "---:|" * len(to)
    for name in dict.fromkeys(name for each in flat for name in each):
        own = [each for each in flat if name in each]
        cells = []
        for other in to:
            above = [each[name] - each[other] for each in own if other in each]
            fewer = f", of {len(above)}" if len(above) < len(own) else ""
            cells.append(interval(above) + fewer if above and name != other else "")
        yield f"| {name} | {len(own)} | {' | '.join(cells)} |"


def by_kind(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the mean over the streams of a kind, in percent: a row per model, kind and rate."""
    parts: dict[tuple[str, str, float], list[Mapping[str, Any]]] = {}
    for row in rows:
        kind = "-".join(row["stream"].split("-")[: 2 if row["stream"].startswith(("ccc", "batch")) else 1])
        parts.setdefault((row["model"], kind, row["rate"]), []).append(row)
    flat = {key: [row["accuracy"] | means_of(row) for row in some] for key, some in parts.items()}
    names = list(dict.fromkeys(name for some in flat.values() for each in some for name in each))
    yield "| model | streams | rate | " + " | ".join(names) + " |"
    yield "|---|---|---:|" + "---:|" * len(names)
    for (model, kind, rate), some in flat.items():
        known = {name: [each[name] for each in some] for name in names if all(name in each for each in some)}
        cells = [f"{100 * float(np.mean(known[name])):.1f}" if name in known else "" for name in names]
        yield f"| {model} | {len(some)} {kind} | {rate:g} | {' | '.join(cells)} |"


def means_of(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the accuracy of each choice, the mean over coins."""
    return {name: float(np.mean([each["accuracy"] for each in found])) for name, found in row["choices"].items()}


def detail(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one row per stream, in percent."""
    names = list(dict.fromkeys(name for row in rows for name in row["accuracy"]))
    choices = list(dict.fromkeys(name for row in rows for name in row["choices"]))
    yield "| model | stream | rate | images | " + " | ".join([*names, *choices]) + " | bound on the gain held |"
    yield "|---|---|---:|---:|" + "---:|" * (len(names) + len(choices) + 1)
    for row in rows:
        means = means_of(row)
        cells = [
            f"{100 * known[name]:.1f}" if name in known else ""
            for known, all_of in ((row["accuracy"], names), (means, choices))
            for name in all_of
        ]
        base = row["accuracy"]["source"]
        held = [
            each["low"] <= each["accuracy"] - base <= each["high"]
            for found in row["choices"].values()
            for each in found
        ]
        told = f"{sum(held)} of {len(held)}"
        where = f"{row['model']} | {row['stream']} | {row['rate']:g} | {row['images']:,}"
        yield f"| {where} | {' | '.join(cells)} | {told} |"


def print_table(chosen: argparse.Namespace) -> None:
    """Print what was recorded."""
    tasks = [(shape, model, rate) for model in chosen.models for shape in chosen.shapes for rate in RATES]
    with workers(chosen.workers) as pool:
        found = list(pool.map(partial(row_of, chosen=chosen), tasks))
    rows = [row for row in found if row is not None]
    write_atomically(chosen.out / "rows.json", json.dumps(rows))
    print(f"{len(rows)} of {len(tasks)} streams\n")
    rows += [row for other in chosen.also for row in json.loads((Path(other) / "rows.json").read_text())]
    for line in (*summary(rows), "", *paired(rows), "", *by_kind(rows), "", *detail(rows)) if rows else ():
        print(line)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("record", "table"))
    parser.add_argument("--models", type=_names, default=("demo",), help="paths of CCC are found for the first")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--source", type=Path, help="images of the source, for PeTTA")
    parser.add_argument("--out", type=Path, default=Path("runs/safe"))
    parser.add_argument("--held", type=Path, help="where the streams are held; by default in the folder of the run")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="begin nothing after so many")
    parser.add_argument("--images", type=int, help="length of the streams, at most")
    parser.add_argument("--methods", type=_names, default=METHODS)
    parser.add_argument("--also", type=_names, default=(), help="other runs, whose tables were made, counted with it")
    parser.add_argument("--amp", help="reduced precision: bfloat16")
    parser.add_argument("--graph", type=_names, default=(), help="methods whose passes are recorded, on CUDA")
    parser.add_argument("--streams", default="", help="only those whose name begins so; several with commas")
    parser.add_argument("--holdout", action="store_true", help="hold-out corruptions instead of the common ones")
    parser.add_argument("--calibration-images", type=int, default=1000)
    parser.add_argument("--precision", type=float, default=0.02)
    chosen = parser.parse_args()
    chosen.held = chosen.held or chosen.out / "held"
    chosen.shapes = [shape for shape in shapes() if shape.name.startswith(tuple(chosen.streams.split(",")))]
    {"record": record, "table": print_table}[chosen.what](chosen)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


if __name__ == "__main__":
    main()
