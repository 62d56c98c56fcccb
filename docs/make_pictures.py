"""Make the pictures of the shift tables: every corruption of an image of the demo, at severities 1, 3 and 5.

    python docs/make_pictures.py

Run it again when a corruption changes, and look at what it made.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

import shiftproof
from shiftproof import shifts

FOLDER = Path(__file__).parent / "_static"
IMAGE = 75
"""Which image of the demo: a bird, with colours, edges and a plain background."""
SEVERITIES = (1, 3, 5)
ENLARGED = 3
"""How many pixels of the picture an image's pixel is wide."""
ACROSS = 3
"""Corruptions in a row."""
GAP, MARGIN, LINE = 4, 24, 26
INK, FAINT = "#1a1a1a", "#6b6b6b"
TITLE, SMALL = ImageFont.load_default(17), ImageFont.load_default(14)


def main() -> None:
    """Write the pictures."""
    (batch,) = shiftproof.load_data("demo").subset([IMAGE]).batches(1)
    FOLDER.mkdir(exist_ok=True)
    families = {"shifts.png": ("common", "holdout"), "shifts-bar.png": ("bar",)}
    for file, wanted in families.items():
        every = [(name, family) for family in wanted for name in shifts.names(family)]
        rows = [(title(name, family), corrupted(name, batch.inputs, batch.keys)) for name, family in every]
        grid(batch.inputs[0], rows).save(FOLDER / file, optimize=True)


def title(name: str, family: str) -> str:
    """Write a corruption's name as words."""
    words = name.replace("_", " ").replace("jpeg", "JPEG")
    return f"{words} (hold-out)" if family == "holdout" else words


def corrupted(name: str, images: Tensor, keys: Tensor) -> Tensor:
    """Return an image at each severity, with the same random draws, [severities, 3, H, W]."""
    return torch.cat([shifts.corruption(name, severity)(images, keys) for severity in SEVERITIES])


def grid(clean: Tensor, blocks: Sequence[tuple[str, Tensor]]) -> Image.Image:
    """Lay out an image by itself and, below it, blocks in rows of ACROSS: a title over an image for each severity."""
    side = ENLARGED * clean.shape[-1]
    width, height = len(SEVERITIES) * (side + GAP) - GAP, LINE + side + MARGIN // 2
    head = MARGIN + side + MARGIN + LINE
    rows = -(-len(blocks) // ACROSS)
    picture = Image.new("RGB", (MARGIN + ACROSS * (width + MARGIN), head + rows * height + MARGIN // 2), "white")
    draw = ImageDraw.Draw(picture)
    picture.paste(enlarged(clean), (MARGIN, MARGIN))
    draw.text((MARGIN + side + 12, MARGIN + side // 2), "the image itself", INK, TITLE, anchor="lm")
    for column in range(ACROSS):
        for place, severity in enumerate(SEVERITIES):
            middle = MARGIN + column * (width + MARGIN) + place * (side + GAP) + side // 2
            draw.text((middle, head - 4), f"severity {severity}", FAINT, SMALL, anchor="ms")
    for index, (words, images) in enumerate(blocks):
        left = MARGIN + index % ACROSS * (width + MARGIN)
        top = head + index // ACROSS * height
        draw.text((left, top + LINE), words, INK, TITLE, anchor="ls")
        for place, image in enumerate(images):
            picture.paste(enlarged(image), (left + place * (side + GAP), top + LINE + 7))
    return picture


def enlarged(image: Tensor) -> Image.Image:
    """Return an image [3, H, W] in [0, 1] with its pixels as squares."""
    levels = image.mul(255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    height, width = image.shape[1:]
    return Image.fromarray(levels).resize((ENLARGED * width, ENLARGED * height), Image.Resampling.NEAREST)


if __name__ == "__main__":
    main()
