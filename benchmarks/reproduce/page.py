"""Put the figures of this folder into docs/reproduction.md, beside those of the papers.

    python -m benchmarks.reproduce.page            # writes the tables between their marks
    python -m benchmarks.reproduce.page --check    # fails where the page and the figures differ

The page is written by hand but for its tables, which lie between `<!-- begin NAME -->` and `<!-- end NAME -->`, and
three of its pictures.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from benchmarks.reproduce import curves, heat_maps, panels, papers
from benchmarks.reproduce.tables import TABLES
from benchmarks.reproduce.tables.certificates import certified
from benchmarks.reproduce.tables.estimation import sphere_curves, text_panels
from benchmarks.reproduce.tables.files import Files
from shiftproof.runs import write_atomically

HERE = Path(__file__).parent
FIGURES = HERE / "figures"
PAGE = HERE.parents[1] / "docs" / "reproduction.md"
PICTURES = PAGE.parent / "_static"


def main() -> int:
    """Write or check the page; return 1 where it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    files, text = read(), PAGE.read_text()
    made = {PAGE: filled(text, files), **{PICTURES / name: drawn for name, drawn in pictures(files).items()}}
    if options.check:
        return int(any(not path.is_file() or path.read_text() != content for path, content in made.items()))
    for path, content in made.items():
        write_atomically(path, content)
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


def pictures(files: Files) -> dict[str, str]:
    """Return the pictures that the figures give, by the names of their files."""
    found = {recipe: certified(files, recipe).get("spectrum") for recipe in papers.CERTIFICATES}
    maps = {recipe: spectrum["waves"] for recipe, spectrum in found.items() if spectrum}
    waves = "Average certified radius under a wave of L2 norm 4, by cycles across and down; no cycles in the middle"
    sphere, ranks = sphere_curves(files), "How well measures rank networks, Kendall's tau, by distance on the sphere"
    varied, sizes = text_panels(files), "How well NI-SSMBA ranks networks on video, Kendall's tau (micro)"
    return {
        **({"certified-waves.svg": heat_maps.drawing(maps, waves)} if maps else {}),
        **({"text-neighbourhoods.svg": panels.drawing(varied, sizes)} if varied else {}),
        **({"hypersphere.svg": curves.drawing(sphere, ranks)} if sphere else {}),
    }


if __name__ == "__main__":
    sys.exit(main())
