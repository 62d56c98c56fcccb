"""RoTTA: a balanced memory of recent images, slow statistics and a teacher (Yuan et al. 2023)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from shiftproof.adapters import losses, views
from shiftproof.adapters.method import Memory, Method, Parts
from shiftproof.adapters.method_options import Augmentation, GradientOptions, KeepWeights, RunningShare
from shiftproof.adapters.norms import GatheredStatistics, RunningStatistics
from shiftproof.adapters.parts import norm_affine, optimizer
from shiftproof.adapters.teacher import PREFIX, follow, predict, teacher
from shiftproof.options import Count

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter


@dataclass
class Entry:
    """A remembered image: its place among the images at hand, the class it was taken for, how unsure, how long ago."""

    place: int
    label: int
    doubt: float
    age: int = 0


@dataclass
class Bank:
    """A memory of at most `capacity` images, balanced over predicted classes, that prefers the new and the sure.

    An image is dropped by its score, sigmoid(age / capacity) + entropy / ln C; the higher, the sooner.
    """

    capacity: int
    classes: int
    entries: list[Entry]

    def score(self, entry: Entry) -> float:
        """Return how little an image is worth keeping."""
        return 1 / (1 + math.exp(-entry.age / self.capacity)) + entry.doubt / math.log(self.classes)

    def add(self, new: Entry) -> None:
        """Take an image in, in place of a worse one of a class that has its share; then all grow older."""
        counts = Counter(entry.label for entry in self.entries)
        if counts[new.label] >= self.capacity / self.classes:
            rivals = [entry for entry in self.entries if entry.label == new.label]
        elif len(self.entries) >= self.capacity:
            most = max(counts.values())
            rivals = [entry for entry in self.entries if counts[entry.label] == most]
        else:
            rivals = []
        worst = max(rivals, key=self.score, default=None)
        if worst is None:
            self.entries.append(new)
        elif self.score(worst) > self.score(new):
            self.entries.remove(worst)
            self.entries.append(new)
        for entry in self.entries:
            entry.age += 1


def remember(memory: Memory, images: Tensor, logits: Tensor, capacity: int) -> None:
    """Show a batch to the bank in memory, image by image.

    What is known of the images is kept on the host, where it is read; they alone are kept on their device.
    """
    classes = logits.shape[1]
    ages, labels = (memory[f"bank/{part}"].tolist() if "bank/images" in memory else [] for part in ("ages", "labels"))
    doubts = memory["bank/doubts"].tolist() if ages else []
    bank = Bank(capacity, classes, [Entry(*each) for each in zip(range(len(ages)), labels, doubts, ages, strict=True)])
    known = [memory["bank/images"]] if ages else []
    new = torch.stack([logits.argmax(1).double(), losses.entropy(logits).double()], 1).tolist()
    for place, (label, doubt) in enumerate(new, start=len(ages)):
        bank.add(Entry(place, int(label), doubt))
    kept = bank.entries
    places = torch.tensor([entry.place for entry in kept]).to(images.device)
    memory["bank/images"] = torch.cat([*known, images])[places]
    memory["bank/labels"] = torch.tensor([entry.label for entry in kept])
    memory["bank/doubts"] = torch.tensor([entry.doubt for entry in kept], dtype=torch.float64)
    memory["bank/ages"] = torch.tensor([entry.age for entry in kept])


class RottaOptions(GradientOptions):
    """Options of RoTTA."""

    keep_weights: KeepWeights = 0.999
    capacity: Annotated[Count, "How many images are remembered."] = 64
    update_every: Annotated[Count, "How many new images there are between updates."] = 64
    ema: RunningShare = 0.05
    augment: Augmentation = "jitter"


def _rotta(o: RottaOptions) -> Parts:
    augment = views.parse(o.augment)

    def learn(adapter: Adapter, images: Tensor) -> Tensor:
        with torch.no_grad():
            logits = predict(adapter, images)
        memory = adapter.memory
        remember(memory, images, logits, o.capacity)
        new = memory.get("bank/new", torch.zeros_like(memory["bank/ages"][0])) + len(images)
        if new >= o.update_every:
            learn_from_bank(adapter)
        memory["bank/new"] = new % o.update_every
        return logits

    def learn_from_bank(adapter: Adapter) -> None:
        """Teach the student, on views of the remembered images, what the teacher says of the images themselves."""
        known, images, ages = teacher(adapter), adapter.memory["bank/images"], adapter.memory["bank/ages"]
        with adapter.normalising(RunningStatistics(momentum=o.ema)):
            with torch.no_grad():
                target = adapter.run(images, known)
                adapter.memory.update({PREFIX + name: value for name, value in adapter.gathered().items()})
            logits = adapter.run(views.view(augment, images, adapter))
        timely = torch.sigmoid(-ages / o.capacity).to(logits)
        adapter.update((timely * losses.cross_entropy(logits, target)).mean())
        follow(adapter, known, o.keep_weights)

    return Parts(norm=GatheredStatistics(), trains=norm_affine, learn=learn, predict=predict, optimizer=optimizer(o))


ROTTA = Method(
    name="rotta",
    paper="Yuan et al. 2023",
    parts=_rotta,
    own_memory=True,
    passes=(3, 1),
    defaults=RottaOptions(optimizer="adam", lr=1e-3),
    departures="at most one update per batch, after it has been answered; the scale and shift of every kind of "
    "normalisation layer learn",
)
