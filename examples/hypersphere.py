"""When does invariance stop telling accuracy? The toy study of Ng et al. 2023, section 5.1 and figure 3b.

    python examples/hypersphere.py                   a quick look: 40 networks, 11 distances
    python examples/hypersphere.py --networks 200 --distances 40

Points inside and outside the unit sphere in 16 dimensions are told apart by small networks that have seen only the
north pole, with 0 to 30% wrong labels. The further a test set is from the pole, the less does the networks' invariance
rank their accuracy; beyond about a quarter of the way round it ranks them the wrong way.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor, nn

from shiftproof.estimators import neighborhood_invariance
from shiftproof.keyed import Keyed
from shiftproof.measures.estimation import kendall_tau

DIMENSIONS, POINTS, VARIANCE, HIDDEN = 16, 1000, 0.005, 16
RADIUS, VIEWS, DATASETS = 0.01, 10, 5


def main() -> None:
    """Print Kendall's tau by distance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=40)
    parser.add_argument("--distances", type=int, default=11)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = torch.Generator().manual_seed(options.seed)
    pole = torch.eye(DIMENSIONS)[0]
    networks = train(*sample(pole, rng), count=options.networks, rng=rng)
    for number in range(options.distances):
        distance = math.pi * number / (options.distances - 1)
        taus = [ranking(networks, *sample(turned(pole, distance, rng), rng)) for _ in range(DATASETS)]
        known = [tau for tau in taus if tau is not None]
        tau = sum(known) / len(known) if known else 0.0
        print(f"{distance / math.pi:.2f} pi   tau {tau:+.2f}   {'#' * round(20 * (tau + 1))}")


def sample(centre: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw points around a centre, and whether each lies outside the unit sphere."""
    points = centre + math.sqrt(VARIANCE) * torch.randn(POINTS, DIMENSIONS, generator=rng)
    return points, (points.norm(dim=1) > 1).long()


def turned(pole: Tensor, angle: float, rng: torch.Generator) -> Tensor:
    """Return a point of the sphere at an angle from the pole, in a random direction."""
    direction = torch.randn(DIMENSIONS, generator=rng)
    direction -= (direction @ pole) * pole
    found: Tensor = math.cos(angle) * pole + math.sin(angle) * direction / direction.norm()
    return found


def train(points: Tensor, labels: Tensor, *, count: int, rng: torch.Generator, steps: int = 400) -> list[nn.Module]:
    """Train networks of one hidden layer, each on labels of which 0 to 30% are wrong."""
    networks: list[nn.Module] = []
    with torch.random.fork_rng():
        torch.manual_seed(int(torch.randint(2**31, (), generator=rng)))
        for _ in range(count):
            noise = 0.3 * torch.rand((), generator=rng)
            wrong = torch.rand(len(labels), generator=rng) < noise
            noisy = torch.where(wrong, 1 - labels, labels)
            network = nn.Sequential(nn.Linear(DIMENSIONS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2))
            optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
            for _ in range(steps):
                optimizer.zero_grad()
                torch.autograd.backward(nn.functional.cross_entropy(network(points), noisy))
                optimizer.step()
            networks.append(network.eval())
    return networks


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


def ranking(networks: list[nn.Module], points: Tensor, labels: Tensor) -> float | None:
    """Return how well invariance ranks the networks' accuracies on a set."""
    keys = torch.arange(len(points))
    values, accuracies = [], []
    for network in networks:
        found = neighborhood_invariance(network, points, along_the_sphere, n=VIEWS, keys=keys, batch_size=len(points))
        values.append(found.value)
        accuracies.append(float((network(points).argmax(1) == labels).float().mean()))
    return kendall_tau(values, accuracies)


if __name__ == "__main__":
    main()
