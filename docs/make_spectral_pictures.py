"""Make the pictures of the guide on certificates and on the spectrum.

    python docs/make_spectral_pictures.py

`certificate.png` is an example in the plane: a base classifier with a wavy boundary, noise around a point, and the
certified disc, beside the smoothed classifier's own regions. `spectrum.png` is the demo's sensitivity map.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from shiftproof.certificates import Smoothed, spectrum

FOLDER = Path(__file__).parent / "_static"
SIDE, GAP, HEAD = 360, 24, 30
SIGMA = 0.15
POINT = (0.33, 0.52)
SANDY, BLUISH, INK = (244, 226, 200), (205, 224, 240), "#1a1a1a"
FONT = ImageFont.load_default(15)


def base(points: Tensor) -> Tensor:
    """Two classes of points in the plane, as images of two values, [N, 1, 1, 2]: the sides of a wavy line."""
    across, down = points.flatten(1).unbind(1)
    side = across - 0.55 - 0.07 * (25 * down).sin()
    return torch.stack([-side, side], 1)


def main() -> None:
    """Write both pictures."""
    FOLDER.mkdir(exist_ok=True)
    certificate().save(FOLDER / "certificate.png", optimize=True)
    heat_map().save(FOLDER / "spectrum.png", optimize=True)


def certificate() -> Image.Image:
    """Draw the base classifier with noise and the certified disc, and the smoothed classifier with the disc."""
    point = torch.tensor(POINT).view(1, 1, 1, 2)
    (made,) = Smoothed(base, SIGMA).certify(point, keys=[0], n=10_000)
    places = (torch.arange(SIDE) + 0.5) / SIDE
    grid = torch.stack(torch.meshgrid(places, places, indexing="xy"), -1).view(-1, 1, 1, 2)
    plain = base(grid).argmax(1)
    noise = torch.randn(4096, 1, 1, 2, generator=torch.Generator().manual_seed(0)) * SIGMA
    smooth = torch.stack([base(grid + each).argmax(1) for each in noise[:256]]).float().mean(0).round().long()
    page = Image.new("RGB", (2 * SIDE + GAP, SIDE + HEAD), "white")
    draw = ImageDraw.Draw(page)
    for left, classes, title in (
        (0, plain, "the base classifier, and noise around x"),
        (SIDE + GAP, smooth, "the smoothed classifier"),
    ):
        colours = np.array([SANDY, BLUISH], np.uint8)[classes.view(SIDE, SIDE).numpy()]
        page.paste(Image.fromarray(colours), (left, HEAD))
        draw.text((left, 6), title, INK, FONT)
        centre = (left + POINT[0] * SIDE, HEAD + POINT[1] * SIDE)
        if left == 0:
            for each in (point + noise[:220]).flatten(1).tolist():
                if 0 < each[0] < 1 and 0 < each[1] < 1:
                    dot(draw, (left + each[0] * SIDE, HEAD + each[1] * SIDE), 2, "#7a7a7a")
        reach = made.radius * SIDE
        box = (centre[0] - reach, centre[1] - reach, centre[0] + reach, centre[1] + reach)
        draw.ellipse(box, outline="#b3341f", width=3)
        dot(draw, centre, 4, INK)
        draw.text((centre[0] + 7, centre[1] - 20), "x", INK, FONT)
    return page


def heat_map() -> Image.Image:
    """Draw the accuracy of the demo under every wave, the zero frequency in the middle."""
    found = spectrum("demo", "demo", images=100, alphas=(), strengths=(), corruptions=("fog",))
    levels = np.clip(found.heat(), 0, 1)
    dark, light = np.array((0, 34, 78)), np.array((254, 232, 56))  # the ends of cividis
    colours = (dark + levels[..., None] * (light - dark)).astype(np.uint8)
    return Image.fromarray(colours).resize((SIDE, SIDE), Image.Resampling.NEAREST)


def dot(draw: ImageDraw.ImageDraw, place: tuple[float, float], size: int, colour: str) -> None:
    """Draw a dot."""
    draw.ellipse((place[0] - size, place[1] - size, place[0] + size, place[1] + size), fill=colour)


if __name__ == "__main__":
    main()
