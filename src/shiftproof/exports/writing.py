"""Corrupted copies of whole data sets on disk, under shifts or as a published suite; a second call goes on.

A folder of images becomes a tree of files for each shift; other data, and the CIFAR suites, become arrays. The folder
of a copy is a run directory, with a `manifest.json` once it is complete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from shiftproof.data import BadFile, DataLike, DataSpec, as_texts, load_data
from shiftproof.data.text.loading import is_text_source
from shiftproof.errors import ConfigurationError, RunError
from shiftproof.exports.array_copies import ArrayCopies
from shiftproof.exports.copies import MANIFEST, Copies
from shiftproof.exports.copy_requests import CopyRequest, is_folder, make_request
from shiftproof.exports.file_copies import Format
from shiftproof.exports.folder_copies import copies_of_folder
from shiftproof.exports.image_files import Reader
from shiftproof.exports.text_copies import TextFormat, write_texts
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
from shiftproof.shifts.moving import IGNORE
from shiftproof.version import __version__


@dataclass(frozen=True)
class Written:
    """The result of `write_corrupted`.

    Files that could not be read are listed in `left_out` and in the manifest.

    Args:
        folder: Folder of the copy.
        images: Number of images under each shift.
        shifts: The shifts, by label.
        left_out: Files that could not be read.
        masks: Number of images with a label map.
        beside: Number of other files copied.
    """

    folder: Path
    images: int
    shifts: tuple[str, ...]
    left_out: tuple[BadFile, ...]
    masks: int = 0
    beside: int = 0

    @property
    def manifest(self) -> Path:
        """The file that says what was made of what."""
        return self.folder / MANIFEST


def write_corrupted(
    data: DataLike,
    out: str | Path,
    *,
    shifts: Sequence[str | Shift] = (),
    suite: Literal["imagenet-c", "imagenet-c-bar", "cifar-c", "cifar-c-bar"] | None = None,
    format: Format | TextFormat | None = None,  # noqa: A002  (the option's name)
    quality: int | None = None,
    masks: str | Path | None = None,
    ignore: int = IGNORE,
    preset: Literal["imagenet", "cifar"] | None = None,
    textures: str | Path | None = None,
    seed: int = 0,
    device: str = "cpu",
    executor: str | Executor = "inline",
    on_progress: OnProgress | None = None,
) -> Written:
    """Write a corrupted copy of a data set, under shifts or as a published suite, and manifest.json last.

    * A folder under one shift becomes a tree with the same relative paths; under several shifts, one tree per shift,
      such as `fog/3`. Files keep their names and formats; other files are copied unchanged.
    * Other data becomes an array `fog@3.npy` [N, H, W, C] per shift, with `labels.npy`.
    * The suites `imagenet-c` and `imagenet-c-bar` write files of a folder at 224 pixels as published: JPEG of quality
      85, in `corruption/severity/class/file`; the severities of C-bar are its strengths (`sparkles/3.00`).
    * The suites `cifar-c` and `cifar-c-bar` write `corruption.npy` [5 * N, H, W, C], ordered by severity, and
      `labels.npy`, repeated five times.
    * Texts become a table such as `typos@3.csv` per text shift, in the source's format.

    Images are corrupted as by `shift(images, keys, seed)` with the keys of `load_data`. Grey files keep one channel,
    and 16-bit files stay 16-bit. Label maps (`masks`) are copied, or moved along with shifts that move content; with
    such shifts, annotations with boxes or other positions are an error.

    Args:
        data: A folder of images, of any sizes and in any sub-folders, or anything else `load_data` accepts.
        out: Folder of the copy; the same call resumes it.
        shifts: Shifts such as fog@3, contrast=0.8, 'fog@3 + jpeg_compression@2'; in Python also `Shift` objects.
        suite: A published suite instead of shifts: imagenet-c, imagenet-c-bar, cifar-c or cifar-c-bar.
        format: png, jpg, or same for each file's own format; for texts csv, tsv or jsonl. Default: same; jpg for
            imagenet-c.
        quality: Quality of JPEG and other lossy files, 1 to 100. Default: 95; 85 for imagenet-c, as published.
        masks: Label maps of the images: a folder of files with the same names, or a pattern such as `*_mask.png`, where
            the star stands for an image's path without its suffix; none if files only look like label maps.
        ignore: Label for pixels that a shift brings in from outside the image.
        preset: Severity table of corruptions, imagenet or cifar. Default: chosen by image size, or that of the suite.
        textures: Folder of photographs for the frost corruption of a suite. Default: textures of the package.
        seed: Seed of every random draw.
        device: cpu, cuda, cuda:1 or auto. On the CPU, every machine draws the same random numbers.
        executor: inline, processes, processes:4, ray or ray:16. Does not affect the numbers.
        on_progress: Called as on_progress(done, total, result).

    >>> written = write_corrupted("demo", folder / "copy", shifts=["contrast@5"])
    >>> written.images, sorted(path.name for path in written.folder.glob("*.npy"))
    (1000, ['contrast@5.npy', 'labels.npy'])
    """
    source, how = (data.given, dict(data.options)) if isinstance(data, DataSpec) else (data, {})
    if is_text_source(source, how.get("text_column"), how.get("split")):
        refused = {"suite": suite, "preset": preset, "textures": textures, "masks": masks}
        return _write_texts(data, expand(out), shifts, refused, seed, format, on_progress)
    device = choose_device(device)
    order = make_request(
        source,
        shifts,
        suite,
        seed=seed,
        file_format=cast(Format | None, format),
        quality=quality,
        size=how.get("size"),
        color=how.get("color"),
        masks=None if masks is None else str(masks),
        ignore=ignore,
        preset=preset,
        textures=None if textures is None else str(textures),
        device=device,
    )
    folder = expand(out)
    _check_place(source, folder)
    where = choose_executor(executor, device=device)
    copies = _copies(data, folder, order)
    subject = {"version": __version__, "data": copies.fingerprint, "corruption": order.text}
    with Store(folder, subject) as store:
        results = _drive(copies, store, subject, where, on_progress)
        copies.finish()
        rows = [result.row for result in results if result.row is not None]
        found = (BadFile(*bad) for row in rows for bad in cast("list[list[str]]", row["left_out"]))
        left_out = tuple(dict.fromkeys((*copies.bad, *found)))
        images = sum(cast(int, row["images"]) for row in rows) // len(order.targets)
        write_atomically(folder / MANIFEST, _text(_manifest(source, order, copies, left_out)))
    labels = tuple(target.shift.label for target in order.targets)
    return Written(folder, images, labels, left_out, *copies.companions)


def _write_texts(
    data: DataLike,
    folder: Path,
    shifts: Sequence[str | Shift],
    refused: Mapping[str, object],
    seed: int,
    file_format: str | None,
    on_progress: OnProgress | None,
) -> Written:
    """Write copies of a set of texts, with which options of images do not go."""
    for name, option in refused.items():
        if option is not None:
            raise ConfigurationError(f"{name}= cannot be used with texts.", got=str(option))
    texts = as_texts(load_data(data))
    chosen = [as_shift(one) for one in shifts]
    write_texts(texts, folder, chosen, seed=seed, format=file_format, on_progress=on_progress)
    return Written(folder, len(texts), tuple(shift.label for shift in chosen), texts.bad_files)


def _copies(data: DataLike, folder: Path, order: CopyRequest) -> Copies:
    common: dict[str, Any] = {
        "out": folder,
        "targets": order.targets,
        "seed": order.seed,
        "device": order.device,
    }
    if order.arrays:
        return ArrayCopies(data=data if order.size is None else DataSpec(data, size=order.size), **common)
    spec = data if isinstance(data, DataSpec) else DataSpec(data)
    options = {name: value for name, value in spec.options.items() if name != "size"}
    on_bad_file, split = options.pop("on_bad_file", "fail"), options.pop("split", None)
    options.pop("color", None)
    for name, value in options.items():
        if value is not None and not (name == "classes" and value == "auto"):
            raise ConfigurationError(f"{name}= cannot be used with a copy of files.", fix=f"leave {name} out")
    return copies_of_folder(
        expand(spec.given) / (split or ""),
        reader=Reader(order.color, order.size, deep=order.file_format != "jpg"),
        masks=order.masks,
        ignore=order.ignore,
        suite=order.suite is not None,
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


def _manifest(source: Any, order: CopyRequest, copies: Copies, left_out: Sequence[BadFile]) -> dict[str, Json]:
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
                "The copy and its source overlap.",
                expected="two folders, neither inside the other",
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
