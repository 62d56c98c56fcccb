"""What the certified section says of its numbers: verdicts, notes and advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from shiftproof.audits.sections.base import CLEAN
from shiftproof.audits.sections.wording import interval, listed, percent
from shiftproof.certificates.radius import round_down
from shiftproof.measures import Accuracy, certified_accuracy
from shiftproof.reports.view import Action, Sentence
from shiftproof.runs import Row

if TYPE_CHECKING:
    from shiftproof.audits.sections.certified import CertifiedPart

NEAR, FAR = 0.03, 0.25
"""The two distances that are told in words."""


def best_noise(clean: Mapping[float, Sequence[float]], distance: float) -> tuple[float, Accuracy]:
    """Return the noise under which most clean images are certified at a distance, the least of such, and how many."""
    values = {sigma: certified_accuracy(some, distance) for sigma, some in clean.items()}
    sigma = max(values, key=lambda one: (values[one].value, -one))
    return sigma, values[sigma]


def certified_verdict(
    radii: Mapping[tuple[str, float], Sequence[float]],
    at: Mapping[float, tuple[float, Accuracy]],
    names: Mapping[str, str],
    among: int,
) -> str:
    """Say how many are certified near and far, by which noise of so many: clean, and under shifts of as many images."""
    said = []
    for distance in (NEAR, FAR):
        sigma, value = at[distance]
        others = [
            f"{percent(certified_accuracy(some, distance).value)} under {names[label]}"
            for (label, noise), some in radii.items()
            if noise == sigma and label != CLEAN and len(some) == value.images
        ]
        clean = f"{percent(value.value)} ({interval(value, among)}) on clean images"
        said.append(f"{listed([clean, *others])} at an L2 radius of {distance:g} (noise {sigma:g})")
    return f"Certified accuracy of the smoothed model is {'; '.join(said)}."


def vote_verdict(found: Sequence[tuple[CertifiedPart, Row]], sigma: float) -> tuple[Sentence, ...]:
    """Say how often the smoothed model and the model itself are right on the clean images, where that was counted."""
    some = [row for task, row in found if task.shift is None and task.sigma == sigma and "voted_right" in row]
    if not some:
        return ()
    images, voted, plain = (
        sum(cast(int, row[name]) for row in some) for name in ("images", "voted_right", "plain_right")
    )
    said = (
        f"On these clean images the accuracy of the smoothed model (noise {sigma:g}) is {percent(voted / images)}; "
        f"that of the model itself, which has no such guarantee, is {percent(plain / images)}."
    )
    return (Sentence(said),)


def certified_action(here: Accuracy, behind: Sequence[tuple[CertifiedPart, Row]]) -> Action:
    """Say how to certify more: by training with noise, and without, where a denoiser that fits certifies more."""
    already = certified_accuracy(radii_of(behind), FAR) if behind else here
    without = (
        f" Without training: with the denoiser {behind[0][1]['denoiser']!r} it is {percent(already.value)} "
        f"({interval(already)}, {already.images} images; Smoothed(model, {behind[0][0].sigma:g}, denoiser=...))."
        if already.value > here.value
        else ""
    )
    return Action(
        "Train with noise, to certify more",
        f"Certified accuracy at an L2 radius of {FAR:g} is {percent(here.value)}. Radii grow with the noise that a "
        "network tolerates, and training with noise makes it tolerate more, at the cost of some clean accuracy."
        f"{without}",
        "shiftproof train --data train-images/ --model model.py:build --recipe gaussian --sigma 0.25 --out robust/",
    )


def certified_notes(found: Sequence[tuple[CertifiedPart, Row]], best: float, largest: float) -> tuple[str, ...]:
    """Say what certificates mean, how they were made, and how far: by the best noise, and by the largest."""
    n, alpha = found[0][0].n, found[0][0].alpha
    reach = replace(found[0][0], sigma=largest).reach
    samples = sum(cast(int, row["samples"]) for _, row in found)
    notes = [
        "A certificate says that the model smoothed with this noise gives the same answer to every image within the "
        "distance. It says nothing of the model without noise, of larger changes, or of whether the answer is right.",
        f"Rule sequential, at most {n:,} samples an image, each certificate wrong with probability at most {alpha:g}; "
        f"{samples:,} samples in all. `shiftproof certify --sigma {best:g}` certifies all images with 100,000.",
        f"With so many samples and noise {largest:g} the largest radius that can be certified is "
        f"{round_down(reach, 3):g}: that nothing is certified beyond says nothing about the model.",
    ]
    if best < largest:
        notes.append(
            f"Under noise of {largest:g}, usual for certified training, less is certified than at {best:g}: the "
            "model was not trained with such noise, and its certificates are small."
        )
    return tuple(notes)


def denoised_verdict(found: Sequence[tuple[CertifiedPart, Row]]) -> tuple[Sentence, ...]:
    """Say what is certified behind a denoiser, where one fits."""
    if not found:
        return ()
    (task, row), share = found[0], certified_accuracy(radii_of(found), FAR)
    return (
        Sentence(
            f"With the packaged denoiser {row['denoiser']!r} before the model (denoised smoothing, noise "
            f"{task.sigma:g}, no retraining), certified accuracy on clean images is {percent(share.value)} "
            f"({interval(share)}) at a radius of {FAR:g}."
        ),
    )


def radii_of(found: Sequence[tuple[CertifiedPart, Row]]) -> list[float]:
    """Return the radii of all parts."""
    return [radius for _, row in found for radius in cast("list[float]", row["radii"])]
