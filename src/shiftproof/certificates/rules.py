"""When to stop counting, and what to claim: small decisions on numbers, each with a stated error probability.

A rule is asked after each of its `looks`, cumulative numbers of samples, with the hits of many images so far. Its claim
is a radius, 0 for none. Whatever the true probability p of the class, the radius claimed is larger than p certifies
(`laws`; in L2, `sigma * ppf(p)`) with probability at most alpha, over all looks together. Abstaining claims nothing and
costs no error probability, so every rule gives up on an image as soon as it is plain that nothing will come of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftproof.certificates.laws import check_sigma, law_of
from shiftproof.certificates.radius import FloatArray, log_evidence, round_down
from shiftproof.errors import ConfigurationError
from shiftproof.measures.intervals import lower_bound, upper_bound
from shiftproof.registry import unknown

RuleName: TypeAlias = Literal["fixed", "sequential", "radius"]
Counts: TypeAlias = NDArray[np.int64]

SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)
"""When to look, as shares of n: after 1,000, 3,000, 10,000, 30,000 and 100,000 of 100,000 samples."""
FIRST_LOOK = 100
"""Fewer samples than this say too little to stop at."""
TOLERANCE = 0.15
"""What n more samples must promise to add to a radius, in units of sigma, for some of them to be drawn."""


LIMITS = {"rotation": 10.0, "scaling": 0.1}
"""The range of a grid where none is asked for: degrees, and a share."""
WIDEST = {"rotation": 180.0, "scaling": 0.9}


class Judgement(NamedTuple):
    """What a rule says of several images after a look, [N] each: the radius it would claim, and whether to stop."""

    radius: FloatArray
    done: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """A sampling rule: noise `sigma`, at most `n` samples per image, error probability `alpha`.

    `against` determines the noise and how a probability maps to a radius (`laws`).

    Args:
        sigma: Standard deviation of the noise.
        n: Largest number of samples per image.
        alpha: Largest probability that the certificate of an image is wrong.
        against: `l2`, or the transformation whose parameter gets the noise.
    """

    name: ClassVar[str]
    sigma: float
    n: int = 100_000
    alpha: float = 0.001
    against: str = "l2"

    def __post_init__(self) -> None:
        check_sigma(self.sigma, self.against)
        check_numbers(self.n, self.alpha)

    def radius(self, bound: ArrayLike) -> FloatArray:
        """Return the radius that a lower bound on the probability certifies; 0 if none."""
        return law_of(self.against).reach(bound, self.sigma)

    @property
    @abstractmethod
    def looks(self) -> tuple[int, ...]:
        """The numbers of samples after which to judge, rising to n."""

    @property
    def reach(self) -> float:
        """The largest radius it can certify, reached if all samples agree."""
        last = len(self.looks) - 1
        return float(self.judge(last, np.array([self.looks[last]])).radius[0])

    @abstractmethod
    def judge(self, look: int, hits: Counts) -> Judgement:
        """Judge images by their hits, [N], out of `looks[look]` samples each."""

    def facts(self) -> Mapping[str, float | int | str]:
        """Return the settings of the rule, for certificate files."""
        return {"rule": self.name, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Fixed(Rule):
    """Draw all n samples and compute one Clopper-Pearson bound, as in Cohen et al. 2019.

    With `futility`, images whose class is plainly not the majority stop early: an upper bound on p under one half, at
    confidence 1 - alpha, at any look. Without it every image takes n samples and results are those of the paper.

    Args:
        futility: Whether to stop early on images that cannot be certified.

    >>> rule = Fixed(sigma=0.25, n=1000)
    >>> round(rule.reach, 3)  # no radius can be larger, whatever the model
    0.616
    """

    name: ClassVar[str] = "fixed"
    futility: bool = True

    @property
    def looks(self) -> tuple[int, ...]:
        """Shares of n where giving up is considered, and n."""
        return looks_of(self.n) if self.futility else (self.n,)

    def judge(self, look: int, hits: Counts) -> Judgement:
        """Give up early or claim at the end."""
        n = self.looks[look]
        if n == self.n:
            return Judgement(self.radius(lower_bound(hits, n, self.alpha)), np.ones(len(hits), bool))
        return Judgement(np.zeros(len(hits)), upper_bound(hits, n, self.alpha) < 0.5)


@dataclass(frozen=True, kw_only=True)
class Sequential(Rule):
    """Check the bound up to five times, with alpha split among them; stop when more samples would gain little.

    At every look the Clopper-Pearson bound holds with probability 1 - alpha / 5, so all of them do with 1 - alpha, and
    where to stop may depend on them. What a radius would grow by until a later look is reckoned at the share of hits so
    far. An image goes on while some later look promises more than the `tolerance` (in units of sigma) times the share
    of n that it takes to get there: so samples go where they add most to the average radius.

    Args:
        tolerance: Gain in radius, in units of sigma, below which sampling stops.

    >>> round(Sequential(sigma=0.25, n=100_000).reach, 2)  # no radius can be larger, whatever the model
    0.94
    """

    name: ClassVar[str] = "sequential"
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.tolerance < np.inf:
            raise ConfigurationError(
                "The tolerance must not be negative.",
                expected="0 or more, in units of sigma",
                got=f"{self.tolerance:g}",
            )

    @cached_property
    def looks(self) -> tuple[int, ...]:
        """Shares of n."""
        return looks_of(self.n)

    @property
    def alpha_per_look(self) -> float:
        """The error probability of each look's bound."""
        return self.alpha / len(self.looks)

    def judge(self, look: int, hits: Counts) -> Judgement:
        """Claim this look's bound; stop at the last look, in vain, or where little is to be gained."""
        n = self.looks[look]
        reached = self._shown(hits, n)
        if n == self.n:
            return Judgement(reached, np.ones(len(hits), bool))
        futile = upper_bound(hits, n, self.alpha_per_look) < 0.5
        hardly_grows = np.ones(len(hits), bool)
        for later in self.looks[look + 1 :]:
            gain = self._shown(hits / n * later, later) - reached
            hardly_grows &= gain < self.tolerance * self.sigma * (later - n) / self.n
        return Judgement(reached, futile | hardly_grows)

    def _shown(self, hits: Counts | FloatArray, n: int) -> FloatArray:
        """Return the radius that so many hits show at one look."""
        return self.radius(lower_bound(hits, n, self.alpha_per_look))


@dataclass(frozen=True, kw_only=True)
class AtLeast(Rule):
    """Test whether the radius is at least `asked`; sequential, with a few hundred samples for most images.

    The claim is the radius asked, made when the evidence (`log_evidence`) for the p it needs exceeds 1 / alpha. It may
    be looked at any time, and is whenever there are a quarter more samples. An image is given up when an upper bound on
    its p, at confidence 1 - alpha, falls below what is needed, or after n samples.

    Args:
        asked: The radius to test for.

    >>> AtLeast(asked=0.25, sigma=0.25).n
    100000
    """

    name: ClassVar[str] = "radius"
    asked: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.asked < np.inf:
            raise ConfigurationError(
                "The radius to test for must be positive.", expected="radius= a distance above 0", got=f"{self.asked:g}"
            )
        if self.p >= 1 or log_evidence(self.n, self.n, self.p) < -np.log(self.alpha):
            raise ConfigurationError(
                f"A radius of {self.asked:g} cannot be certified with {self.n:,} samples, even if all agree.",
                expected=f"a radius of at most {self._largest():g} at sigma {self.sigma:g}",
                fix="ask for a smaller radius, or take more samples or a larger sigma",
            )

    @cached_property
    def p(self) -> float:
        """The probability that the asked radius needs."""
        return float(law_of(self.against).needs(self.asked, self.sigma))

    @cached_property
    def looks(self) -> tuple[int, ...]:
        """After 50, 62, 77, ... samples, each look a quarter later than the last, up to n."""
        looks = [min(50, self.n)]
        while looks[-1] < self.n:
            looks.append(min(self.n, looks[-1] + max(1, looks[-1] // 4)))
        return tuple(looks)

    def judge(self, look: int, hits: Counts) -> Judgement:
        """Claim what is asked where it is shown; stop there, in vain, or at the end."""
        n = self.looks[look]
        shown = log_evidence(hits, n, self.p) >= -np.log(self.alpha)
        futile = upper_bound(hits, n, self.alpha) < self.p
        return Judgement(np.where(shown, self.asked, 0.0), shown | futile | (n == self.n))

    def _largest(self) -> float:
        """Return a radius that n samples can show, rounded down."""
        low, high = 0.5, 1.0
        while high - low > 1e-12 and high - low > 1e-4 * (1 - low):
            middle = (low + high) / 2
            shows = log_evidence(self.n, self.n, middle) >= -np.log(self.alpha)
            low, high = (middle, high) if shows else (low, middle)
        return round_down(float(self.radius(low)), 3)


@dataclass(frozen=True, kw_only=True)
class Grid(Rule):
    """Points from the middle of a range outwards, each with an equal share of alpha, until one fails or all hold.

    `limit` is the range to cover; with `whole`, nothing less is claimed. A point is tested by the rule radius, or,
    where `fixed`, by n samples and one bound.
    """

    name: ClassVar[str] = "grid"
    limit: float
    whole: bool = False
    fixed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.limit <= WIDEST[self.against]:
            raise ConfigurationError(
                f"Invalid range {self.limit:g}.",
                expected=f"radius= above 0 and up to {WIDEST[self.against]:g} for {self.against}",
            )

    @property
    def looks(self) -> tuple[int, ...]:
        """Those of the rule at a point."""
        return (self.n,)

    @property
    def reach(self) -> float:
        """The whole range."""
        return self.limit

    def judge(self, look: int, hits: Counts) -> Judgement:
        """Points are judged by `at_point`; this judges nothing."""
        return Judgement(np.zeros(len(hits)), np.ones(len(hits), bool))

    def at_point(self, distance: float, points: int) -> Rule | None:
        """Return the rule that tests a point for a distance, one of so many; None where n samples cannot show it."""
        alpha = self.alpha / points
        if alpha ** (1 / self.n) <= 0.5:
            return None
        if self.fixed:
            return Fixed(sigma=self.sigma, n=self.n, alpha=alpha)
        try:
            return AtLeast(sigma=self.sigma, n=self.n, alpha=alpha, asked=distance)
        except ConfigurationError:
            return None


def make_rule(
    name: str,
    *,
    sigma: float,
    n: int = 100_000,
    alpha: float = 0.001,
    radius: float | None = None,
    tolerance: float = TOLERANCE,
    futility: bool = True,
    against: str = "l2",
) -> Rule:
    """Return a sampling rule by name.

    Args:
        name: `fixed`, `sequential` or `radius`.
        sigma: Standard deviation of the noise.
        n: Largest number of samples per image.
        alpha: Largest probability that the certificate of an image is wrong.
        radius: The radius to test for with the rule `radius`; for rotation and scaling, the range that the grid covers.
        tolerance: With the rule sequential, the gain in radius below which sampling stops.
        futility: With the rule fixed, whether to stop early on images that cannot be certified.
        against: `l2`, or the transformation whose parameter gets the noise.
    """
    if against in LIMITS and name in RULES:
        return Grid(
            sigma=sigma,
            n=n,
            alpha=alpha,
            against=against,
            limit=LIMITS[against] if radius is None else radius,
            whole=name == "radius",
            fixed=name == "fixed",
        )
    if (radius is not None) != (name == "radius") and name in RULES:
        raise ConfigurationError(
            "radius= is for the rule radius, which tests whether that radius is reached.",
            got=f"rule={name!r} {'without a radius' if radius is None else f'and radius={radius:g}'}",
            fix="rule='radius', radius=0.25; the other rules find how large the radius is",
        )
    match name:
        case "fixed":
            return Fixed(sigma=sigma, n=n, alpha=alpha, against=against, futility=futility)
        case "sequential":
            return Sequential(sigma=sigma, n=n, alpha=alpha, against=against, tolerance=tolerance)
        case "radius":
            return AtLeast(asked=radius or 0.0, sigma=sigma, n=n, alpha=alpha, against=against)
        case _:
            raise unknown("rule", name, RULES)


def rule_of(facts: Mapping[str, float | int | str]) -> Rule:
    """Return the rule that a certificate tells of, by its `facts`."""
    kinds: dict[str, type[Rule]] = {kind.name: kind for kind in (Fixed, Sequential, AtLeast, Grid)}
    options: dict[str, Any] = {name: value for name, value in facts.items() if name != "rule"}
    return kinds[str(facts["rule"])](**options)


RULES: Mapping[str, str] = {
    "fixed": "all n samples and one bound, as in Cohen et al. 2019",
    "sequential": "fewer samples for a slightly smaller radius: stop when it could hardly grow",
    "radius": "is it at least so large? stop when the answer is clear",
}
"""Name -> what it does, for tables and messages."""


def looks_of(n: int) -> tuple[int, ...]:
    """Return the numbers of samples at which to look, up to n, without repeats."""
    return tuple(sorted({min(n, max(FIRST_LOOK, round(share * n))) for share in SHARES}))


def check_numbers(n: int, alpha: float) -> None:
    """Refuse a number of samples or an error probability that gives no certificate."""
    if not 0 < alpha < 1:
        raise ConfigurationError(
            "The error probability must be between 0 and 1.",
            expected="alpha in (0, 1), such as 0.001: one certificate in a thousand may be wrong",
            got=f"alpha={alpha:g}",
        )
    if n < 1 or not alpha ** (1 / n) > 0.5:
        least = int(np.ceil(np.log(alpha) / np.log(0.5))) + 1
        raise ConfigurationError(
            f"{n} samples certify nothing at alpha={alpha:g}, even if all agree.",
            expected=f"n of at least {least}; 100,000 is usual",
            got=f"n={n}",
        )
