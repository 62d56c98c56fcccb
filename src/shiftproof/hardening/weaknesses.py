"""What a network is weak to, and what to train it on, with its reason.

A remedy is chosen by two kinds of evidence: what the network loses under the augmentation itself, on images that are
kept for choosing, and what an audit found of the corruptions that are like it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Self

import torch
from torch import nn

from shiftproof.data import ImageSet
from shiftproof.hardening.remedies import GENERAL, LAST, LIKE_CORRUPTIONS, REMEDIES, Remedy
from shiftproof.models import device_of, logits
from shiftproof.runs import Json, Row
from shiftproof.shifts import as_image_shift, facts, names
from shiftproof.shifts.chain import JOINT

COSTLY = 0.05
"""Corruption is worth training against from this loss of accuracy on."""
SEVERE = 0.25
"""From so much more than usual under its own augmentation on, a weakness gets a stronger augmentation."""
PARTICULAR_AUDITED = 0.40
"""From this loss under a corruption of an audit on, a weakness gets what not every fine-tuning has."""
ROBUST = 0.5
"""A network that loses less than this share of what is usual under filters, blur and noise is robust already."""
PARTICULAR_FROM = {remedy.name: remedy.particular for remedy in REMEDIES}
AIMED = 500
"""Images that each of many aims is probed on, at most."""


@dataclass(frozen=True)
class Weakness:
    """What a kind of change costs now, as fractions of accuracy: measured on its augmentation, and by an audit.

    `probe` is what it was measured under, the worst of the remedy's aims, `usual` what that costs other networks.
    """

    remedy: str
    probed: float
    audited: float | None
    chosen: str | None
    usual: float
    probe: str
    words: str = ""

    @property
    def particular(self) -> bool:
        """Whether it was chosen, and costs more than is usual or is not what every fine-tuning has."""
        more = self.probed - self.usual >= PARTICULAR_FROM[self.remedy]
        return self.chosen is not None and (more or self.remedy not in GENERAL)

    @property
    def loss(self) -> float:
        """The larger of both."""
        return max(self.probed, self.audited or 0.0)

    @property
    def reason(self) -> str:
        """Why it was chosen, or not."""
        worst = f" ({self.words})" if self.words else ""
        evidence = f"{100 * self.probed:.1f} points lost under it{worst}, {100 * self.usual:.0f} are usual"
        if self.audited is not None:
            evidence += f", {100 * self.audited:.1f} under the worst corruption like it"
        if self.chosen is None:
            needed = 100 * (self.usual + PARTICULAR_FROM[self.remedy])
            either = "" if self.audited is None else f", or {100 * PARTICULAR_AUDITED:.0f} under such a corruption"
            return f"left out: {evidence}; trained on from {needed:.0f} on{either}"
        return f"{'chosen' if self.particular else 'part of every fine-tuning'}: {evidence}"

    def to_row(self) -> dict[str, Json]:
        """Return the weakness as JSON values."""
        return {**asdict(self), "reason": self.reason}

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Return the weakness of a row."""
        audited, chosen = row["audited"], row["chosen"]
        return cls(
            str(row["remedy"]),
            float(str(row["probed"])),
            None if audited is None else float(str(audited)),
            None if chosen is None else str(chosen),
            float(str(row["usual"])),
            str(row["probe"]),
            str(row["words"]),
        )


def weaknesses(
    network: nn.Module, data: ImageSet, numbers: Mapping[str, float], *, seed: int, size: int
) -> list[Weakness]:
    """Return what every kind of change costs a network on images for choosing, with an audit's numbers beside it."""
    lost = {
        remedy.name: found
        for many, images in ((False, data), (True, data.take(AIMED, seed=seed)))
        for remedy, found in _losses(network, images, many, seed=seed, size=size)
    }
    made = []
    for remedy in REMEDIES:
        loss, aim = max(zip(lost[remedy.name], remedy.aims, strict=True), key=lambda pair: pair[0] - pair[1].usual)
        more, audited = loss - aim.usual, audited_loss(numbers, remedy.like)
        chosen = None
        if remedy.name in GENERAL or more >= remedy.particular or (audited or 0.0) >= PARTICULAR_AUDITED:
            chosen = aim.strong if more >= SEVERE else aim.augment
        made.append(Weakness(remedy.name, loss, audited, chosen, aim.usual, aim.probe, aim.words))
    return made


def _losses(
    network: nn.Module, data: ImageSet, many: bool, *, seed: int, size: int
) -> Iterator[tuple[Remedy, list[float]]]:
    """Yield the remedies that have many aims, or those that have one, with what each aim's probe costs."""
    remedies = [remedy for remedy in REMEDIES if (len(remedy.aims) > 1) == many]
    probes = [aim.probe for remedy in remedies for aim in remedy.aims]
    clean, *probed = probe(network, data, [None, *probes], seed=seed, size=size)
    left = iter(probed)
    for remedy in remedies:
        yield remedy, [clean - accuracy for accuracy in islice(left, len(remedy.aims))]


def worth_mending(found: Sequence[Weakness], numbers: Mapping[str, float]) -> bool:
    """Whether something particular is weak, or corruption costs a network that is not robust already enough."""
    if any(each.particular for each in found):
        return True
    like = [each for each in found if each.remedy in LIKE_CORRUPTIONS]
    robust = sum(each.probed for each in like) < ROBUST * sum(each.usual for each in like)
    return numbers.get("corruption_loss", 1.0) >= COSTLY and not robust


def policy(found: Sequence[Weakness]) -> str:
    """Return the augmentation of all that were chosen, one after the other, as the text form of a shift."""
    last = [each.chosen for each in found if each.remedy in LAST]
    first = [each.chosen for each in found if each.remedy not in LAST]
    return JOINT.join(chosen for chosen in (*first, *last) if chosen is not None)


def probe(network: nn.Module, data: ImageSet, augments: Sequence[str | None], *, seed: int, size: int) -> list[float]:
    """Return the accuracy of a network in evaluation mode under each augmentation; None is the images as they are."""
    shifts = [None if augment is None else as_image_shift(augment) for augment in augments]
    right = torch.zeros(len(shifts), dtype=torch.int64)
    where = device_of(network)
    for batch in data.batches(size, device=where):
        if batch.labels is None:
            raise ValueError("a probe needs labels")
        for place, shift in enumerate(shifts):
            images = batch.inputs if shift is None else shift(batch.inputs, batch.keys, seed=seed)
            right[place] += int((logits(network, images).argmax(1).cpu() == batch.labels.cpu()).sum())
    return [int(count) / len(data) for count in right]


def audited_loss(numbers: Mapping[str, float], categories: Sequence[str]) -> float | None:
    """Return what an audit says the worst corruption of some categories costs; None where it says nothing."""
    clean = numbers.get("clean_accuracy")
    found = [
        clean - numbers[f"accuracy.{name}"]
        for name in names("common")
        if clean is not None and f"accuracy.{name}" in numbers and facts(name)["category"] in categories
    ]
    return max(found, default=None)
