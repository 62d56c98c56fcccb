"""What every figure cost, and the command that makes it again."""

from __future__ import annotations

from benchmarks.reproduce.all import TABLES
from benchmarks.reproduce.markdown import markdown
from benchmarks.reproduce.tables.files import Files

OTHERS = {
    "streams-ccc": "`benchmarks/endurance.py`, `long_stream`",
    "streams-margins-cin-c": "`streams_table`, of commit 5e851d4",
    "worst-case-faces": "`worst_case_table --part faces`",
}
"""Figures that `all` does not make -> what makes them."""


def costs(files: Files) -> str:
    """Return what every figure cost, with the command and what was cut."""
    commands = {
        script.figures: f"`--tables {table}/{script.part_name}`"
        for table, scripts in TABLES.items()
        for script in scripts
    }
    rows = []
    for name, found in files.items():
        cells = [f"`{name}`", found["device"], f"{found['seconds'] / 60:.1f}", str(found["seed"]), found["commit"]]
        rows.append([*cells, (commands | OTHERS)[name], "; ".join(found["cut"])])
    head = ["figures", "device", "minutes", "seed", "commit", "command", "cut"]
    return markdown(head, rows, words=("device", "command", "cut"))
