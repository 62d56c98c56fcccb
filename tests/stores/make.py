"""Write a small audit's store as this version writes it, to be opened by later versions.

    python -m tests.stores.make

Run it once for a release, and when the store of the version in work changes; never change that of a released version.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

import shiftproof
from shiftproof.models import BlackBox
from shiftproof.version import __version__

FOLDER = Path(__file__).parent
NAMES = ("clean_accuracy", "corruption_accuracy", "accuracy.brightness")


def brightest_channel(images: Tensor) -> Tensor:
    """Return the mean of each channel: which of three colours an image has."""
    return 10 * images.mean(dim=(2, 3))


def main() -> None:
    """Write the store and its numbers into a folder named by the version."""
    labels = np.arange(12) % 3
    images = np.full((12, 8, 8, 3), 60, np.uint8)
    images[np.arange(12), :, :, labels] = 200
    images[0] = images[0][..., [1, 0, 2]]  # one mistake
    torch.manual_seed(0)
    place = FOLDER / __version__
    with TemporaryDirectory() as run:
        made = shiftproof.audit(
            BlackBox(brightest_channel, name="brightest channel"),
            (images, labels),
            out=run,
            shifts=["brightness"],
            severities=[1, 5],
            sections=["clean", "corruptions"],
        )
        place.mkdir(exist_ok=True)
        shutil.copy(Path(run) / "run.sqlite", place)
    numbers = {name: made.numbers[name] for name in NAMES}
    (place / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
