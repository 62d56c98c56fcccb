"""What a network is weak to, and what to train it on: an augmentation for every kind of weakness, with its reason.

None of them is a corruption that an audit tests. A remedy is chosen by two kinds of evidence: what the network loses
under the augmentation itself, on images that are kept for choosing, and what an audit found of the corruptions that
are like it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Self

import torch
from torch import nn

from shiftproof.data import ImageSet
from shiftproof.models import device_of, logits
from shiftproof.runs import Json, Row
from shiftproof.shifts import as_image_shift, facts, names
from shiftproof.shifts.chain import JOINT

COSTLY = 0.05
"""Corruption is worth training against from this loss of accuracy on."""
PARTICULAR, SEVERE = 0.15, 0.25
"""From so much more than usual under its own augmentation on, a weakness gets what not every fine-tuning has, and a
stronger augmentation."""
PARTICULAR_AUDITED = 0.40
"""From this loss under a corruption of an audit on, a weakness gets what not every fine-tuning has."""
ROBUST = 0.5
"""A network that loses less than this share of what is usual, under what every fine-tuning has, is robust already."""


@dataclass(frozen=True)
class Remedy:
    """An augmentation against a kind of weakness: the usual strength, a stronger one, and the one that is probed.

    `usual` is what networks that were trained without augmentation lose under the probe, as a fraction of accuracy: the
    demo's ResNet-20 and a ResNet-56, on CIFAR-10. `like` are the categories of corruptions that are evidence for it.
    """

    name: str
    augment: str
    strong: str
    probe: str
    usual: float
    like: tuple[str, ...] = ()


REMEDIES = (
    Remedy(
        "filters, colours and warps",
        "prime",
        "prime[curve=0.3]",
        "prime[taps=0.4,curve=0.3,pixels=2]",
        0.08,
        ("digital",),
    ),
    Remedy(
        "blur", "random_blur", "random_blur[width=2.5,share=0.7]", "random_blur[width=2.5,share=1]", 0.50, ("blur",)
    ),
    Remedy("noise", "coloured_noise", "coloured_noise[std=0.25]", "coloured_noise[std=0.25]", 0.60, ("noise",)),
    Remedy("veils", "veil[share=0.3]", "veil[depth=0.9,share=0.6]", "veil[depth=0.9,share=1]", 0.25, ("weather",)),
    Remedy("waves", "random_wave[share=0.3]", "random_wave[share=0.6]", "random_wave[share=1]", 0.55),
    Remedy(
        "chains of operations",
        "rand_augment[n=2,magnitude=9,spread=uniform]",
        "rand_augment[n=3,magnitude=15,spread=uniform]",
        "rand_augment[n=2,magnitude=15]",
        0.10,
    ),
)
USUAL = {remedy.name: remedy.usual for remedy in REMEDIES}
GENERAL = ("filters, colours and warps", "blur", "noise")
"""What every short fine-tuning has: together they helped most of what was measured, and more cost clean accuracy."""


LAST = ("waves", "noise")


@dataclass(frozen=True)
class Weakness:
    """What a kind of change costs now, as fractions of accuracy: measured on its augmentation, and by an audit."""

    remedy: str
    probed: float
    audited: float | None
    chosen: str | None

    @property
    def loss(self) -> float:
        """The larger of both."""
        return max(self.probed, self.audited or 0.0)

    @property
    def reason(self) -> str:
        """Why it was chosen, or not."""
        evidence = f"{100 * self.probed:.1f} points lost under it, {100 * USUAL[self.remedy]:.0f} are usual"
        if self.audited is not None:
            evidence += f", {100 * self.audited:.1f} under the worst corruption like it"
        if self.chosen is None:
            return f"left out: {evidence}"
        return f"{'part of every fine-tuning' if self.remedy in GENERAL else 'chosen'}: {evidence}"

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
        )


def weaknesses(
    network: nn.Module, data: ImageSet, numbers: Mapping[str, float], *, seed: int, size: int
) -> list[Weakness]:
    """Return what every kind of change costs a network on images for choosing, with an audit's numbers beside it."""
    clean, *probed = probe(network, data, [None, *(remedy.probe for remedy in REMEDIES)], seed=seed, size=size)
    made = []
    for remedy, accuracy in zip(REMEDIES, probed, strict=True):
        loss, audited = clean - accuracy, audited_loss(numbers, remedy.like)
        chosen = None
        if remedy.name in GENERAL or loss >= remedy.usual + PARTICULAR or (audited or 0.0) >= PARTICULAR_AUDITED:
            chosen = remedy.strong if loss >= remedy.usual + SEVERE else remedy.augment
        made.append(Weakness(remedy.name, loss, audited, chosen))
    return made


def worth_mending(found: Sequence[Weakness], numbers: Mapping[str, float]) -> bool:
    """Whether something particular is weak, or corruption costs a network that is not robust already enough."""
    if any(each.chosen is not None and each.remedy not in GENERAL for each in found):
        return True
    if any(each.probed >= USUAL[each.remedy] + PARTICULAR for each in found):
        return True
    lost = sum(each.probed for each in found if each.remedy in GENERAL)
    robust = lost < ROBUST * sum(USUAL[name] for name in GENERAL)
    return numbers.get("corruption_loss", 1.0) >= COSTLY and not robust


def policy(found: Sequence[Weakness]) -> str:
    """Return the augmentation of all that were chosen, one after the other, as the text form of a shift.

    Noise and waves come last, as what is blurred or veiled is no longer noise.
    """
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
