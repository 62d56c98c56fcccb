"""Make the pictures of the guide: cut-outs of the demo's report, images under shifts, and drawings of what goes where.

    python docs/make_guide_pictures.py --run RUN    # RUN: the run directory of `make audit`; needs Chromium
    python docs/make_guide_pictures.py              # those that need no run
    python docs/make_guide_pictures.py --check      # only say which are not current

Every picture carries a digest of the line or function that it is made by, so that a test can tell without making it
whether it is current.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import io
import shutil
import sys
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

FOLDER = Path(__file__).parent / "_static" / "guide"
CUTS = {
    "audit.png": "corruptions.1",
    "adaptation.png": "adaptation.1",
    "safe-adaptation.png": "stability.1",
    "estimation.png": "label-free.1",
    "failures.png": "mistakes.2",
    "diagnosis.png": "adaptation.6",
    "search.png": "worst-case.4",
    "measures.png": "confidence.1",
    "hardening.png": "corruptions.2",
}
"""File -> the block of the demo's report that it shows."""
WIDTH, COLOURS = 1000, 48
FONT = ImageFont.load_default(14)
INK, FAINT, LINE = "#1c2b39", "#eef3f8", "#5b7a99"
BIRD = 75
"""An image of the demo with colours, edges and a plain background."""

FLOWS: dict[str, Sequence[tuple[str, str]]] = {
    "models.svg": (
        ("image", "float32, in [0, 1]"),
        ("shift", "fog@3, noise, search"),
        ("Normalize", "a layer of the model"),
        ("network", "yours"),
        ("logits", "N x classes"),
    ),
    "gating.svg": (
        ("commit", "a new model"),
        ("shiftproof audit", "results.json, report"),
        ("shiftproof gate", "--require 'clean > 90%'"),
        ("exit status", "0: deploy, 3: stop"),
        ("JUnit", "what failed, by how much"),
    ),
    "scale.svg": (
        ("plan", "cells of work"),
        ("driver", "hands out cells"),
        ("workers", "processes, GPUs, Ray"),
        ("run.sqlite", "each result, at once"),
        ("report", "the same everywhere"),
    ),
    "extending.svg": (
        ("your package", "an entry point"),
        ("registry", "checked, by name"),
        ("command line", "--shifts smear@3"),
        ("Python", 'shifts.parse("smear@3")'),
        ("report", "beside ours"),
    ),
}
"""File -> boxes from left to right: a title, and what it is."""


def flow(boxes: Sequence[tuple[str, str]]) -> str:
    """Draw boxes with arrows between them."""
    width, height, gap = 164, 62, 18
    parts = []
    for number, (title, below) in enumerate(boxes):
        left = 4 + number * (width + gap)
        middle = left + width / 2
        parts.append(
            f'<rect x="{left}" y="4" width="{width}" height="{height}" rx="6" fill="{FAINT}" stroke="{LINE}"/>'
        )
        parts.append(f'<text x="{middle}" y="30" font-weight="600">{escape(title)}</text>')
        parts.append(f'<text x="{middle}" y="51" font-size="11.5">{escape(below)}</text>')
        if number:
            parts.append(
                f'<path d="M{left - gap + 2} 35h{gap - 8}m-4-4 5 4-5 4" fill="none" stroke="{LINE}" stroke-width="2"/>'
            )
    label = ", then ".join(title for title, _ in boxes)
    return svg(4 + len(boxes) * (width + gap) - gap + 4, height + 8, label, parts, anchor="middle")


def svg(width: float, height: float, label: str, parts: Sequence[str], anchor: str = "start") -> str:
    """Return a drawing with a white ground, which reads on dark pages too."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(label)}" font-family="system-ui, sans-serif" '
        f'font-size="14" fill="{INK}" text-anchor="{anchor}">'
    )
    return "\n".join((head, '<rect width="100%" height="100%" fill="#fff" rx="6"/>', *parts, "</svg>\n"))


def shifts_png() -> Image.Image:
    """One image under a corruption at every severity, and under other kinds of shift."""
    rows = [["clean", *(f"fog@{severity}" for severity in range(1, 6))]]
    rows.append(["motion_blur@3", "frost@3", "jpeg_compression@5", "rotate=15", "color=0.2", "fog@2 + pixelate@3"])
    return shifted(rows)


def copies_png() -> Image.Image:
    """Show what the page's second command writes of an image."""
    return shifted([["clean", "fog@3", "motion_blur@2", "rotate=10"]])


def suites_png() -> Image.Image:
    """Five of the fifteen corruptions of a suite, at its five severities."""
    names = ("gaussian_noise", "defocus_blur", "snow", "contrast", "pixelate")
    return shifted([[f"{name}@{severity}" for severity in range(1, 6)] for name in names], enlarged=3)


def shifted(rows: Sequence[Sequence[str]], enlarged: int = 4) -> Image.Image:
    """Lay out an image of the demo under shifts, each with its text form above it."""
    import shiftproof
    from shiftproof import shifts

    (batch,) = shiftproof.load_data("demo").subset([BIRD]).batches(1)
    blocks = []
    for row in rows:
        for text in row:
            made = batch.inputs if text == "clean" else shifts.parse(text)(batch.inputs, batch.keys, seed=0)
            pixels = made[0].mul(255).round().byte().permute(1, 2, 0).numpy()
            size = (enlarged * pixels.shape[1], enlarged * pixels.shape[0])
            blocks.append((text, Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST)))
    return gallery(blocks, across=len(rows[0]))


def data_png() -> Image.Image:
    """Two images of each class of the demo, as a folder of classes holds them."""
    import shiftproof

    data = shiftproof.load_data("demo")
    labels = data.labels.tolist()
    blocks = []
    for which in range(2):
        for number, name in enumerate(data.classes):
            (batch,) = data.subset([[row for row, label in enumerate(labels) if label == number][which]]).batches(1)
            pixels = batch.inputs[0].mul(255).round().byte().permute(1, 2, 0).numpy()
            blocks.append((f"{name}/" if not which else "", Image.fromarray(pixels).resize((80, 80))))
    return gallery(blocks, across=len(data.classes))


def segmentation_png() -> Image.Image:
    """Draw a street and its label map, both under shifts that move content and one that does not."""
    import numpy as np
    import torch

    from shiftproof import shifts

    street = Image.new("RGB", (128, 96), "#9cc4e8")
    classes = Image.new("L", street.size, 0)
    for shape, corners, colour in (
        ("polygon", (0, 96, 50, 45, 78, 45, 128, 96), "#6d6d72"),
        ("rectangle", (0, 18, 34, 66), "#b98d6a"),
        ("ellipse", (88, 20, 124, 66), "#4f8f4a"),
        ("rectangle", (56, 58, 78, 74), "#c23b32"),
    ):
        for number, picture in enumerate((street, classes)):
            fill = ("#6d6d72", "#b98d6a", "#4f8f4a", "#c23b32").index(colour) + 1 if number else colour
            getattr(ImageDraw.Draw(picture), shape)(corners, fill=fill)
    palette = np.array([(86, 180, 233), (0, 0, 0), (230, 159, 0), (0, 158, 115), (213, 94, 0)], np.uint8)
    images = torch.from_numpy(np.array(street)).permute(2, 0, 1)[None] / 255
    maps, keys = torch.from_numpy(np.array(classes))[None].long(), torch.zeros(1, dtype=torch.long)
    pairs = [("image and label map", images, maps)]
    for text in ("fog@3", "rotate=10", "elastic_transform@4"):
        shift = shifts.parse(text)
        moved = shifts.move_labels(shift, maps, keys, seed=0, ignore=255) if shift.moves else maps
        pairs.append((text, shift(images, keys, seed=0), moved))
    colours = np.full((256, 3), 255, np.uint8)
    colours[: len(palette)] = palette
    above = [(text, Image.fromarray((made[0] * 255).byte().permute(1, 2, 0).numpy())) for text, made, _ in pairs]
    below = [("", Image.fromarray(colours[moved[0].numpy()])) for _, _, moved in pairs]
    return gallery([(text, picture.resize((200, 150))) for text, picture in above + below], across=len(pairs))


def gallery(blocks: Sequence[tuple[str, Image.Image]], across: int) -> Image.Image:
    """Lay out pictures in rows, each with a line above it."""
    width, height = blocks[0][1].size
    gap, head = 12, 22
    rows = -(-len(blocks) // across)
    page = Image.new("RGB", (gap + across * (width + gap), gap // 2 + rows * (height + head)), "white")
    draw = ImageDraw.Draw(page)
    for number, (text, picture) in enumerate(blocks):
        left, top = gap + number % across * (width + gap), number // across * (height + head)
        draw.text((left, top + 4), text, INK, FONT.font_variant(size=11 if len(text) > width // 8 else 14))
        page.paste(picture, (left, top + head))
    return page


def text_svg() -> str:
    """Write a sentence under shifts of texts, at three severities."""
    from shiftproof import corrupt

    sentence = "The battery lasts two days, and the screen is a pleasure to read on."
    parts = [row_of_text(24, "clean", sentence, "600")]
    for name in ("typos", "letter_case", "ocr_confusions"):
        for severity in (1, 3, 5):
            (made,) = corrupt([sentence], f"{name}@{severity}", seed=0)
            parts.append(row_of_text(24 + 24 * len(parts), f"{name}@{severity}", made))
    return svg(
        800, 24 * len(parts) + 12, "A sentence under typing errors, changed letter case and scanning errors", parts
    )


def row_of_text(top: int, name: str, text: str, weight: str = "400") -> str:
    """Draw a name and a text beside it."""
    return (
        f'<text x="12" y="{top}" fill="{LINE}">{escape(name)}</text>'
        f'<text x="160" y="{top}" font-weight="{weight}" xml:space="preserve">{escape(text)}</text>'
    )


def monitoring_svg() -> str:
    """Draw an estimate along a stream of the demo that is blurred half way, with the truth and the alarm."""
    import torch

    import shiftproof
    from shiftproof import shifts
    from shiftproof.estimators import Estimator, Monitor

    model = shiftproof.load_model("demo")
    known = [f"{name}@5" for name in ("speckle_noise", "gaussian_blur", "spatter", "saturate")]
    source = shiftproof.load_data("demo-source").take(200)
    monitor = Monitor(model, Estimator.fit(model, source, shifts=known, n=2).calibration, window=200)
    blur = shifts.parse("glass_blur@4")
    line, truth, right, alarm = [], [], [], 0
    for number, batch in enumerate(shiftproof.load_data("demo").batches(25)):
        inputs = blur(batch.inputs, batch.keys, seed=0) if number >= 20 else batch.inputs
        assert batch.labels is not None
        right.append((monitor(inputs).argmax(1) == batch.labels).float())
        status = monitor.status()
        line.append((25 * (number + 1), 100 * status.accuracy))
        truth.append((25 * (number + 1), 100 * float(torch.cat(right[-8:]).mean())))
        alarm = alarm or (25 * (number + 1) if status.alarms["accuracy"] else 0)
    return chart(line, truth, alarm)


def chart(line: Sequence[tuple[int, float]], truth: Sequence[tuple[int, float]], alarm: int) -> str:
    """Draw two lines over images, and where an alarm rose."""
    width, height, left, foot = 800, 300, 52, 42

    def place(at: tuple[float, float]) -> str:
        return f"{left + at[0] * (width - left - 16) / 1000:.1f},{12 + (100 - at[1]) * (height - foot - 12) / 100:.1f}"

    parts = [
        f'<text x="{left - 8}" y="{float(place((0, level)).split(",")[1]) + 5}" text-anchor="end">{level}%</text>'
        f'<polyline points="{place((0, level))} {place((1000, level))}" stroke="#ddd" fill="none"/>'
        for level in (0, 25, 50, 75, 100)
    ]
    for points, colour, dash in ((truth, "#5b7a99", "5 4"), (line, "#d55e00", "none")):
        drawn = " ".join(map(place, points))
        parts.append(
            f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dash}"/>'
        )
    for at, words, colour in ((500, "blur begins", INK), (alarm, f"alarm, {alarm - 500} images later", "#b3341f")):
        across = float(place((at, 0)).split(",")[0])
        parts.append(f'<path d="M{across} 12V{height - foot}" stroke="{colour}" stroke-dasharray="2 3"/>')
        aside = -6 if words == "blur begins" else 6
        parts.append(
            f'<text x="{across + aside}" y="{height - foot - 12}" fill="{colour}" '
            f'text-anchor="{"end" if aside < 0 else "start"}">{words}</text>'
        )
    parts.append(f'<text x="{left}" y="{height - 12}">images served</text>')
    parts.append(f'<text x="{width - 330}" y="{height - 12}" fill="#d55e00">estimated, window of 200</text>')
    parts.append(f'<text x="{width - 130}" y="{height - 12}" fill="#5b7a99">true accuracy</text>')
    return svg(width, height, "Estimated and true accuracy along a stream whose second half is blurred", parts)


def comparing_png() -> Image.Image:
    """Cut out the verdict of a comparison of two networks on the same images."""
    import shiftproof

    small = {
        "images": 200,
        "shifts": ["gaussian_noise", "contrast", "fog", "pixelate"],
        "sections": ["clean", "corruptions"],
    }
    with TemporaryDirectory() as folder:
        for name in ("demo", "cifar10-augmix-jsd"):
            shiftproof.audit(name, "demo", out=f"{folder}/{name}", **small)  # type: ignore[arg-type]
        found = shiftproof.compare(f"{folder}/demo", f"{folder}/cifar10-augmix-jsd", out=f"{folder}/compared")
        assert found.report is not None
        return cut(Path(found.report), ["#verdict"])[0]


DRAWN: dict[str, Callable[[], Image.Image | str]] = {
    "shifts.png": shifts_png,
    "copies.png": copies_png,
    "suites.png": suites_png,
    "data.png": data_png,
    "segmentation.png": segmentation_png,
    "text.svg": text_svg,
    "monitoring.svg": monitoring_svg,
    "comparing.png": comparing_png,
}


def cut(report: Path, selectors: Sequence[str]) -> list[Image.Image]:
    """Photograph parts of a report, with its charts drawn."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 1000})
        page.goto(report.resolve().as_uri())
        taken = []
        for selector in selectors:
            part = page.locator(selector).first
            part.scroll_into_view_if_needed()
            page.wait_for_timeout(800)
            taken.append(Image.open(io.BytesIO(part.screenshot())).convert("RGB"))
        browser.close()
    return taken


def digest(name: str) -> str:
    """Return a digest of what a picture is made by: its line of a table, or its function."""
    made_by = CUTS.get(name) or FLOWS.get(name) or inspect.getsource(DRAWN[name])
    return hashlib.blake2b(repr(made_by).encode(), digest_size=8).hexdigest()


def current(name: str) -> bool:
    """Return whether a picture is there, and made by what is here."""
    path = FOLDER / name
    if not path.is_file():
        return False
    if path.suffix == ".svg":
        return digest(name) in path.read_text()
    with Image.open(path) as picture:
        return bool(picture.info.get("source") == digest(name))


def write(name: str, made: Image.Image | str) -> None:
    """Write a picture with its digest, in few colours."""
    if isinstance(made, str):
        (FOLDER / name).write_text(f"{made}<!-- {digest(name)} -->\n")
        return
    note = PngInfo()
    note.add_text("source", digest(name))
    colours = COLOURS if name in CUTS else 96
    made.quantize(colours, dither=Image.Dither.NONE).save(FOLDER / name, optimize=True, pnginfo=note)


def main() -> str:
    """Make the pictures, or check them; return what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", help="the run directory of an audit of the demo")
    parser.add_argument("--check", action="store_true", help="only say which pictures are not current")
    parser.add_argument("names", nargs="*", help="only these files")
    options = parser.parse_args()
    if options.check:
        old = [name for name in (*CUTS, *FLOWS, *DRAWN) if not current(name)]
        return f"Not current: {', '.join(old)}. Run {Path(__file__).name}, and look at them." if old else ""
    FOLDER.mkdir(exist_ok=True)
    wanted = set(options.names) or {*CUTS, *FLOWS, *DRAWN}
    for name, boxes in FLOWS.items():
        if name in wanted:
            write(name, flow(boxes))
    for name, draw in DRAWN.items():
        if name in wanted:
            write(name, draw())
    if options.run:
        cuts = {name: anchor for name, anchor in CUTS.items() if name in wanted}
        parts = cut(Path(options.run) / "report.html", [f'[id="{anchor}"]' for anchor in cuts.values()])
        for name, picture in zip(cuts, parts, strict=True):
            write(name, picture)
    return ""


if __name__ == "__main__":
    sys.exit(main() or 0)
