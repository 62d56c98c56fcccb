"""How long a run will take: a few steps of a copy of it, timed."""

from __future__ import annotations

import copy
import time
from contextlib import closing
from typing import NamedTuple

import torch
from torch import nn

from shiftproof.runs import Json
from shiftproof.training.feed import Feed
from shiftproof.training.loop import Loop

WARM, TIMED = 1, 2
"""Steps of a rehearsal: not counted, and counted."""
LONG, ROUND = 4.0, 1.0
"""Seconds that it goes on for on CUDA, in rounds of about so long: views are made for many steps at a time there, and
kernels looked for first, for every number of images. The last round counts."""


class TrainingPlan(NamedTuple):
    """What is about to run: how many steps of how many images, over how many epochs, and about how long."""

    steps: int
    batch: int
    epochs: int
    seconds: float

    def __str__(self) -> str:
        each = "epoch" if self.epochs == 1 else "epochs"
        return f"{self.steps:,} steps of {self.batch:,} images, {self.epochs:,} {each}"


def forecast(network: nn.Module, feed: Feed, *, sigma: float) -> TrainingPlan:
    """Time steps of a copy of the network; searches, validation and what a resumed run has done are not counted."""
    return TrainingPlan(
        feed.steps, feed.batch, feed.settings.epochs, feed.steps * step_seconds(network, feed, sigma=sigma)
    )


def step_seconds(network: nn.Module, feed: Feed, *, sigma: float) -> float:
    """Return the seconds of a step, by a copy of the network: nothing that is trained changes."""
    with closing(Loop(copy.deepcopy(network), feed, sigma=sigma)) as loop:
        return _timed(loop)


def _timed(loop: Loop) -> float:
    feed = loop.feed
    steps = min(WARM + TIMED, feed.steps)
    warm = min(WARM, steps - 1)
    if warm:
        _run(loop, warm)
    each = _run(loop, steps) / (steps - warm)
    if feed.device.type != "cuda" or feed.recipe.tuples is not None:  # whose searches may be due at a later step
        return each
    return _settled(loop, each)


def _settled(loop: Loop, each: float) -> float:
    """Go on in rounds, from what a step took at first, and return the seconds of a step in the last."""
    begun = time.perf_counter()
    while loop.step < loop.feed.steps and time.perf_counter() - begun < LONG:
        more = min(max(TIMED, int(ROUND / max(each, 1e-4))), loop.feed.steps - loop.step)
        each = _run(loop, loop.step + more) / more
    return each


def _run(loop: Loop, stop: int) -> float:
    """Go on to a step, and return the seconds that took."""
    begun = time.perf_counter()
    rows: list[dict[str, Json]] = []
    loop.run(stop, rows.append)
    if loop.device.type == "cuda":
        torch.cuda.synchronize(loop.device)
    return time.perf_counter() - begun
