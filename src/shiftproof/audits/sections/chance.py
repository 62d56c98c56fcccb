"""Accuracy beside chance: what a model must beat before anything is said of how well it bears up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from shiftproof.audits.sections.measuring import accuracy
from shiftproof.measures import Accuracy
from shiftproof.reports.view import Level
from shiftproof.runs import Row

SKILL = 0.5
SLIGHT = 0.2
"""The way from answers without looking to being right always, of which a model that has hardly learnt goes less."""
BEYOND_CHANCE = 1.645
"""Standard errors by which accuracy is above that of answers without looking: one in twenty of those is further up."""
LEVEL_RULE = (
    "Good: interval from {good:.1f}% up, halfway from {baseline:.1f}% (always answering {common}, the most frequent "
    "class) to 100%. Bad: {baseline:.1f}% or less."
)


@dataclass(frozen=True)
class Standing:
    """A model's accuracy on clean inputs, beside the share of the most frequent class and what answers get by chance.

    `baseline` is that share: what one answer to everything gets, and no guessing gets more. `expected` is how often
    answers that are given as often as these, without looking, are right (as in Cohen's kappa), and `spread` the
    standard error of that.
    """

    accuracy: Accuracy
    common: str
    baseline: float
    expected: float
    spread: float
    answers: Mapping[str, int]

    @classmethod
    def of(cls, found: Sequence[Row]) -> Standing | None:
        """Read rows of the section clean; None where they do not hold two classes or more."""
        overall = accuracy(found)
        shares = Counter[str]()
        answers = Counter[str]()
        for row in found:
            for name, (_, images) in cast(Mapping[str, tuple[int, int]], row.get("classes", {})).items():
                shares[name] += images
            answers.update(cast(Mapping[str, int], row.get("answers", {})))
        if overall is None or len(shares) < 2:
            return None
        (common, most), *_ = shares.most_common(1)
        images = overall.images
        agree = right_by_chance(list(shares.values()), [answers.get(name, 0) for name in shares]) / images
        return cls(overall, common, most / images, agree, _spread(shares, answers), answers)

    @property
    def only(self) -> str | None:
        """The one answer it gives to everything, if it does."""
        return next(iter(self.answers)) if len(self.answers) == 1 else None

    @property
    def blind(self) -> bool:
        """Whether it is right no more often than answers without looking."""
        return self.only is not None or self.accuracy.value <= self.expected

    @property
    def guessing(self) -> bool:
        """Whether it may answer without looking: it is not right more often than that, or not beyond chance."""
        return self.blind or self.accuracy.value <= self.expected + BEYOND_CHANCE * self.spread

    @property
    def below(self) -> bool:
        """Whether it is right no more often than one answer to everything."""
        return self.blind or self.accuracy.value <= self.baseline

    @property
    def poor(self) -> bool:
        """Whether it is surely nearer to one answer to everything than to being right always."""
        return self.accuracy.interval()[1] < self.baseline + SKILL * (1 - self.baseline)

    @property
    def slight(self) -> bool:
        """Whether it is surely hardly above answers without looking."""
        return self.accuracy.interval()[1] < self.expected + SLIGHT * (1 - self.expected)

    @property
    def unproven(self) -> bool:
        """Whether so few inputs do not show that it is above chance."""
        return self.accuracy.interval()[0] <= self.baseline

    @property
    def level(self) -> Level:
        """Rate the accuracy, by `rule`."""
        above = self.accuracy.interval()[0] - self.baseline
        return "bad" if self.below else "good" if above >= SKILL * (1 - self.baseline) else "watch"

    @property
    def rule(self) -> str:
        """What the level means."""
        return LEVEL_RULE.format(
            common=self.common,
            baseline=100 * self.baseline,
            good=100 * (self.baseline + SKILL * (1 - self.baseline)),
        )


def right_by_chance(inputs: Sequence[int], answers: Sequence[int]) -> float:
    """Return how many answers are right, on average, where they are given without looking.

    Of each class, how many inputs it has and how often it is the answer.

    >>> right_by_chance([90, 10], [100, 0])
    90.0
    """
    return sum(one * other for one, other in zip(inputs, answers, strict=True)) / sum(inputs)


def _spread(shares: Mapping[str, int], answers: Mapping[str, int]) -> float:
    """Return the standard deviation of the share that is right where these answers are dealt to the labels at random.

    Right answers of one class are hypergeometric, and those of two classes belong together.
    """
    images = sum(shares.values())
    if images < 2:
        return 0.0
    pairs = [(count, answers.get(name, 0)) for name, count in shares.items()]
    own = sum(one * other * (images - one) * (images - other) for one, other in pairs)
    joint = sum(one * other for one, other in pairs) ** 2 - sum((one * other) ** 2 for one, other in pairs)
    return math.sqrt((own + joint) / (images - 1)) / images**2
