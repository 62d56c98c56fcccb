"""What every figure cost."""

from __future__ import annotations

from benchmarks.reproduce.markdown import markdown
from benchmarks.reproduce.tables.files import Files


def costs(files: Files) -> str:
    """Return what every figure cost, with what was cut."""
    rows = []
    for name, found in files.items():
        cells = [f"`{name}`", found["device"], f"{found['seconds'] / 60:.1f}", str(found["seed"]), found["commit"]]
        rows.append([*cells, "; ".join(found["cut"])])
    return markdown(["figures", "device", "minutes", "seed", "commit", "cut"], rows, words=("device", "cut"))
