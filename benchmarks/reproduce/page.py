"""Put the figures of this folder into docs/reproduction.md, beside those of the papers.

    python -m benchmarks.reproduce.page            # writes the tables between their marks
    python -m benchmarks.reproduce.page --check    # fails where the page and the figures differ

The page is written by hand but for its tables, which lie between `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from benchmarks.reproduce import papers
from benchmarks.reproduce.heat_maps import drawing
from benchmarks.reproduce.tables import TABLES, Files, certified
from shiftproof.runs import write_atomically

HERE = Path(__file__).parent
FIGURES = HERE / "figures"
PAGE = HERE.parents[1] / "docs" / "reproduction.md"
PICTURE = PAGE.parent / "_static" / "certified-waves.svg"


def main() -> int:
    """Write or check the page; return 1 where it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    files, text = read(), PAGE.read_text()
    made, picture = filled(text, files), heat_maps(files)
    if options.check:
        return int(made != text or (picture or "") != (PICTURE.read_text() if PICTURE.is_file() else ""))
    write_atomically(PAGE, made)
    if picture is not None:
        write_atomically(PICTURE, picture)
    return 0


def read(folder: Path = FIGURES) -> Files:
    """Return what every file of figures holds, by its name in the folder."""
    paths = sorted(folder.rglob("*.json"))
    return {path.relative_to(folder).with_suffix("").as_posix(): json.loads(path.read_text()) for path in paths}


def filled(text: str, files: Files) -> str:
    """Return the page with its tables made anew."""

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        return f"<!-- begin {name} -->\n\n{TABLES[name](files).strip()}\n\n<!-- end {name} -->"

    return re.sub(r"<!-- begin (?P<name>[\w-]+) -->.*?<!-- end (?P=name) -->", table, text, flags=re.DOTALL)


def heat_maps(files: Files) -> str | None:
    """Return the heat maps of paper 002 as a picture; None where none was measured."""
    found = {recipe: certified(files, recipe).get("spectrum") for recipe in papers.CERTIFICATES}
    maps = {recipe: spectrum["waves"] for recipe, spectrum in found.items() if spectrum}
    title = "Average certified radius under a wave of L2 norm 4, by cycles across and down; no cycles in the middle"
    return drawing(maps, title) if maps else None


if __name__ == "__main__":
    sys.exit(main())
