"""Semantic adversarial examples (Hosseini & Poovendran 2018): for each image, a hue and saturation that fool a model.

Each image is searched by itself, at random, and what its pixels are like in brightness stays: a baseline for chains of
transformations, which are shared by all images.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.data import DataLike, as_images
from shiftproof.errors import DataError
from shiftproof.keyed import Keyed
from shiftproof.measures import Accuracy
from shiftproof.models import ModelLike, logits
from shiftproof.searchers.searching import check_budget
from shiftproof.shifts.levels import from_levels, to_bytes
from shiftproof.subjects import Subject

TRIALS = 1000


@dataclass(frozen=True, eq=False)
class SemanticExamples:
    """Accuracy on clean images, and under the worst hue and saturation found for each image.

    `trials` is 0 for an image misclassified when clean, and -1 if no trial succeeded. `hue` is in turns, `saturation`
    on the scale from 0 to 1.

    Args:
        clean: Accuracy on clean images.
        accuracy: Accuracy under the worst hue and saturation found.
        trials: Number of trials until misclassification, [N].
        hue: Last change of hue tried, [N].
        saturation: Last change of saturation tried, [N].
    """

    clean: Accuracy
    accuracy: Accuracy
    trials: NDArray[np.int64]
    hue: NDArray[np.float64]
    saturation: NDArray[np.float64]


def semantic_examples(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    trials: int = TRIALS,
    images: int | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: int | None = None,
) -> SemanticExamples:
    """Search each image for a change of hue and saturation that a model misclassifies.

    In every trial, the hue is rotated by a uniform random angle, and a uniform random number is added to the
    saturation, whose range grows from 0 to [-1, 1] over the trials. A misclassified image is not tried again.

    Args:
        model: Anything `load_model` accepts.
        data: Labelled images: anything `load_data` accepts.
        trials: Largest number of trials per image.
        images: Number of images to use, drawn in proportion to the classes. Default: all.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Images per forward pass. Default: by the size of the images.

    >>> found = semantic_examples("demo", "demo", images=20, trials=5)
    >>> found.accuracy.value <= found.clean.value
    True
    """
    check_budget(trials)
    subject = Subject.of(model, data, images=images, seed=seed, device=device, batch_size=batch_size)
    found = as_images(subject.data)
    if found.labels is None:
        raise DataError("The images have no labels.", expected="labelled images", got=found.name)
    parts: list[tuple[Tensor, Tensor]] = []
    for batch in found.batches(subject.batch_size, device=subject.device):
        assert batch.labels is not None
        drawn = Keyed(seed, batch.keys.cpu()).fork("search/hue_saturation").uniform(shape=(trials, 2)).double()
        drawn[:, :, 1] = (2 * drawn[:, :, 1] - 1) * torch.arange(trials) / trials
        parts.append((_tried(subject, batch.inputs, batch.labels.to(subject.device), drawn), drawn))
    tried = torch.cat([each for each, _ in parts])
    last = torch.cat([drawn[range(len(drawn)), where.clamp_min(1) - 1] for where, drawn in parts])
    wrong, fooled = int((tried == 0).sum()), int((tried >= 0).sum())
    count = len(tried)
    return SemanticExamples(
        Accuracy(count - wrong, count),
        Accuracy(count - fooled, count),
        tried.numpy(),
        last[:, 0].numpy(),
        last[:, 1].numpy(),
    )


def shift_hue_saturation(images: Tensor, hue: Tensor, saturation: Tensor) -> Tensor:
    """Turn the hues of images [N, 3, H, W] in [0, 1] by a share of a turn [N], and add to their saturations [N].

    Their values (the V of HSV) stay; saturations are cut to 0 to 1, and grey pixels have hue 0. Results are on the 256
    levels.
    """
    if images.shape[1] != 3:
        raise DataError("Hue and saturation need colour images.", expected="3 channels", got=f"{images.shape[1]}")
    red, green, blue = images.double().unbind(1)
    value, least = images.double().amax(1), images.double().amin(1)
    spread = value - least
    safe = spread.clamp_min(1e-12)
    sixths = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    turned = torch.where(spread > 0, sixths, 0.0) + 6 * hue.to(images.device).double()[:, None, None]
    wanted = spread / value.clamp_min(1e-12) + saturation.to(images.device).double()[:, None, None]
    below = value * wanted.clamp(0.0, 1.0)
    channels = []
    for offset in (5, 3, 1):
        place = (offset + turned) % 6
        channels.append(value - below * torch.minimum(place, 4 - place).clamp(0.0, 1.0))
    return from_levels(to_bytes(torch.stack(channels, 1).float()))


def _tried(subject: Subject, images: Tensor, labels: Tensor, drawn: Tensor) -> Tensor:
    """Return how many trials each image took to be wrong, -1 where none of those drawn, [N, trials, 2], did it."""
    taken = torch.full((len(images),), -1)
    still = torch.arange(len(images))
    for trial in range(drawn.shape[1] + 1):
        some = images[still.to(images.device)]
        if trial:
            some = shift_hue_saturation(some, *drawn[still, trial - 1].unbind(1))
        right = logits(subject.fast_model, some).argmax(1).cpu() == labels.cpu()[still]
        taken[still[~right]] = trial
        still = still[right]
        if not len(still):
            break
    return taken
