"""A sheet of pictures: every shift of some families, by severity, as a PNG or as a page that needs no network."""

from __future__ import annotations

import base64
import io
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from shiftproof.data import load_images
from shiftproof.data.images.decoding import Decoder
from shiftproof.data.images.source import describe, unreadable
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.runs import write_atomically
from shiftproof.runs.files import expand
from shiftproof.shifts.base import check_severity
from shiftproof.shifts.catalogue import FAMILIES, TABLED, corruption, facts, names
from shiftproof.shifts.corrupting import corrupt
from shiftproof.shifts.image_shift import SMALLEST_SIDE

Picture: TypeAlias = NDArray[np.uint8]
Groups: TypeAlias = "list[tuple[str, list[Row]]]"

SEVERITIES = (1.0, 3.0, 5.0)
SIDE = 224
"""Larger images are brought to this size first, that of the models the severities were made for."""

_TILE = 160  # smaller pictures are enlarged, pixel by pixel, to about this many
_PAPER, _INK, _FAINT, _LINE = (255, 255, 255), (28, 32, 40), (104, 112, 126), (222, 226, 232)
_MARGIN, _GAP, _HEAD, _CATEGORY = 40, 8, 160, 36
_BLOCKS, _PROPORTION = 3, 1.3  # at most so many blocks side by side, to make a page of about this width to height


@dataclass(frozen=True)
class Row:
    """A shift: its name, its category, and its pictures [S, S, 3], the clean one first."""

    name: str
    category: str
    pictures: tuple[Picture, ...]

    @property
    def title(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class Sheet:
    """Rows of pictures under columns, which begin with `clean`."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def side(self) -> int:
        """The side of every picture, in its own pixels."""
        return len(self.rows[0].pictures[0])

    @property
    def shown(self) -> int:
        """The side of every picture as it is shown: a whole multiple of its own."""
        return self.side * max(1, round(_TILE / self.side))

    def groups(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield the rows of each category."""
        for category in dict.fromkeys(row.category for row in self.rows):
            yield category, [row for row in self.rows if row.category == category]


def preview(
    image: str | Path | None = None,
    *,
    out: str | Path = "preview.png",
    families: Sequence[str] = ("common",),
    severities: Sequence[float] = SEVERITIES,
    seed: int = 0,
) -> Path:
    """Show an image under every shift and severity, as a PNG or an HTML page.

    Args:
        image: An image file. Default: demo images, a different one for each shift.
        out: Output file, .png or .html.
        families: Families with severities: common, holdout and bar.
        severities: Severities in [0, 5].
        seed: Seed of every random draw.

    >>> preview(out=folder / "sheet.png", families=["holdout"], severities=[5]).name
    'sheet.png'
    """
    path = expand(out)
    if path.suffix.lower() not in (".png", ".html"):
        raise ConfigurationError(
            "Unsupported output format for a preview.", expected="a name that ends in .png or .html", got=str(out)
        )
    sheet = make_sheet(image, families=families, severities=severities, seed=seed)
    write_atomically(path, to_png(sheet) if path.suffix.lower() == ".png" else to_html(sheet))
    return path


def make_sheet(
    image: str | Path | None, *, families: Sequence[str], severities: Sequence[float], seed: int = 0
) -> Sheet:
    """Corrupt an image, or images of the demo, by every shift of the families at every severity."""
    for family in families or ("",):
        if family not in TABLED:
            problem = "The family {!r} has no severities." if family in FAMILIES else "There is no family {!r}."
            raise ConfigurationError(problem.format(family), expected=", ".join(TABLED))
    for severity in severities:
        check_severity("of the preview", severity)
    pictures = cycle(_demo() if image is None else [_read(expand(image))])
    shifts = list(dict.fromkeys(name for family in families for name in names(family)))
    rows = []
    for name, picture in zip(shifts, pictures, strict=False):
        shifted = (corrupt(picture, corruption(name, severity), seed=seed) for severity in severities)
        rows.append(Row(name, str(facts(name)["category"]), (picture, *shifted)))
    height, width, _ = rows[0].pictures[0].shape
    source = "images of the demo" if image is None else Path(image).name
    columns = ("clean", *(f"severity {severity:g}" for severity in severities))
    note = f"{source}, {width} x {height} pixels, seed {seed}"
    return Sheet(f"Shifts: {', '.join(families)}", note, columns, tuple(rows))


def to_png(sheet: Sheet) -> bytes:
    """Return a sheet as the content of a PNG file, with its categories in as many blocks as make a page of it."""
    title, text, small = (ImageFont.load_default(size) for size in (30, 19, 16))
    lines = {row.name: _broken(row.title) for row in sheet.rows}
    ruler = ImageDraw.Draw(Image.new("L", (1, 1)))
    labels = 20 + math.ceil(max(ruler.textlength(line, text) for some in lines.values() for line in some))
    step = sheet.shown + _GAP
    block_width = labels + step * len(sheet.columns) - _GAP

    def height(block: Groups) -> int:
        return sum(_CATEGORY + step * len(rows) for _, rows in block)

    def size(blocks: Sequence[Groups]) -> tuple[int, int]:
        return _MARGIN + len(blocks) * (block_width + _MARGIN), _HEAD + max(map(height, blocks)) + _MARGIN

    groups = list(sheet.groups())
    choices = [_split(groups, count, height) for count in range(1, min(len(groups), _BLOCKS) + 1)]
    blocks = min(choices, key=lambda blocks: abs(math.log(operator.truediv(*size(blocks)) / _PROPORTION)))
    page = Image.new("RGB", size(blocks), _PAPER)
    draw = ImageDraw.Draw(page)
    draw.text((_MARGIN, _MARGIN), sheet.title, _INK, title)
    draw.text((_MARGIN, _MARGIN + 42), sheet.note, _FAINT, small)
    for number, block in enumerate(blocks):
        left, top = _MARGIN + number * (block_width + _MARGIN), _HEAD
        for place, column in enumerate(sheet.columns):
            draw.text((left + labels + place * step + sheet.shown // 2, top - 10), column, _INK, text, anchor="ms")
        for category, rows in block:
            draw.line((left, top, left + block_width, top), _LINE, 2)
            draw.text((left, top + _CATEGORY // 2), category, _FAINT, small, anchor="lm")
            top += _CATEGORY
            for row in rows:
                middle = (left, top + sheet.shown // 2)
                draw.text(middle, "\n".join(lines[row.name]), _INK, text, anchor="lm")
                for place, picture in enumerate(row.pictures):
                    tile = Image.fromarray(picture).resize((sheet.shown, sheet.shown), Image.Resampling.NEAREST)
                    page.paste(tile, (left + labels + place * step, top))
                top += step
    return _encoded(page)


def to_html(sheet: Sheet) -> str:
    """Return a sheet as one HTML page, with its pictures inside."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("shiftproof.exports", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("preview.html").render(sheet=sheet, uri=_uri)


def _demo() -> list[Picture]:
    """Return a demo image of each class."""
    demo = load_images("demo")
    if demo.labels is None:
        raise DataError("The demo has no labels.")
    labels = demo.labels.tolist()
    chosen = demo.subset([labels.index(label) for label in range(len(demo.classes))])
    images = next(chosen.batches(len(chosen))).inputs
    return [(255 * image).round().byte().permute(1, 2, 0).contiguous().numpy() for image in images]


def _read(path: Path) -> Picture:
    """Return the centre of an image, of 224 x 224 pixels or, where it is smaller, of its short side."""
    if not path.is_file():
        raise DataError(f"There is no image {str(path)!r}.", expected="an image file, or none for the demo's")
    try:
        picture = Decoder("rgb")(str(path))
    except Exception as error:  # what is no image fails in any way there is
        raise unreadable(str(path), describe(error)) from error
    side = min(SIDE, *picture.shape[:2])
    if side < SMALLEST_SIDE:
        raise DataError("The image is too small.", expected=f"sides of at least {SMALLEST_SIDE} pixels", got=f"{side}")
    return np.array(Decoder("rgb", side).fit(Image.fromarray(picture)))


def _split(groups: Groups, count: int, height: Callable[[Groups], int]) -> list[Groups]:
    """Deal groups to so many blocks, of which the highest is as low as can be."""

    def dealt(places: tuple[int, ...]) -> list[Groups]:
        pairs = list(zip(groups, places, strict=True))
        return [[group for group, place in pairs if place == block] for block in range(count)]

    ways = map(dealt, product(range(count), repeat=len(groups)))
    return min(ways, key=lambda blocks: max(map(height, blocks)))


def _broken(title: str) -> list[str]:
    """Break a name into lines that fit beside the pictures."""
    lines = [""]
    for word in title.split():
        if len(lines[-1]) + len(word) < 16:
            lines[-1] = f"{lines[-1]} {word}".strip()
        else:
            lines.append(word)
    return lines


def _uri(picture: Picture) -> str:
    return "data:image/png;base64," + base64.b64encode(_encoded(Image.fromarray(picture))).decode()


def _encoded(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
