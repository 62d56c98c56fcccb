"""When does invariance stop predicting accuracy? The toy study of Ng et al. 2023, section 5.1 and figure 3b.

    python examples/hypersphere.py                   a quick look: 40 networks, 11 distances
    python examples/hypersphere.py --networks 200 --distances 40

Small networks learn to separate points inside and outside the unit sphere in 16 dimensions from data at the north pole
only, with 0 to 30% wrong labels. The further a test set is from the pole, the less invariance ranks the networks by
accuracy, and beyond some distance the ranking is reversed. Thresholded confidence (ATC) behaves the same.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from shiftproof.estimators import neighborhood_invariance
from shiftproof.keyed import Keyed
from shiftproof.measures.estimation import atc_threshold, confidence, kendall_tau, share_at_least

DIMENSIONS, POINTS, VARIANCE, HIDDEN, NOISE = 16, 1000, 0.005, 16, 0.3
RADIUS, VIEWS, DATASETS, STEPS = 0.01, 10, 5, 1600

Found: TypeAlias = dict[str, float]
"""Accuracy, NI and ATC of a network on a set."""


def main() -> None:
    """Print Kendall's tau by distance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=40)
    parser.add_argument("--distances", type=int, default=11)
    parser.add_argument("--steps", type=int, default=STEPS, help="of training a network")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    study = Study.drawn(options.distances, options.seed)
    found = [study.measured(study.train(number, options.steps)) for number in range(options.networks)]
    for distance in study.tests:
        tau = {name: mean_tau([one[distance] for one in found], name) for name in ("NI", "ATC")}
        drawn = "#" * round(20 * (tau["NI"] + 1))
        print(f"{distance / math.pi:.2f} pi   NI {tau['NI']:+.2f}   ATC {tau['ATC']:+.2f}   {drawn}")


@dataclass(frozen=True)
class Points:
    """Points [N, D] around a centre, whether each lies outside the unit sphere [N], and views of them."""

    at: Tensor
    outside: Tensor
    views: Tensor

    @classmethod
    def around(cls, centre: Tensor, rng: torch.Generator) -> Points:
        """Draw points around a centre."""
        at = centre + math.sqrt(VARIANCE) * torch.randn(POINTS, DIMENSIONS, generator=rng)
        return cls(at, (at.norm(dim=1) > 1).long(), along_the_sphere(at, torch.arange(POINTS), VIEWS, 0))


@dataclass(frozen=True)
class Study:
    """Sets to train on and to set thresholds with, at the pole, and sets to test on, by distance from it in radians."""

    training: Points
    validation: Points
    tests: dict[float, list[Points]]
    seed: int

    @classmethod
    def drawn(cls, distances: int, seed: int) -> Study:
        """Draw the sets: `DATASETS` at each of some distances, evenly from the pole to the opposite one."""
        rng, pole = torch.Generator().manual_seed(seed), torch.eye(DIMENSIONS)[0]
        training, validation = Points.around(pole, rng), Points.around(pole, rng)
        angles = [math.pi * number / (distances - 1) for number in range(distances)]
        tests = {angle: [Points.around(turned(pole, angle, rng), rng) for _ in range(DATASETS)] for angle in angles}
        return cls(training, validation, tests, seed)

    def train(self, number: int, steps: int = STEPS) -> nn.Module:
        """Train a network of one hidden layer on labels of which 0 to 30% are wrong; its number draws how many."""
        points, labels = self.training.at, self.training.outside
        with torch.random.fork_rng():
            torch.manual_seed(1000 * self.seed + number)
            wrong = torch.rand(len(labels)) < NOISE * torch.rand(())
            network = nn.Sequential(nn.Linear(DIMENSIONS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2))
        noisy = torch.where(wrong, 1 - labels, labels)
        optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
        for _ in range(steps):
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(network(points), noisy))
            optimizer.step()
        return network.eval()

    def measured(self, network: nn.Module) -> dict[float, list[Found]]:
        """Return a network's accuracy, its invariance (NI) and ATC's estimate on every test set, by distance."""
        logits = network(self.validation.at).detach()
        threshold = atc_threshold(confidence(logits), (logits.argmax(1) == self.validation.outside).numpy())
        return {angle: [_on(network, threshold, one) for one in sets] for angle, sets in self.tests.items()}


def _on(network: nn.Module, threshold: float, test: Points) -> Found:
    logits, keys = network(test.at).detach(), torch.arange(POINTS)
    near = neighborhood_invariance(network, test.at, lambda *_: test.views, n=VIEWS, keys=keys, batch_size=POINTS)
    return {
        "accuracy": float((logits.argmax(1) == test.outside).float().mean()),
        "NI": near.value,
        "ATC": share_at_least(threshold, confidence(logits)),
    }


def mean_tau(found: Sequence[Sequence[Found]], measure: str) -> float:
    """Return how well a measure ranks networks by what was found of each on some sets: the mean of Kendall's tau.

    It is 0 on a set where all networks are alike.
    """
    taus = [
        kendall_tau([one[measure] for one in some], [one["accuracy"] for one in some])
        for some in zip(*found, strict=True)
    ]
    return sum(tau or 0.0 for tau in taus) / len(taus)


def turned(start: Tensor, angle: float, rng: torch.Generator) -> Tensor:
    """Return a point of the sphere at an angle from another, in a random direction."""
    direction = torch.randn(DIMENSIONS, generator=rng)
    direction -= (direction @ start) * start
    found: Tensor = math.cos(angle) * start + math.sin(angle) * direction / direction.norm()
    return found


def along_the_sphere(points: Tensor, keys: Tensor, n: int, seed: int) -> Tensor:
    """Return n views of every point, moved by up to `RADIUS` without changing its distance from the origin."""
    repeated = points.repeat(n, 1)
    noise = Keyed(seed, keys).fork("sphere").normal(shape=(n, DIMENSIONS)).transpose(0, 1).reshape(-1, DIMENSIONS)
    length = repeated.norm(dim=1, keepdim=True)
    across = noise - (noise * repeated).sum(1, keepdim=True) / length**2 * repeated
    far = RADIUS * Keyed(seed, keys).fork("far").uniform(shape=(n,)).T.reshape(-1, 1)
    moved = repeated + across / across.norm(dim=1, keepdim=True) * far
    views: Tensor = moved * length / moved.norm(dim=1, keepdim=True)
    return views


if __name__ == "__main__":
    main()
