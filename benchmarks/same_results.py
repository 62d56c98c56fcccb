"""Whether two audits found the same, whatever the names of their keys: `results.json` before and after a rework.

    python benchmarks/same_results.py BEFORE/results.json AFTER/results.json

Every field of every task, and every number, of the first must be in the second with the same value, under the names of
`RENAMED`; times are left out. What is new in the second is listed. Exits with 1 if anything differs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RENAMED = {"endurance": "stability"}
"""Tasks, and first parts of the names of numbers, before and after."""
TIMES = ("milliseconds", "seconds")
"""Fields that are times."""


def renamed(name: str) -> str:
    """Return the present name of a task or number."""
    first, dot, rest = name.partition(".")
    return RENAMED.get(first, first) + dot + rest


def tasks(results: dict[str, Any], *, rename: bool) -> dict[str, dict[str, Any]]:
    """Return what each task found, by its name and parameters."""
    found = {}
    for measured in results["cells"]:
        row = {name: value for name, value in measured.items() if name not in TIMES}
        row["task"] = renamed(row["task"]) if rename else row["task"]
        parameters = ("task", "shift", "start", "stop", "images", "method", "batch", "prior", "number", "frequency")
        key = {name: row[name] for name in parameters if name in row}
        while str(key) in found:  # tasks that differ in other parameters stand in the same order in both
            key["again"] = key.get("again", 0) + 1
        found[str(key)] = row
    return found


def main(before: Path, after: Path) -> int:
    """Compare two files and say what differs."""
    one, other = (json.loads(path.read_text("utf-8")) for path in (before, after))
    differing = []
    new: set[str] = set()
    mine, theirs = tasks(one, rename=True), tasks(other, rename=False)
    for key, row in mine.items():
        found = theirs.get(key)
        if found is None:
            differing.append(f"missing: {key}")
            continue
        differing += [f"{key}: {name}" for name, value in row.items() if found.get(name, value) != value]
        new |= {f"{found['task']}: {name}" for name in found.keys() - row.keys()}
        differing += [f"{key}: {name} is gone" for name in row.keys() - found.keys()]
    numbers = {renamed(name): value for name, value in one["numbers"].items()}
    differing += [name for name, value in numbers.items() if other["numbers"].get(name) != value]
    new |= {f"number {name}" for name in other["numbers"].keys() - numbers.keys()}
    print(f"{len(mine)} tasks and {len(numbers)} numbers compared, {len(differing)} differ")
    for text in differing[:40]:
        print(f"  {text}")
    for text in sorted(new):
        print(f"  new: {text}")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:3])))
