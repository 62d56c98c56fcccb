"""Pictures of a worst case: images before and after, with right and wrong marked by a sign and a frame."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from shiftproof.searchers.fitness import to_array
from shiftproof.searchers.search_trace import Trial

if TYPE_CHECKING:
    from shiftproof.searchers.evaluator import Evaluator
    from shiftproof.searchers.search_result import Search

_TILE, _GAP, _MARGIN, _LINE = 120, 12, 32, 26
_PAPER, _INK, _FAINT = (255, 255, 255), (28, 32, 40), (104, 112, 126)
_RIGHT, _WRONG, _UNKNOWN = (0, 114, 178), (213, 94, 0), (222, 226, 232)  # told apart without colour vision

Row = tuple[str, NDArray[np.uint8], list[bool] | None]


def sheet(search: Search, trials: Sequence[Trial], evaluator: Evaluator, *, images: int) -> bytes:
    """Return a PNG: a row of the first images as they are, and a row under each tuple, with its fitness."""
    space = search.trace.space
    rows: list[Row] = [_row(evaluator, (), images, f"as they are: {search.fitness} {search.clean:.3f}")]
    for trial in trials:
        text = f"{search.fitness} {trial.score.fitness:.3f} under {space.words(trial.genes)}"
        rows.append(_row(evaluator, tuple(space.steps[gene].label for gene in trial.genes), images, text))
    width = 2 * _MARGIN + max(images, 4) * (_TILE + _GAP) - _GAP
    height = _MARGIN + len(rows) * (_TILE + _LINE + 2 * _GAP) + 2 * _LINE
    page = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(page)
    font = ImageFont.load_default(15)
    top = _MARGIN // 2
    for text, pictures, marks in rows:
        draw.text((_MARGIN, top), _fitted(draw, text, font, width - 2 * _MARGIN), _INK, font)
        for place, picture in enumerate(pictures):
            left = _MARGIN + place * (_TILE + _GAP)
            _draw_tile(page, draw, picture, (left, top + _LINE), None if marks is None else marks[place])
        top += _TILE + _LINE + 2 * _GAP
    note = f"{search.model} on {search.data}: its first {images} of {search.images} images. "
    note += "Tick and blue frame: right. Cross and orange frame: wrong."
    draw.text((_MARGIN, top), _fitted(draw, note, font, width - 2 * _MARGIN), _FAINT, font)
    file = io.BytesIO()
    page.save(file, "PNG", optimize=True)
    return file.getvalue()


def _row(evaluator: Evaluator, labels: tuple[str, ...], images: int, text: str) -> Row:
    shifted = evaluator.applier([evaluator.steps[label] for label in labels], 0, images)
    _, marks = evaluator.fitness.tally(shifted, slice(0, images))
    return text, to_array(shifted), marks


def _draw_tile(
    page: Image.Image,
    draw: ImageDraw.ImageDraw,
    picture: NDArray[np.uint8],
    corner: tuple[int, int],
    right: bool | None,
) -> None:
    """Paste a picture with its frame and, where it is known, a tick or a cross."""
    left, top = corner
    color = _UNKNOWN if right is None else _RIGHT if right else _WRONG
    image = Image.fromarray(picture.squeeze(2) if picture.shape[2] == 1 else picture).convert("RGB")
    enlarging = max(image.size) <= _TILE // 2
    image = image.resize((_TILE, _TILE), Image.Resampling.NEAREST if enlarging else Image.Resampling.BICUBIC)
    page.paste(image, corner)
    draw.rectangle((left - 3, top - 3, left + _TILE + 2, top + _TILE + 2), outline=color, width=4)
    if right is None:
        return
    x, y = left + _TILE - 24, top + _TILE - 24
    draw.rectangle((x, y, x + 24, y + 24), fill=color)
    if right:
        draw.line((x + 5, y + 13, x + 10, y + 18, x + 20, y + 6), _PAPER, 3)
    else:
        draw.line((x + 6, y + 6, x + 18, y + 18), _PAPER, 3)
        draw.line((x + 6, y + 18, x + 18, y + 6), _PAPER, 3)


def _fitted(
    draw: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int
) -> str:
    """Cut a text to a width."""
    while draw.textlength(text, font) > width and len(text) > 4:
        text = text[:-4].rstrip() + "..."
    return text
