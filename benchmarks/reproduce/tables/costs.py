"""What every file of figures cost, the command that makes it again, and how it differs from the paper's run."""

from __future__ import annotations

from benchmarks.reproduce.all import TABLES
from benchmarks.reproduce.markdown import markdown
from benchmarks.reproduce.tables.files import Files

OTHERS = {
    "streams-ccc": "`benchmarks/endurance.py`, `long_stream`",
    "streams-margins-cin-c": "`streams_table` of commit 5e851d4",
    "worst-case-faces": "`worst_case_table --part faces`",
}
"""Figures that `all` does not make -> what makes them."""


def costs(files: Files) -> str:
    """Return the device, time, seed, commit and command of every file of figures."""
    commands = {
        script.figures: f"`--tables {table}/{script.part_name}`"
        for table, scripts in TABLES.items()
        for script in scripts
    } | OTHERS
    rows = [
        [
            f"`{name}`",
            found["device"],
            f"{found['seconds'] / 60:.1f}",
            str(found["seed"]),
            found["commit"],
            commands[name],
        ]
        for name, found in files.items()
    ]
    return markdown(["figures", "device", "minutes", "seed", "commit", "command"], rows, words=("device", "command"))


def reductions(files: Files) -> str:
    """Return how each run is smaller than the paper's, once for all files that share it."""
    sharing: dict[str, list[str]] = {}
    for name, found in files.items():
        sharing.setdefault("; ".join(found["cut"]), []).append(f"`{name}`")
    head = ["figures", "how the run differs from the paper's"]
    return markdown(head, [[", ".join(names), cut] for cut, names in sharing.items()], words=head)
