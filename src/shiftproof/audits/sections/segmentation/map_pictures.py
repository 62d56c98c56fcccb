"""Overlays for a report: an image, its label map, the predicted map and where they differ."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from shiftproof.audits.sections.measuring import picture
from shiftproof.audits.sections.segmentation.map_measuring import shifted_batch
from shiftproof.data.images.mask_values import IGNORE
from shiftproof.measures.overlap import Overlap, count_overlap
from shiftproof.reports.view import Picture
from shiftproof.runs import Json, Row
from shiftproof.shifts import Shift
from shiftproof.subjects import Subject

SIDE = 280
"""Pixels of a picture's longer side, at most."""
ROWS = 10
"""Classes of a column of a legend."""
RIGHT, WRONG, UNLABELLED = (205, 214, 224), (200, 40, 40), (0, 0, 0)
_MAP, _DIFFERENCE = "truth", "difference"


def palette(classes: int) -> NDArray[np.uint8]:
    """Return a colour for each class, [256, 3], the last black for no label: Pascal VOC's, without its first."""
    colours = np.zeros((256, 3), np.uint8)
    for label in range(min(classes, 255)):
        code, shift = label + 1, 7
        while code:
            for channel in range(3):
                colours[label, channel] |= (code >> channel & 1) << shift
            code, shift = code >> 3, shift - 1
    return colours


def overlays(subject: Subject, images: int, shift: Shift | None, seed: int) -> list[Json]:
    """Return the first images after a shift, with the label map, the prediction and the difference of each."""
    (batch,) = subject.data.subset(range(images)).batches(images, device=subject.device)
    shown, labels = shifted_batch(subject, batch, shift, seed)
    scores = subject.task.scores(subject.fast_model, shown)
    predicted = scores.argmax(1)
    colours = palette(scores.shape[1])
    found = Overlap(count_overlap(labels, predicted, scores.shape[1], IGNORE))
    names = subject.data.names if hasattr(subject.data, "names") else [""] * images
    return [
        {
            "name": names[row],
            "miou": round(float(found.per_image[row]), 4),
            "image": picture(shown[row], SIDE),
            _MAP: _coloured(labels[row], colours),
            "predicted": _coloured(predicted[row], colours),
            _DIFFERENCE: _difference(labels[row], predicted[row]),
        }
        for row in range(len(shown))
    ]


def shown_overlays(row: Row) -> tuple[Picture, ...]:
    """Return the pictures of a row of `overlays`, four for each image."""
    found = []
    for entry in cast("Sequence[Mapping[str, Json]]", row["pictures"]):
        said = f"mIoU of the image {100 * float(str(entry['miou'])):.1f}%"
        captions = {
            "image": "image",
            _MAP: "label map",
            "predicted": f"prediction, {said}",
            _DIFFERENCE: "wrong in red",
        }
        found += [Picture(str(entry[kind]), caption) for kind, caption in captions.items()]
    return tuple(found)


def legend(names: Sequence[str], labels: Sequence[int]) -> Picture:
    """Return a picture of the colours of some classes with their names."""
    colours = palette(len(names))
    made = Image.new("RGB", (SIDE, SIDE * 3 // 4), (255, 255, 255))
    draw, columns = ImageDraw.Draw(made), 1 if len(labels) <= ROWS else 2
    shown = list(labels)[: columns * ROWS]
    high = made.height // min(ROWS, len(shown))
    for place, label in enumerate(shown):
        left, top = place // ROWS * SIDE // 2, place % ROWS * high
        draw.rectangle((left + 2, top + 2, left + 14, top + high - 2), fill=tuple(colours[label].tolist()))
        draw.text((left + 18, top + high // 2 - 6), names[label][:14], fill=(0, 0, 0))
    buffer = io.BytesIO()
    made.save(buffer, "PNG", optimize=True)
    more = f" (the first {len(shown)})" if len(shown) < len(labels) else ""
    return Picture(base64.b64encode(buffer.getvalue()).decode(), f"classes{more}; black: no label")


def _coloured(labels: Tensor, colours: NDArray[np.uint8]) -> str:
    made = Image.fromarray(labels.cpu().numpy().astype(np.uint8))
    made.putpalette(colours.flatten().tolist())
    return _png(made)


def _difference(labels: Tensor, predicted: Tensor) -> str:
    codes = (labels != predicted).to(labels.dtype)
    codes[labels == IGNORE] = 2
    made = Image.fromarray(codes.cpu().numpy().astype(np.uint8))
    made.putpalette([*RIGHT, *WRONG, *UNLABELLED])
    return _png(made)


def _png(image: Image.Image) -> str:
    scale = min(1.0, SIDE / max(image.size))
    size = max(1, round(image.size[0] * scale)), max(1, round(image.size[1] * scale))
    buffer = io.BytesIO()
    image.resize(size, Image.Resampling.NEAREST).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()
