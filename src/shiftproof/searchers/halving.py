"""Racing: successive halving over images (Jamieson & Talwalkar 2016). Few images tell which tuples are worth more."""

from __future__ import annotations

from shiftproof.errors import ConfigurationError
from shiftproof.searchers.search_trace import Evaluate, SearchTrace
from shiftproof.searchers.space import Drawing, Space
from shiftproof.searchers.uniform import draw_tuples

ROUNDS = 4
KEEP = 3
LEAST_IMAGES = 8


def racing(
    space: Space,
    evaluate: Evaluate,
    *,
    length: int,
    budget: int,
    images: int,
    seed: int = 0,
    keep: int = KEEP,
    rounds: int = ROUNDS,
    draw: Drawing = "step",
) -> SearchTrace:
    """Successive halving: race the chains of random search with the same seed and budget on growing numbers of images.

    The first round sees all `budget` tuples on 1 / `keep`^(`rounds` - 1) of the images; each round keeps the lowest
    1 / `keep` of them and shows these `keep` times as many images, up to all in the last. Images already seen are not
    put through the model again, so a race costs about `rounds` / `keep`^(`rounds` - 1) of random search, and a tuple
    that goes on to another round is still the one evaluation it began as.

    Args:
        space: The transformations and their levels.
        evaluate: Function from chains to scores.
        length: Transformations in a chain.
        budget: Chains that begin the race.
        images: Number of images.
        seed: The seed of the search.
        keep: A round keeps one in so many.
        rounds: Number of rounds.
        draw: How chains are drawn.
    """
    if keep < 2 or rounds < 1:
        raise ConfigurationError(
            "Invalid settings of the searcher racing.",
            expected="1 round or more, keeping one in 2 or more",
            got=f"{rounds}, {keep}",
        )
    trace = SearchTrace(space, length, "racing", seed)
    running = draw_tuples(space, length, range(budget), seed=seed, draw=draw)
    for shown in race_rounds(images, keep, rounds):
        scores = evaluate(running, None if shown == images else shown)
        trace.add(running, scores, None if shown == images else shown)
        ranked = sorted(range(len(running)), key=lambda place: scores[place].objective)  # stable: ties by number
        running = [running[place] for place in sorted(ranked[: max(1, len(running) // keep)])]
    return trace


def race_rounds(images: int, keep: int = KEEP, rounds: int = ROUNDS) -> list[int]:
    """Return the number of images of each round, the last one all.

    >>> race_rounds(1000)
    [37, 111, 333, 1000]
    """
    sizes = (images // keep**power for power in range(rounds - 1, -1, -1))
    return sorted({min(images, max(size, LEAST_IMAGES)) for size in sizes})
