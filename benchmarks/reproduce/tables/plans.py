"""Experiments that were not run, with their cost extrapolated from the runs that were, and the reason.

Minutes are wall time on one H200 with several scripts running in parallel, as for the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from benchmarks.reproduce.markdown import markdown
from benchmarks.reproduce.tables.files import Files


class Plan(NamedTuple):
    """An experiment: whose paper, what is done, its minutes by the figures of others, and why it was not done."""

    paper: str
    what: str
    minutes: Callable[[Files], float]
    why: str

    def told(self, files: Files) -> str:
        """Return what is done, with its cost."""
        return f"{self.what}: {_cost(self.minutes(files))}"


def table(files: Files, plans: Iterable[Plan]) -> str:
    """Return a table of experiments that were not run."""
    rows = [[plan.paper, plan.what, _cost(plan.minutes(files)), plan.why] for plan in plans]
    head = ["paper", "experiment", "estimated cost", "reason"]
    return markdown(head, rows, words=head)


def _cost(minutes: float) -> str:
    """Return minutes as a person reads them."""
    return f"about {minutes:.0f} min" if minutes < 100 else f"about {minutes / 60:.0f} h"


def times(factor: float, *names: str) -> Callable[[Files], float]:
    """Return so many times what some figures took, in minutes."""
    return lambda files: factor * sum(files[name]["seconds"] for name in names if name in files) / 60


def _mixed(tasks: Sequence[str], recipes: Sequence[str] = ("erm", "rda", "rsda", "esda")) -> list[str]:
    return [f"worst-case-{task}-{recipe}" for task in tasks for recipe in recipes]


def _samples_a_minute(files: Files) -> float:
    """Return the rate of certificates; six in ten images are certified and take all their samples."""
    found = files["certificates-equal-n"]
    return float(found["figures"]["samples"]) * 60 / float(found["seconds"])


TUNED, TUNED_TEXTS, TUNED_TEXTS_A_SECOND = 60, 5 * 4_800, 60
"""Networks to fine-tune, texts that each sees in five epochs, and texts a second: a quarter of what MiniLM encodes."""

TIME = "GPU time"
PLANS = {
    "imagenet": Plan(
        "Schneider",
        "all 50,000 images of ImageNet's validation set under 75 corruptions, two networks",
        times(50, "statistics-imagenet-resnet50", "statistics-imagenet-efficientnet_lite0"),
        "only 1,000 images available",
    ),
    "networks": Plan(
        "Sun",
        "ResNet-56 with Gaussian + JSD and FourierMix + HCR, three seeds each, lambda as published and tuned on "
        "hold-out images",
        times(2.8 * 3 * 2, "certificates-gaussian-jsd", "certificates-fouriermix-hcr"),
        TIME,
    ),
    "deep": Plan(
        "Sun",
        "C-bar with n = 10,000, 200 images, and 180 more clean images with n = 100,000, five networks",
        lambda files: (10 * 200 * 1e4 + 180 * 1e5) * 5 * 0.6 / _samples_a_minute(files),
        TIME,
    ),
    "cifar-f": Plan(
        "Sun",
        "the 192 sets of CIFAR-10-F with n = 10,000, 50 images each",
        lambda files: 192 * 50 * 1e4 * 5 * 0.6 / _samples_a_minute(files),
        TIME,
    ),
    "ablations": Plan(
        "Sun",
        "tables 4 to 9: other noise levels and recipe ablations (at least six trainings)",
        times(6, "certificates-fouriermix-hcr"),
        TIME,
    ),
    "cells": Plan(
        "Press",
        "the nine CCC cells at 200,000 images with every method including PeTTA; three seeds of medium at 1,000,000",
        times(2 + 3 * 10 / 9, "streams-cells"),
        TIME,
    ),
    "orders": Plan(
        "Press", "RDumb++, ASR and PeTTA along the ten orders of CIN-C", times(4.5 / 18, "streams-cells"), TIME
    ),
    "steps": Plan(
        "Press",
        "ResNet-50 on ImageNet along CCC-Medium for 10,000 steps, nine methods (each of 1,000 images 640 times)",
        times(640_000 * 9 / (31_000 * 18), "streams-imagenet"),
        TIME,
    ),
    "margins": Plan(
        "Press",
        "entropy margin E0 at the published rates",
        times(1, "streams-margins"),
        f"{TIME}; the tables on this page use slower rates",
    ),
    "pool": Plan(
        "Ng",
        "a pool of 200 CIFAR-10 networks trained on 50,000 images to at least 85%, bootstrap intervals of tau",
        times(200 / 72 * 50_000 / 20_000, "estimation-cifar"),
        TIME,
    ),
    "texts": Plan(
        "Ng",
        "200 text CNNs at all of the paper's widths and depths, others with label noise, others that see fewer texts",
        lambda files: 3 * 200 / 24 * float(files["estimation-text"]["figures"]["seconds"]["cnn"]) / 60,
        "CPU time (the cost is for one core); reviews with five classes are not available",
    ),
    "encoder": Plan(
        "Ng",
        "RoBERTa fine-tuned in place of heads on a frozen encoder",
        lambda _: TUNED * TUNED_TEXTS / TUNED_TEXTS_A_SECOND / 60,
        "no weights of RoBERTa at hand (the cost is of MiniLM in its place, 60 networks, one CPU core)",
    ),
    "pairs": Plan(
        "Ng",
        "table 2d on the ten genres of MNLI: heads on a frozen encoder",
        times(2, "estimation-pairs"),
        "MNLI is not available (the cost is for one CPU core)",
    ),
    "runs": Plan(
        "Volpi",
        "two more runs of every MNIST and CIFAR-10 row for standard deviations, and the rows SAE and ADA",
        times(2 * 6 / 4, *_mixed(("mnist", "cifar"))),
        TIME,
    ),
    "epochs": Plan(
        "Volpi",
        "CIFAR-10 with all images for 200 epochs, one chain per batch, ERM and ESDA",
        times(50 / 15 * 200 / 20, "worst-case-cifar-erm", "worst-case-cifar-esda"),
        TIME,
    ),
    "camvid": Plan(
        "Volpi",
        "CamVid with all 367 images for 300 epochs, three runs",
        times(3 * 367 / 200 * 300 / 60, *_mixed(("camvid",))),
        TIME,
    ),
}
"""Name -> experiment, by paper: those first whose tables say most."""
