"""Make the pictures of the recipes: what a network sees of one image of the demo in six epochs of training.

    python docs/make_recipe_pictures.py

Run it again when an augmentation changes, and look at what it made.
"""

from __future__ import annotations

import torch
from make_pictures import ENLARGED, FOLDER, GAP, IMAGE, enlarged
from PIL import Image
from torch import Tensor

import shiftproof
from shiftproof.data import ImageSet, load_images
from shiftproof.training.feed import Feed
from shiftproof.training.losses import smoothadv
from shiftproof.training.recipes import recipe
from shiftproof.training.settings import TrainingSettings
from shiftproof.training.tuples import TupleSearch

EPOCHS = 6
SIGMA = 0.25
PICTURES = ("erm", "gaussian", "smoothadv", "autoaugment", "augmix", "fouriermix", "rda", "esda")
ATTACK = 1.0
"""The radius of the attack that is shown: that of training, 64/255, can hardly be seen."""


def main() -> None:
    """Write the pictures."""
    data = load_images("demo")
    for name in PICTURES:
        strip(seen(name, data)).save(FOLDER / f"recipe-{name}.png", optimize=True)


def seen(name: str, data: ImageSet) -> Tensor:
    """Return an image as a recipe makes it in each epoch, [epochs, 3, H, W]; noise only where it is all there is."""
    chosen, one = recipe(name), data.subset([IMAGE])
    settings = TrainingSettings(epochs=EPOCHS, batch_size=1)
    feed = Feed(one, chosen, settings, device=torch.device("cpu"))
    found = []
    if chosen.tuples is not None and chosen.tuples.searcher is not None:
        fewer = chosen.with_options(images=100, budget=60)
        search = TupleSearch(fewer.tuples or chosen.tuples, data, seed=0, device="cpu", batch_size=64)
        model = shiftproof.load_model("demo")
        found = [search(model, number) for number in range(3)]  # type: ignore[arg-type]
    images = []
    for epoch, batch in enumerate(feed.batches(0, feed.steps, found)):
        shown, noise = batch.inputs[0], feed.noise(batch, SIGMA, epoch)
        if name == "smoothadv" and noise is not None:
            shown = smoothadv(shiftproof.load_model("demo"), shown, batch.labels, noise[0], eps=ATTACK, steps=10)  # type: ignore[arg-type]
        images.append(shown + noise[0, 0] if name == "gaussian" and noise is not None else shown)
    return torch.cat(images).clamp(0, 1)


def strip(images: Tensor) -> Image.Image:
    """Lay images side by side."""
    side = ENLARGED * images.shape[-1]
    picture = Image.new("RGB", (len(images) * (side + GAP) - GAP, side), "white")
    for place, image in enumerate(images):
        picture.paste(enlarged(image), (place * (side + GAP), 0))
    return picture


if __name__ == "__main__":
    main()
