"""What a network is weak to, and what to train it on: an augmentation for every kind of weakness, with its reason.

None of them is a corruption that an audit tests. A remedy is chosen by two kinds of evidence: what the network loses
under the augmentation itself, on images that are kept for choosing, and what an audit found of the corruptions that
are like it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
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
PARTICULAR, PARTICULAR_VEILS, PARTICULAR_OF_MANY, SEVERE = 0.15, 0.1, 0.2, 0.25
"""From so much more than usual under its own augmentation on, a weakness gets what not every fine-tuning has, and a
stronger augmentation. Of thirty networks with planted weaknesses those that were weak to fog lost 11 to 22 points more
under veils than is usual, the others 9 at most. The worst of many aims is worse by chance."""
PARTICULAR_AUDITED = 0.40
"""From this loss under a corruption of an audit on, a weakness gets what not every fine-tuning has."""
ROBUST = 0.5
"""A network that loses less than this share of what is usual, under what every fine-tuning has, is robust already."""


@dataclass(frozen=True)
class Aim:
    """Something that a network may be weak to, and an augmentation against it: usual, stronger, and what is probed.

    `usual` is what networks that were trained without augmentation lose under the probe, as a fraction of accuracy: the
    demo's ResNet-20 and a ResNet-56, on CIFAR-10. `words` tell it from other aims of its remedy.
    """

    augment: str
    strong: str
    probe: str
    usual: float
    words: str = ""


@dataclass(frozen=True)
class Remedy:
    """Augmentations against a kind of weakness, of which that is taken whose aim costs most beyond what is usual.

    `like` are the categories of corruptions that are evidence for it. From `particular` more than usual on it is
    chosen.
    """

    name: str
    aims: tuple[Aim, ...]
    like: tuple[str, ...] = ()
    particular: float = PARTICULAR


def _wave(down: float, across: float) -> Aim:
    """Return the aim at waves around a frequency, in periods a pixel."""
    middle = f"down={down:.2g},across={across:.2g}"
    usual = WAVES[min(abs(down), abs(across)), max(abs(down), abs(across))]
    return Aim(
        f"random_wave[{middle},spread=0.1,height=0.2,share=0.3,grey=0.5]",
        f"random_wave[{middle},spread=0.1,height=0.2,share=0.5,grey=0.5]",
        f"random_wave[{middle},spread=0.08,height=0.12,least=1,share=1,grey=1]",
        usual,
        f"around {down:.2g} periods a pixel down and {across:.2g} across",
    )


def _cast(words: str, red: float, green: float, blue: float, usual: float) -> Aim:
    """Return the aim at a cast of a colour: what is trained on lies around half of it."""

    def more(part: float) -> str:
        return f"red={part * CAST * red:g},green={part * CAST * green:g},blue={part * CAST * blue:g}"

    return Aim(
        f"colour_cast[share=0.3,{more(0.5)}]",
        f"colour_cast[share=0.5,{more(0.5)}]",
        f"colour_cast[gain=0,bias=0,turn=0,share=1,{more(1.0)}]",
        usual,
        words,
    )


CAST = 0.24
"""How much of a colour the cast adds that is probed; half of it is taken from the others."""
LOW, MIDDLE, HIGH = 1 / 6, 1 / 3, 1 / 2
WAVES = {
    (0, LOW): 0.22,
    (0, MIDDLE): 0.46,
    (0, HIGH): 0.68,
    (LOW, LOW): 0.47,
    (LOW, MIDDLE): 0.67,
    (LOW, HIGH): 0.75,
    (MIDDLE, MIDDLE): 0.75,
    (MIDDLE, HIGH): 0.80,
    (HIGH, HIGH): 0.76,
}
"""What is usual under a wave of an amplitude of 0.12, by the lower and the higher of its two frequencies."""
REMEDIES = (
    Remedy(
        "filters, colours and warps",
        (Aim("prime", "prime[curve=0.3]", "prime[taps=0.4,curve=0.3,pixels=2]", 0.08),),
        ("digital",),
    ),
    Remedy(
        "blur",
        (Aim("random_blur", "random_blur[width=2.5,share=0.7]", "random_blur[width=2.5,share=1]", 0.50),),
        ("blur",),
    ),
    Remedy("noise", (Aim("coloured_noise", "coloured_noise[std=0.25]", "coloured_noise[std=0.25]", 0.60),), ("noise",)),
    Remedy(
        "veils",
        (Aim("veil[share=0.3]", "veil[depth=0.9,share=0.6]", "veil[depth=0.9,share=1]", 0.25),),
        ("weather",),
        PARTICULAR_VEILS,
    ),
    Remedy(
        "waves",
        (
            Aim("random_wave[share=0.3]", "random_wave[share=0.6]", "random_wave[share=1]", 0.55, "of all frequencies"),
            *(_wave(0, across) for across in (LOW, MIDDLE, HIGH)),
            *(_wave(down, across) for down in (LOW, MIDDLE) for across in (-MIDDLE, -LOW, 0, LOW, MIDDLE, HIGH)),
            *(_wave(HIGH, across) for across in (0, LOW, MIDDLE, HIGH)),
        ),
        particular=PARTICULAR_OF_MANY,
    ),
    Remedy(
        "casts of colour",
        (
            Aim("colour_cast[share=0.3]", "colour_cast[share=0.5]", "colour_cast[share=1]", 0.11, "of all colours"),
            _cast("red", 1, -0.5, -0.5, 0.10),
            _cast("green", -0.5, 1, -0.5, 0.40),
            _cast("blue", -0.5, -0.5, 1, 0.13),
            _cast("cyan", -1, 0.5, 0.5, 0.10),
            _cast("magenta", 0.5, -1, 0.5, 0.14),
            _cast("yellow", 0.5, 0.5, -1, 0.18),
        ),
        particular=PARTICULAR_OF_MANY,
    ),
    Remedy(
        "chains of operations",
        (
            Aim(
                "rand_augment[n=2,magnitude=9,spread=uniform]",
                "rand_augment[n=3,magnitude=15,spread=uniform]",
                "rand_augment[n=2,magnitude=15]",
                0.10,
            ),
        ),
    ),
)
GENERAL = ("filters, colours and warps", "blur", "noise")
"""What every short fine-tuning has: together they helped most of what was measured, and more cost clean accuracy."""

LAST = ("waves", "noise")
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
        """Whether it was chosen, and is not what every fine-tuning has."""
        return self.chosen is not None and self.remedy not in GENERAL

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
    general = [each for each in found if each.remedy in GENERAL]
    if any(each.particular for each in found) or any(each.probed >= each.usual + PARTICULAR for each in general):
        return True
    robust = sum(each.probed for each in general) < ROBUST * sum(each.usual for each in general)
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
