"""Corrupted copies of whole data sets on disk, under shifts or as a published suite; a second call goes on.

A folder of images becomes a tree of files for each shift; other data, and the CIFAR suites, become arrays. The folder
of a copy is a run directory, with a `manifest.json` once it is complete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from shiftproof.data import BadFile, as_texts, load_data
from shiftproof.data.base import OnBadFile
from shiftproof.data.images.decoding import Size
from shiftproof.data.text.loading import is_text_source
from shiftproof.errors import ConfigurationError, RunError
from shiftproof.exports.array_copies import ArrayCopies
from shiftproof.exports.copies import Copies
from shiftproof.exports.copy_requests import Order, is_folder, make_order
from shiftproof.exports.file_copies import Format, copies_of_folder
from shiftproof.exports.text_copies import write_texts
from shiftproof.models.devices import choose_device
from shiftproof.runs import (
    Executor,
    Json,
    OnProgress,
    Plan,
    Result,
    Store,
    choose_executor,
    drive,
    write_atomically,
)
from shiftproof.runs import lock as run_lock
from shiftproof.runs import store as run_store
from shiftproof.runs.files import expand
from shiftproof.shifts.base import Shift
from shiftproof.shifts.catalogue import as_shift
from shiftproof.version import __version__

MANIFEST = "manifest.json"
QUALITY = 85
"""Of JPEG files: what the published sets were saved with."""


@dataclass(frozen=True)
class Written:
    """A finished copy: where it is, how many images it has under each shift, and the files that could not be read."""

    folder: Path
    images: int
    shifts: tuple[str, ...]
    left_out: tuple[BadFile, ...]

    @property
    def manifest(self) -> Path:
        """The file that says what was made of what."""
        return self.folder / MANIFEST


def write_corrupted(
    source: Any,
    out: str | Path,
    *,
    shifts: Sequence[str | Shift] = (),
    suite: str | None = None,
    seed: int = 0,
    format: Format | None = None,  # noqa: A002  (the option's name)
    quality: int = QUALITY,
    size: Size | None = None,
    preset: str | None = None,
    textures: str | None = None,
    on_bad_file: OnBadFile = "fail",
    device: str = "cpu",
    executor: str | Executor = "inline",
    workers: int | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    on_progress: OnProgress | None = None,
) -> Written:
    """Write a corrupted copy of a data set under some `shifts`, or as a whole published `suite`.

    `source` is a folder of images, of any sizes and in any sub-folders, or whatever else `load_data` takes.

    * A folder under one shift is a tree with the same relative paths; under several, there is one in `fog/3` and so on.
    * Other data is an array `fog@3.npy` [N, H, W, C] for each shift, with `labels.npy`.
    * The suites `imagenet-c` and `imagenet-c-bar` make files of a folder, brought to 224 pixels as published: JPEG of
      quality 85, in `corruption/severity/class/file`, where C-bar's severities are its strengths (`sparkles/3.00`).
    * The suites `cifar-c` and `cifar-c-bar` make `corruption.npy` [5 * N, H, W, C], severity after severity, and
      `labels.npy`, five times over.
    * Texts under text shifts are a table `typos@3.csv` for each, in the source's format; `text_column` and
      `label_column` name columns of the source.

    Files are PNG; `format="jpg"` writes JPEG at a `quality`, `"same"` each file's own format. `size` resizes the short
    side and crops the centre. A suite has its own severity table, shifts have that of the image size or of `preset`.
    `textures` is a folder of photographs for a suite's frost. Images are corrupted as by `shift(images, keys, seed)`
    with the keys of `load_data`: the index in an array, a digest of the path in a folder. The CPU is the default
    `device` because every machine draws the same numbers on it. `on_progress(done, all, result)` hears of progress.

    >>> written = write_corrupted("demo", folder / "copy", shifts=["contrast@5"])
    >>> written.images, sorted(path.name for path in written.folder.glob("*.npy"))
    (1000, ['contrast@5.npy', 'labels.npy'])
    """
    if is_text_source(source):
        columns = {"text_column": text_column, "label_column": label_column}
        refused = {"suite": suite, "size": size, "preset": preset, "textures": textures}
        return _write_texts(source, expand(out), shifts, refused, seed, format, on_bad_file, columns, on_progress)
    device = choose_device(device)
    order = make_order(
        source,
        shifts,
        suite,
        seed=seed,
        file_format=format,
        quality=quality,
        size=size,
        preset=preset,
        textures=textures,
        device=device,
    )
    folder = expand(out)
    _check_place(source, folder)
    where = choose_executor(executor, workers, device=device)
    copies = _copies(source, folder, order, on_bad_file)
    subject = {"version": __version__, "data": copies.fingerprint, "corruption": order.text}
    with Store(folder, subject) as store:
        results = _drive(copies, store, subject, where, on_progress)
        copies.finish()
        rows = [result.row for result in results if result.row is not None]
        found = (BadFile(*bad) for row in rows for bad in cast("list[list[str]]", row["left_out"]))
        left_out = tuple(dict.fromkeys((*copies.bad, *found)))
        images = sum(cast(int, row["images"]) for row in rows) // len(order.targets)
        write_atomically(folder / MANIFEST, _text(_manifest(source, order, copies, left_out)))
    return Written(folder, images, tuple(target.shift.label for target in order.targets), left_out)


def _write_texts(
    source: Any,
    folder: Path,
    shifts: Sequence[str | Shift],
    refused: Mapping[str, object],
    seed: int,
    file_format: str | None,
    on_bad_file: OnBadFile,
    columns: Mapping[str, str | None],
    on_progress: OnProgress | None,
) -> Written:
    """Write copies of a set of texts, with which options of images do not go."""
    for name, option in refused.items():
        if option is not None:
            raise ConfigurationError(f"{name}= does not go with texts.", got=str(option))
    options: dict[str, Any] = {"on_bad_file": on_bad_file, **columns}
    data = as_texts(load_data(source, **options))
    chosen = [as_shift(one) for one in shifts]
    write_texts(data, folder, chosen, seed=seed, format=file_format, on_progress=on_progress)
    return Written(folder, len(data), tuple(shift.label for shift in chosen), data.bad_files)


def _copies(source: Any, folder: Path, order: Order, on_bad_file: OnBadFile) -> Copies:
    common: dict[str, Any] = {
        "out": folder,
        "targets": order.targets,
        "seed": order.seed,
        "device": order.device,
    }
    if order.arrays:
        return ArrayCopies(data=source, options={"size": order.size, "on_bad_file": on_bad_file}, **common)
    return copies_of_folder(
        expand(source),
        size=order.size,
        file_format=order.file_format,
        quality=order.quality,
        on_bad_file=on_bad_file,
        **common,
    )


def _drive(
    copies: Copies, store: Store, subject: dict[str, str], executor: Executor, on_progress: OnProgress | None
) -> list[Result]:
    """Write what is missing or damaged. The first cell that fails ends it: others would fail alike, or leave a gap."""
    tasks = copies.tasks()
    plan = Plan(tasks, subject)
    identities = {task: identity for identity, task in plan.identities().items()}
    written = {result.task: copies.intact(result) for result in store.results(plan)}
    store.forget(identities[task] for task, intact in written.items() if not intact)
    copies.prepare([task for task in tasks if written.get(task)])
    return drive(plan, store, copies, executor=executor, on_progress=on_progress, essential="Writing a copy")


def _manifest(source: Any, order: Order, copies: Copies, left_out: Sequence[BadFile]) -> dict[str, Json]:
    return {
        "shiftproof": __version__,
        "source": Path(source).name if isinstance(source, str | Path) else type(source).__name__,
        "fingerprint": copies.fingerprint,
        **order.facts(),
        "shifts": [
            {
                "shift": target.shift.label,
                **({"preset": target.preset} if target.preset else {}),
                "path": target.path or ".",
                **({"block": target.block} if order.arrays else {}),
            }
            for target in order.targets
        ],
        "left_out": [bad._asdict() for bad in left_out],
        **copies.describe(left_out),
    }


def _text(content: Mapping[str, Json]) -> str:
    """Return JSON with a line for every file, which can be read and compared."""
    lines = []
    for name, value in content.items():
        text = json.dumps(value)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        lines.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _check_place(source: Any, out: Path) -> None:
    """Refuse to write into the source, around it, or among files that are not this copy's."""
    if is_folder(source):
        here, there = expand(source).resolve(), out.resolve()
        if here == there or here in there.parents or there in here.parents:
            raise ConfigurationError(
                "The copy and its source must be apart.",
                expected="two folders, neither of them inside the other",
                got=f"{here} and {there}",
            )
    if out.is_dir() and not (out / run_store.FILE).exists():
        others = [entry.name for entry in out.iterdir() if entry.name != run_lock.FILE]
        if others:
            raise RunError(
                f"The folder {str(out)!r} holds other files.",
                expected="a new or empty folder, or one that the same command began to fill",
                got=", ".join(sorted(others)[:3]) + (", ..." if len(others) > 3 else ""),
            )
