"""Whether a model was made for images that are prepared otherwise: another channel order, scale or normalisation.

It is asked about a few labelled images as they are and, where it does not do well, in each of the usual other ways. A
way in which it is far more often right is probably the one it was trained in. One of them is to take its lowest score
for its answer, as of a model that returns distances.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import torch
from scipy.stats import binomtest
from torch import Tensor

from shiftproof.audits.sections.chance import right_by_chance
from shiftproof.errors import ModelError
from shiftproof.models import BatchFitter, logits
from shiftproof.subjects import Subject

IMAGES = 48
"""Images that are asked about."""
FIRST = 16
"""Images that each other way is tried on, before the best of them is tried on all."""
WELL = 0.8
"""A model that is right this often as images are has no far better way; with its lowest scores it must be."""
FAR = 0.2
"""How much more often it must be right."""
CHANCE = 1e-4
"""How improbable that must be by chance: about ten ways are tried."""
LEAST_CLASSES = 2
"""Of so few, a model that returns distances is not told from one with its classes swapped."""

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Preparation(NamedTuple):
    """A way of preparing images in [0, 1], with what to say of it: they are scaled, moved, and their channels turned.

    `said` follows "given". With `lowest`, the class of the lowest score is the answer.
    """

    said: str
    scale: tuple[float, ...] = (1.0,) * 3
    offset: tuple[float, ...] = (0.0,) * 3
    turned: bool = False
    lowest: bool = False

    @property
    def advice(self) -> str:
        """What a model that does far better in this way probably is, and what to do."""
        if self.lowest:
            return "it probably returns distances or losses. Return their negatives."
        return (
            "it was probably trained on such inputs. Set its normalisation by mean= and std=, and apply it only once."
        )

    def answers(self, scores: Tensor) -> Tensor:
        """Return the classes that scores [N, K] stand for, [N]; of two classes, the lowest score says nothing new."""
        return (-scores if self.lowest and scores.shape[1] > LEAST_CLASSES else scores).argmax(1)

    def __call__(self, images: Tensor) -> Tensor:
        """Return the images as this preparation has them."""
        scale, offset = (
            torch.tensor(part if images.shape[1] == 3 else part[:1], device=images.device).view(1, -1, 1, 1)
            for part in (self.scale, self.offset)
        )
        made = images * scale + offset
        return made.flip(1) if self.turned else made


AS_THEY_ARE = Preparation("images as they are")


def preparations() -> Iterator[Preparation]:
    """Yield every other way in which images are usually prepared, and the lowest score for an answer."""
    yield Preparation("the class with the lowest score for its answer", lowest=True)
    scales = {
        "": ((1.0,) * 3, (0.0,) * 3),
        "values of 0 to 255": ((255.0,) * 3, (0.0,) * 3),
        "images normalised with ImageNet's mean and std": (
            tuple(1 / std for std in _STD),
            tuple(-mean / std for mean, std in zip(_MEAN, _STD, strict=True)),
        ),
        "values of -1 to 1": ((2.0,) * 3, (-1.0,) * 3),
        "images on which a normalisation with ImageNet's mean and std is undone": (_STD, _MEAN),
        "images on which a normalisation to -1 to 1 is undone": ((0.5,) * 3, (0.5,) * 3),
    }
    for (said, (scale, offset)), turned in product(scales.items(), (False, True)):
        order = "channels in the order blue, green, red" if turned else ""
        if said or order:
            yield Preparation(" and ".join(filter(None, (said, order))), scale, offset, turned)


def better_preparation(subject: Subject) -> tuple[Preparation, int, int, int] | None:
    """Return the way in which a model is far more often right, with how often as they are, so, and of how many images.

    None where there is none, where images have no labels, and of texts.
    """
    count = min(IMAGES, len(subject.data))
    batches = list(subject.data.subset(range(count)).batches(min(count, subject.batch_size), device=subject.device))
    if not batches or not isinstance(batches[0].inputs, Tensor) or batches[0].labels is None:
        return None
    labels = torch.cat([batch.labels.cpu() for batch in batches if batch.labels is not None])

    inputs = torch.cat([batch.inputs for batch in batches])

    def answers(way: Preparation, count: int) -> Tensor:
        """Return the model's answers to the first images, -1 where it fails, which its tasks will tell."""
        some = way(inputs[:count])
        try:
            scores = fit(
                lambda size: torch.cat(
                    [logits(subject.fast_model, some[at : at + size]) for at in range(0, len(some), size)]
                )
            )
        except ModelError:
            return torch.full((count,), -1)
        return way.answers(scores).cpu()

    fit = BatchFitter(subject.batch_size)
    as_they_are = answers(AS_THEY_ARE, len(labels))
    plain = as_they_are == labels
    if plain.float().mean() > WELL:
        return None
    grey = inputs.shape[1] == 1
    ways = [way for way in preparations() if not (grey and way.turned)]
    first = labels[:FIRST]
    best, way = max(((_seen(answers(way, len(first)), first), way) for way in ways), key=lambda one: one[0])
    if best <= _seen(as_they_are[:FIRST], first):
        return None
    prepared = answers(way, len(labels))
    found = prepared == labels
    if way.lowest and found.float().mean() < WELL:  # of three classes in another order, half may be the lowest
        return None
    gained, lost = int((found & ~plain).sum()), int((plain & ~found).sum())
    better = min(gained - lost, _seen(prepared, labels) - max(0.0, _seen(as_they_are, labels)))
    if better < FAR * len(labels) or binomtest(gained, gained + lost, alternative="greater").pvalue > CHANCE:
        return None
    return way, int(plain.sum()), int(found.sum()), len(labels)


def _seen(answers: Tensor, labels: Tensor) -> float:
    """Return how many answers are right beyond chance: images that are all taken for the most frequent class are not.

    >>> _seen(torch.tensor([1, 1, 1, 1]), torch.tensor([1, 1, 1, 0]))
    0.0
    """
    classes = set(labels.tolist())
    inputs, given = ([int((some == one).sum()) for one in classes] for some in (labels, answers))
    return float((answers == labels).sum()) - right_by_chance(inputs, given)
