"""Shifted copies of a set of texts on disk: one table for each shift, and a manifest."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from shiftproof.data import TextSet
from shiftproof.errors import ConfigurationError, RunError
from shiftproof.models.identity import digest
from shiftproof.models.texts import Text, parts
from shiftproof.runs import Json, Result, write_atomically
from shiftproof.runs.files import read_json
from shiftproof.shifts.base import Shift
from shiftproof.version import __version__

TextFormat: TypeAlias = Literal["csv", "tsv", "jsonl"]
FORMATS = get_args(TextFormat)
COLUMNS = ("text", "pair", "label")
CHUNK = 256
"""Texts shifted at a time."""


def write_texts(
    data: TextSet,
    out: Path,
    shifts: Sequence[Shift],
    *,
    seed: int = 0,
    format: str | None = None,  # noqa: A002  (the option's name)
    on_progress: Callable[[int, int, Result | None], None] | None = None,
) -> list[Path]:
    """Write a table for each shift, such as `typos@3.csv`, with the columns text, pair (of pairs) and label.

    Tables that are there already, of the same texts, seed and version and as they were written, are kept: a call after
    a kill writes the rest.
    `manifest.json` tells what was made of what. Texts are shifted as by `shift(texts, keys, seed)` with the set's keys.
    """
    kind = format or (Path(data.name).suffix.removeprefix(".") if Path(data.name).suffix[1:] in FORMATS else "jsonl")
    if kind not in FORMATS:
        raise ConfigurationError(f"Texts cannot be written as {kind!r}.", expected=", ".join(FORMATS))
    wrong = [shift.label for shift in shifts if shift.acts_on != "texts"]
    if wrong or not shifts:
        raise ConfigurationError(
            "Texts need text shifts.",
            expected="shifts such as typos@3 or eda@2",
            got=", ".join(wrong) or "no shift",
        )
    named = {shift: out / f"{file_name(shift)}.{kind}" for shift in shifts}
    about: dict[str, Json] = {"shiftproof": __version__, "source": data.name, "fingerprint": data.fingerprint}
    about |= {"seed": seed, "texts": len(data)}
    before = _manifest(out)
    digests = {path.name: digest(shift) for shift, path in named.items()}
    if not before and out.is_dir() and any(out.iterdir()):
        raise RunError(
            f"The folder {str(out)!r} holds other files.",
            expected="a new or empty folder, or one that the same command began to fill",
        )
    same = {name: before.get(name) for name in about} == about
    if not same:
        write_atomically(out / "manifest.json", json.dumps(about, indent=1) + "\n")
    known = _digests(before) if same else {}
    files: list[Json] = []
    for number, (shift, path) in enumerate(named.items()):
        if on_progress is not None:
            on_progress(number, len(named), None)
        if known.get(path.name) != (_digest(path), digests[path.name]):
            write_atomically(path, table(data, shifted(data, shift, seed), kind))
        files.append({"shift": shift.label, "path": path.name, "digest": _digest(path), "content": digests[path.name]})
        write_atomically(out / "manifest.json", json.dumps({**about, "shifts": files}, indent=1) + "\n")
    return list(named.values())


def shifted(data: TextSet, shift: Shift, seed: int) -> list[Text]:
    """Return the texts of a set after a shift."""
    made: list[Text] = []
    for batch in data.batches(CHUNK):
        made.extend(shift(batch.inputs, batch.keys, seed=seed))
    return made


def table(data: TextSet, texts: Sequence[Text], kind: str) -> str:
    """Return texts with the labels of a set as CSV, TSV or JSON lines, which `load_data` reads."""
    names = [name for name, there in zip(COLUMNS, (True, data.pairs, data.labels is not None), strict=True) if there]
    labels = [] if data.labels is None else [[data.classes[label]] for label in data.labels.tolist()]
    rows = [[*parts(text), *(labels[row] if labels else [])] for row, text in enumerate(texts)]
    if kind == "jsonl":
        return "".join(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t" if kind == "tsv" else ",", lineterminator="\n")
    writer.writerows([names, *rows])
    return text.getvalue()


def file_name(shift: Shift) -> str:
    """Return the text form of a shift as a name for files.

    >>> from shiftproof.shifts import parse
    >>> file_name(parse("typos@2 + spacing@1"))
    'typos@2+spacing@1'
    """
    plain = "".join(
        letter if letter.isalnum() or letter in "@.+-_=" else "_" for letter in shift.label.replace(" ", "")
    )
    return plain[:100]


def _digest(path: Path) -> str | None:
    """Return 32 hexadecimal digits of BLAKE2 of a file; None where there is none."""
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() if path.is_file() else None


def _digests(manifest: Mapping[str, Any]) -> dict[str, tuple[Json, Json]]:
    """Return what a manifest says of each table: digests of its content and of its shift."""
    listed = manifest.get("shifts")
    tables = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return {str(one.get("path")): (one.get("digest"), one.get("content")) for one in tables}


def _manifest(out: Path) -> Mapping[str, Json]:
    try:
        found = read_json(out / "manifest.json")
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
