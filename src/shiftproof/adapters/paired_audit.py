"""Which of several configurations to serve, by labels asked for where they disagree: switch on certified gains alone.

It knows predicted classes and labels, and nothing of models: a log of predictions is audited as a live stream is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from shiftproof.errors import DataError
from shiftproof.keyed import Keyed
from shiftproof.measures.betting import bet_again, log_capital, new_capital, paired_upper

LEVELS = 13
"""Disagreements are labelled with the share of labels times 1, 2^(1/2), 2, ..., 64, by how rare they are."""
KEEP = 0.99
"""How much of the running share of disagreements an image keeps."""
_NUMBERS = ("serving", "images", "labels", "since", "disagreement")
_LISTS = ("switches", "pending")
_ARRAYS = ("capital", "worse", "better")
Classes = NDArray[np.int64]


class Switch(NamedTuple):
    """From which configuration to which, after how many images, and by how many labels since the switch before."""

    image: int
    old: int
    new: int
    labels: int


class Question(NamedTuple):
    """An image whose label is asked for: its position, what every configuration answered, which served, how likely."""

    position: int
    answers: tuple[int, ...]
    served: int
    level: int


@dataclass
class PairedAudit:
    """Serves configuration 0, the source, until another is shown to make fewer errors, and so on from that one.

    A coin is flipped for every image on which configurations disagree, keyed by (seed, position) and independent of
    all else; where they agree, no label could tell them apart. `label_share` is the share of *all* images that are
    labelled at most, in the mean: the coin falls the more often, the rarer disagreements have been. Every configuration
    is tested against the one that serves by the labels since the last switch (`measures.betting.bet_again`); the first
    whose evidence reaches 1 / alpha, shared among them, serves from the next image on.

    Nothing is assumed but that the coins are independent of the images, of the labels and of the models. With
    probability 1 - alpha within `horizon` labels after a switch, none of the others is taken that has not made fewer
    errors than the one that served, since some time after the switch, errors counted with the probability of a label.

    Args:
        configurations: Number of configurations, the source included.
        label_share: The largest share of all images that are labelled, in the mean.
        alpha: The probability of a wrong switch.
        horizon: Labels after a switch that `alpha` is about.
        seed: The seed of the coins.

    >>> audit = PairedAudit(2, label_share=0.1)
    >>> audit.serving
    0
    """

    configurations: int
    label_share: float = 0.02
    alpha: float = 0.05
    horizon: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        self.serving = self.images = self.labels = self.since = 0
        self.disagreement = 1.0
        self.capital = new_capital(self.configurations)
        self.worse, self.better = np.zeros(LEVELS, int), np.zeros(LEVELS, int)
        self.switches: list[Switch] = []
        self.pending: list[Question] = []
        self.answered: dict[int, int] = {}

    def ask(self, answers: ArrayLike) -> tuple[int, ...]:
        """Show the classes that every configuration predicts, [configurations, N]; return whose labels are wanted.

        Positions count the images of the stream from 0.
        """
        table: Classes = np.asarray(answers, np.int64)
        count = table.shape[1]
        split = (table != table[0]).any(0)
        level = min(int(-2 * math.log2(max(self.disagreement, 1e-9))), LEVELS - 1)
        coins = Keyed(self.seed, torch.arange(self.images, self.images + count)).fork("audit").uniform().numpy()
        asked = np.flatnonzero(split & (coins < self.share(level)))
        new = [Question(self.images + int(at), tuple(table[:, at].tolist()), self.serving, level) for at in asked]
        self.pending += new
        self.images += count
        kept = KEEP**count
        self.disagreement = kept * self.disagreement + (1 - kept) * float(split.mean())
        return tuple(question.position for question in new)

    @property
    def wanted(self) -> tuple[int, ...]:
        """The positions whose labels were asked for and have not come, the oldest first."""
        return tuple(question.position for question in self.pending if question.position not in self.answered)

    def share(self, level: int) -> float:
        """Return the probability with which a disagreement is labelled."""
        return float(min(1.0, self.label_share * 2 ** (level / 2)))

    def tell(self, labels: Mapping[int, int]) -> None:
        """Take labels of images that were asked for, in any order, position -> class.

        They count in the order of the stream: those that come early wait for those before them, because the labels that
        come quickly are not a fair sample.
        """
        known = {question.position for question in self.pending}
        for position, label in labels.items():
            if position not in known:
                raise DataError(
                    "This label was not requested.",
                    expected="labels of the positions in `wanted`: only those are a fair sample",
                    got=f"position {position}",
                )
            self.answered[position] = int(label)
        while self.pending and self.pending[0].position in self.answered:
            question = self.pending.pop(0)
            self._count(question, self.answered.pop(question.position))

    def _count(self, question: Question, label: int) -> None:
        wrong = np.array(question.answers) != label
        served, source = bool(wrong[question.served]), bool(wrong[0])
        self.worse[question.level] += served and not source
        self.better[question.level] += source and not served
        self.labels += 1
        outcomes = float(wrong[self.serving]) - wrong.astype(float)
        self.capital = bet_again(self.capital, outcomes, self.horizon)
        evidence = self.evidence()
        best = int(evidence.argmax())
        if evidence[best] >= math.log((self.configurations - 1) / self.alpha):
            self.serve(best)

    def serve(self, configuration: int) -> None:
        """Serve another configuration from the next image on, and test all anew against it."""
        self.switches.append(Switch(self.images, self.serving, configuration, self.labels - self.since))
        self.serving, self.since = configuration, self.labels
        self.capital = new_capital(self.configurations)

    def evidence(self) -> NDArray[np.float64]:
        """Return the logarithm of the evidence that each is better than the one that serves, [configurations]."""
        found = log_capital(np.log(self.capital))
        found[self.serving] = -math.inf
        return found

    def gain(self) -> tuple[float, float]:
        """Return bounds on what was won in accuracy over the source so far, by all that was served.

        Each bound holds at all times together with probability 1 - alpha / 2, and no assumption is needed for them.
        """
        seen = self.pending[0].position if self.pending else self.images
        shares = [self.share(level) for level in range(LEVELS)]
        high = paired_upper(self.better, self.worse, seen, shares, self.alpha / 2)
        return -paired_upper(self.worse, self.better, seen, shares, self.alpha / 2), high

    def to_json(self) -> str:
        """Return everything that changes."""
        plain = {name: getattr(self, name) for name in (*_NUMBERS, *_LISTS)}
        arrays = {name: getattr(self, name).tolist() for name in _ARRAYS}
        return json.dumps(plain | arrays | {"answered": list(self.answered.items())})

    def set_json(self, text: str) -> None:
        """Take over what `to_json` returned."""
        state = json.loads(text)
        for name in _NUMBERS:
            setattr(self, name, state[name])
        for name in _ARRAYS:
            setattr(self, name, np.array(state[name]))
        self.answered = dict(state["answered"])
        self.switches = [Switch(*each) for each in state["switches"]]
        self.pending = [Question(at, tuple(answers), served, level) for at, answers, served, level in state["pending"]]
