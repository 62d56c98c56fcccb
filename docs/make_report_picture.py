"""Make the picture of a report's first screen that the README shows; needs Chromium.

    python docs/make_report_picture.py [--run RUN]    # RUN: the run directory of `make audit`
    python docs/make_report_picture.py --check        # only say whether the picture is current

What the screen says of the demo's audit is kept in `report-picture.json`; `--run` takes it from a run anew. The picture
carries a digest of that file and of the report's templates, style and script, so that a test can tell whether it is
current without a browser.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

FOLDER = Path(__file__).parent / "_static"
PICTURE, SCREEN = FOLDER / "report.png", FOLDER / "report-picture.json"
REPORTS = Path(__file__).parents[1] / "src" / "shiftproof" / "reports"
SIZE = {"width": 1400, "height": 1060}
COLOURS = 200


def digest() -> str:
    """Return a digest of what the picture is made from."""
    made = hashlib.blake2b(digest_size=16)
    for path in (SCREEN, *sorted(path for path in REPORTS.iterdir() if path.suffix in (".html", ".css", ".js"))):
        made.update(f"{path.name}\n".encode() + path.read_bytes())
    return made.hexdigest()


def main() -> str:
    """Make the picture, or check it; return what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", help="the run directory of an audit of the demo")
    parser.add_argument("--check", action="store_true", help="only say whether the picture is current")
    options = parser.parse_args()
    if options.check:
        with Image.open(PICTURE) as picture:
            current = picture.info.get("source") == digest()
        return "" if current else f"The picture is not current: run {Path(__file__).name} again, and look at it."
    if options.run:
        SCREEN.write_text(json.dumps(first_screen(options.run), indent=1, ensure_ascii=False) + "\n")
    photograph(json.loads(SCREEN.read_text()))
    return ""


def first_screen(run: str) -> dict[str, Any]:
    """Return what the first screen of a run's report shows, as JSON values."""
    import shiftproof
    from shiftproof.reports import headlines

    audit = shiftproof.gate(run)
    head = {name: asdict(audit.masthead)[name] for name in ("model", "data", "facts")}
    said = {id(sentence) for _, sentence in headlines.verdict(audit.views)}
    views = [
        {
            **{name: getattr(view, name) for name in ("section", "title")},
            "verdict": [asdict(sentence) for sentence in view.verdict if id(sentence) in said],
            "tiles": [asdict(tile) for tile in view.tiles],
            "actions": [asdict(action) for action in view.actions],
        }
        for view in audit.views
    ]
    return {"masthead": head, "views": views}


def photograph(screen: dict[str, Any]) -> None:
    """Render the first screen and write its picture, in few colours."""
    from playwright.sync_api import sync_playwright

    from shiftproof.reports import html
    from shiftproof.reports.view import Action, Masthead, Sentence, Tile, View

    kinds = {"verdict": Sentence, "tiles": Tile, "actions": Action}
    views = []
    for view in screen["views"]:
        parts = {name: tuple(kind(**each) for each in view[name]) for name, kind in kinds.items()}
        views.append(View(view["section"], view["title"], **parts))
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        html.write(path, Masthead(**screen["masthead"]), views)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
        page.goto(path.as_uri())
        taken = page.screenshot()
        browser.close()
    note = PngInfo()
    note.add_text("source", digest())
    picture = Image.open(io.BytesIO(taken)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(PICTURE, optimize=True, pnginfo=note)


if __name__ == "__main__":
    sys.exit(main() or 0)
