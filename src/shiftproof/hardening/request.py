"""What is asked of hardening, and the images by what they are for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Self

import torch
from annotated_types import Ge
from torch import nn

from shiftproof.data import DataLike, ImageSet, matched
from shiftproof.errors import DataError
from shiftproof.options import Count, NotNegative, Options, Positive
from shiftproof.prediction_tasks import CLASSES, check_task
from shiftproof.training.feed import labels_of
from shiftproof.training.learning_layers import evaluating
from shiftproof.training.recipes import Recipe
from shiftproof.training.recipes import recipe as find_recipe
from shiftproof.training.splitting import other_split, share_of, split_off
from shiftproof.training.training import check_fit, labelled_images

CHOOSING, CHOOSING_SHARE = 7000, 0.4
"""Images kept for choosing, at most, and the least share of those that are not trained on: all that the proof leaves.
Of 1,000 the clean accuracy that is lost is known to 1.2 points only, more than may be lost; of 7,000 to 0.5."""
PROBING = 1000
"""How many of them probes and checkpoints look at, at most."""
COPIES = 0.1
"""The share of the test images that may also be among the training images: they are left out."""
FEWEST = 2
"""Images for choosing and for proof, at least: with fewer there is nothing to say."""


class Request(Options):
    """How a network is to be hardened; see `harden`."""

    recipe: Annotated[str, "How to train."] = "mixed+anchor"
    augment: Annotated[str | None, "The text form of the augmentation."] = None
    minutes: Annotated[Positive, "Time for training."] = 10.0
    epochs: Annotated[Count | None, "Passes over the training images."] = None
    lr: Annotated[Positive | None, "The learning rate."] = None
    max_clean_loss: Annotated[NotNegative, "Points of clean accuracy that may be lost."] = 1.0
    test_images: Annotated[int, Ge(FEWEST), "Images of the audits, at most."] = 1000
    batch_size: Annotated[Count, "Images of one step."] = 128
    seed: Annotated[int, "The seed of every random draw."] = 0

    def recipe_on(self, augment: str | None) -> Recipe:
        """Return the recipe, with an augmentation in the place of its own where it has one."""
        found = find_recipe(self.recipe)
        return found if found.augment is None or augment is None else found.with_options(augment=augment)

    def to_texts(self) -> dict[str, str]:
        """Return what decides the candidates, as texts: which of them is kept may be asked anew."""
        return {name: str(value) for name, value in self.to_dict().items() if name != "max_clean_loss"}


@dataclass(frozen=True)
class ImagesByUse:
    """The images by what they are for: training, choosing, and proof, which nothing else sees."""

    training: ImageSet
    choosing: ImageSet
    proof: ImageSet

    @classmethod
    def of(cls, data: DataLike, test: DataLike | float, *, images: int | None, proof: int, seed: int) -> Self:
        """Load and split, with so many images for proof where there are enough; refuse what is too little for that."""
        training = labelled_images(data, images, seed)
        check_task(training, (CLASSES.name,), "hardening proves what it wins by accuracy")
        share = share_of(test)
        if share is None:
            rest = labelled_images(other_split(test, data), None, seed)
            rest = _not_among(training, rest)
        else:
            training, rest = split_off(training, share, seed=seed)
        if CHOOSING_SHARE * len(rest) < FEWEST:
            raise DataError(
                "Too few test images.",
                expected=f"{round(FEWEST / CHOOSING_SHARE)} or more images not used for training; hundreds are better",
                got=f"{len(rest)}",
                fix="give more with --test, or a larger share of the data",
            )
        chosen_by = min(CHOOSING, max(CHOOSING_SHARE * len(rest), len(rest) - proof))
        kept, choosing = split_off(rest, chosen_by / len(rest), seed=seed + 1)
        return cls(training, choosing, kept)

    @property
    def probing(self) -> ImageSet:
        """Those for choosing that probes and checkpoints look at."""
        return self.choosing.take(PROBING, seed=0)

    def matched(self, network: nn.Module) -> Self:
        """Return the same images with labels that are outputs of a network."""
        with evaluating(network):
            made = [matched(each, network) for each in (self.training, self.choosing, self.proof)]
            for each in made:
                check_fit(network, each, labels_of(each))
        return replace(self, training=made[0], choosing=made[1], proof=made[2])

    def fingerprints(self) -> dict[str, str]:
        """Return what tells these images from others."""
        return {name: getattr(self, name).fingerprint for name in ("training", "choosing", "proof")}


def _not_among(training: ImageSet, rest: ImageSet) -> ImageSet:
    """Return the test images that are not trained on; refuse them where many are: they are probably the same set."""
    seen = torch.isin(rest.keys, training.keys)
    count = int(seen.sum())
    if count > COPIES * len(rest):
        raise DataError(
            "Test images are among the training images.",
            expected="images that training did not see",
            got=f"{count:,} of {len(rest):,} test images are in both",
            fix="leave --test out to hold out a part of the data instead",
        )
    if not count:
        return rest
    return rest.subset((~seen).nonzero()[:, 0]).noted(
        f"{count:,} of {len(rest):,} test images are among the training images and were left out."
    )
