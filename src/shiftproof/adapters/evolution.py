"""CMA-ES: minimise a function by its values alone, with a normal distribution that learns (Hansen 2016).

Candidates are drawn about a mean; the better half moves the mean, and the way it moves shapes the covariance and the
step. The state is a mapping of tensors, so that it can be saved, and nothing in it is changed in place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

State = Mapping[str, Tensor]
LEAST_VARIANCE = 1e-12


@dataclass(frozen=True)
class Evolution:
    """The search over so many numbers with so many candidates a generation, and the constants of the tutorial.

    >>> search = Evolution(2, 6)
    >>> state = search.start(torch.zeros(2), 1.0)
    >>> for _ in range(60):
    ...     candidates = search.ask(state, torch.randn(6, 2))
    ...     state = search.tell(state, candidates, (candidates - 3).square().sum(1))
    >>> bool((state["mean"] - 3).abs().max() < 0.01)
    True
    """

    dimension: int
    population: int

    @cached_property
    def weights(self) -> Tensor:
        """Of the better half, best first, [population // 2]."""
        ranks = torch.arange(1, self.population // 2 + 1, dtype=torch.float32)
        raw = math.log((self.population + 1) / 2) - ranks.log()
        return raw / raw.sum()

    @cached_property
    def effective(self) -> float:
        """How many candidates the weighted ones count as."""
        return 1 / float(self.weights.square().sum())

    @cached_property
    def step_rate(self) -> float:
        """How much of the path of the step a generation replaces."""
        return (self.effective + 2) / (self.dimension + self.effective + 5)

    @cached_property
    def path_rate(self) -> float:
        """How much of the path of the covariance a generation replaces."""
        n, m = self.dimension, self.effective
        return (4 + m / n) / (n + 4 + 2 * m / n)

    @cached_property
    def rates(self) -> tuple[float, float]:
        """How much of the covariance comes from its path and from the candidates of a generation."""
        n, m = self.dimension, self.effective
        one = 2 / ((n + 1.3) ** 2 + m)
        return one, min(1 - one, 2 * (m - 2 + 1 / m) / ((n + 2) ** 2 + m))

    @cached_property
    def every(self) -> int:
        """Generations after which the covariance is taken apart anew: until then it hardly changes."""
        return max(1, int(1 / (sum(self.rates) * self.dimension * 10)))

    def start(self, mean: Tensor, step: float) -> dict[str, Tensor]:
        """Return the state before the first generation."""
        n, unit = self.dimension, mean.new_ones(())
        eye = torch.eye(n, dtype=mean.dtype, device=mean.device)
        return {
            "mean": mean,
            "step": step * unit,
            "covariance": eye,
            "basis": eye,
            "scales": mean.new_ones(n),
            "step_path": torch.zeros_like(mean),
            "path": torch.zeros_like(mean),
            "generation": 0 * unit,
        }

    def ask(self, state: State, draws: Tensor) -> Tensor:
        """Return candidates, [population, n], of standard normal draws as many."""
        return state["mean"] + state["step"] * (draws * state["scales"]) @ state["basis"].T

    def tell(self, state: State, candidates: Tensor, values: Tensor) -> dict[str, Tensor]:
        """Return the state after a generation with these values, [population]; the least is the best."""
        n, m = self.dimension, self.effective
        weights = self.weights.to(candidates)
        best = candidates[values.argsort(stable=True)[: len(weights)]]
        moves = (best - state["mean"]) / state["step"]
        move = weights @ moves
        basis, scales = state["basis"], state["scales"]
        generation = state["generation"] + 1
        white = basis @ ((basis.T @ move) / scales)
        kept = 1 - self.step_rate
        step_path = kept * state["step_path"] + math.sqrt(self.step_rate * (2 - self.step_rate) * m) * white
        usual = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))
        length = step_path.norm() / usual
        short = (length / (1 - kept ** (2 * generation)).sqrt() < 1.4 + 2 / (n + 1)).to(move)
        fresh = self.path_rate * (2 - self.path_rate)
        path = (1 - self.path_rate) * state["path"] + short * math.sqrt(fresh * m) * move
        one, many = self.rates
        covariance = (
            (1 - one - many + one * (1 - short) * fresh) * state["covariance"]
            + one * torch.outer(path, path)
            + many * (moves.T * weights) @ moves
        )
        damping = 1 + 2 * max(0.0, math.sqrt((m - 1) / (n + 1)) - 1) + self.step_rate
        if int(generation) % self.every == 0:
            variances, basis = torch.linalg.eigh(covariance)
            scales = variances.clamp_min(LEAST_VARIANCE).sqrt()
        return {
            "mean": state["mean"] + state["step"] * move,
            "step": state["step"] * torch.exp(self.step_rate / damping * (length - 1)),
            "covariance": covariance,
            "basis": basis,
            "scales": scales,
            "step_path": step_path,
            "path": path,
            "generation": generation,
        }
