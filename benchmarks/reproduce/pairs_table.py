"""Ng et al. 2023, table 2d: which measure tells the accuracy of classifiers of sentence pairs on other domains.

    python -m benchmarks.reproduce.pairs_table --data data

Heads on a frozen sentence encoder, in place of the paper's RoBERTa, see two sentences as (u, v, |u - v|, u v). They are
trained on pairs of SICK from captions of photographs or of videos, or on pairs of SNLI as they are or rewritten, and
tested on all five (`benchmarks/pair_domains.py`). They differ in the settings of the sentiment pool's heads. The sets
are read from `text/sick/` and `text/counterfactual/NLI/` in the folder of data, WordNet from `wordnet/`, the encoder
from `minilm/`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from benchmarks.pair_domains import CLASSES, DOMAINS, SICK, PairDomains, Pairs
from benchmarks.pool import as_json, check_time, records, train_pool
from benchmarks.reproduce.record import Figures, options_of
from benchmarks.text_findings import Rows, accuracies, influences, intervals, spreads
from benchmarks.text_heads import Encoder, head_answers, train_head
from benchmarks.text_pool import MEASURES, Domain, measured, noisy, recipe, settings_of, thresholds_of
from shiftproof.estimators.protocol import evaluate
from shiftproof.runs import Cell, Json, Row

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"pairs": 16, "validation_pairs": 8, "test_pairs": 8, "views": 1, "steps": 1, "heads": 10, "epochs": 1},
    "sample": {
        "pairs": 400, "validation_pairs": 100, "test_pairs": 100, "views": 2, "steps": 40, "heads": 30, "epochs": 20,
    },
    "short": {
        "pairs": 1_600, "validation_pairs": 200, "test_pairs": 800, "views": 5, "steps": 1_500, "heads": 150,
        "epochs": 80,
    },
}  # fmt: skip
CONVERGED = 0.03
"""The cross entropy at which the paper stops; heads that do not come there are left out."""


def main() -> None:
    """Train and measure the heads that are missing, and write their scores."""
    options = options_of(__doc__, tuple(SIZES))
    size = dict(SIZES[options.size])
    heads, epochs = size.pop("heads"), size.pop("epochs")
    figures = Figures("estimation-pairs", options, _cut(size, heads, epochs))
    domains = PairDomains(
        sick=options.data / "text/sick",
        nli=options.data / "text/counterfactual/NLI",
        wordnet=options.data / "wordnet",
        device=options.device,
        seed=options.seed,
        out=options.runs / figures.name / f"{options.size}-{options.seed}",
        **size,
    )
    bench = Bench(domains, options.data / "minilm", figures.stop_at)
    bench.encoded  # before there are several workers to encode  # noqa: B018
    cells = [Cell("pair pool", **recipe("head", n, False, DOMAINS, options.seed), epochs=epochs) for n in range(heads)]
    rows = train_pool(cells, bench, domains.prints, out=domains.out / "heads", workers=options.workers)
    figures.add("heads", {"planned": heads, "domains of": domains.about, **findings(rows, options.size == "short")})


def findings(rows: Rows, converge: bool) -> dict[str, Any]:
    """Return all that the pool tells; with `converge`, of the heads that have come below the loss of the paper."""
    kept = [(cell, row) for cell, row in rows if not converge or cast(float, row["loss"]) < CONVERGED]
    found: dict[str, Any] = {"trained": len(rows), "kept": len(kept)}
    if not kept:
        return found
    pools = {"all": kept, "no label noise": [(cell, row) for cell, row in kept if cell["label_noise"] == 0.0]}
    return {
        **found,
        "domains": spreads(kept),
        "influences": influences(kept, settings_of("head"), MEASURES),
        "pools": {name: {"networks": len(some), **accuracies(some)} for name, some in pools.items() if some},
        "intervals": {
            **{name: intervals(some) for name, some in pools.items() if some},
            "within SICK or SNLI": intervals(kept, counted=lambda train, test: train != test and _near(train, test)),
            "between SICK and SNLI": intervals(kept, counted=lambda train, test: not _near(train, test)),
        },
        "scores": as_json(evaluate(records(kept))),
    }


def _near(train: str, test: str) -> bool:
    return (train in SICK) == (test in SICK)


def _cut(size: Mapping[str, int], heads: int, epochs: int) -> list[str]:
    return [
        f"{heads} heads on a frozen MiniLM, whose own training has seen pairs of SNLI (paper: 213 RoBERTa networks, "
        "fine-tuned); no CNNs",
        "five domains of SICK and of SNLI with rewritten pairs (paper: MNLI, trained on five genres, tested on ten)",
        f"{size['pairs']:,} training pairs of each domain, {size['validation_pairs']} for thresholds and at most "
        f"{size['test_pairs']} to test on, {size['views']} views of both sentences (paper: 10)",
        f"heads that do not come below a cross entropy of {CONVERGED:g} in {epochs} epochs are left out",
        f"the masked language model of NI-SSMBA is a small one, trained on the training sentences for "
        f"{size['steps']:,} steps; no NI-BT",
    ]


@dataclass(frozen=True)
class Bench:
    """What a worker needs: the domains, the encoder, and when to begin nothing more."""

    domains: PairDomains
    encoder: Path
    stop_at: float | None

    def __call__(self) -> PairPool:
        """Return what trains and measures in this process."""
        return PairPool(self)

    @cached_property
    def encoded(self) -> dict[str, Domain]:
        """Every set as a head sees it, its views too where it is tested on."""
        encoder = Encoder(self.encoder, self.domains.out / "encoded", self.domains.device)
        return {
            f"{part}-{name}": _seen(encoder, f"{part}-{name}".replace(" ", "-"), pairs, self._views(part, name))
            for part, some in self.domains.sets.items()
            for name, pairs in some.items()
        }

    def _views(self, part: str, name: str) -> Mapping[str, list[str]]:
        return self.domains.views_of(name) if part == "test" else {}


def _seen(encoder: Encoder, name: str, pairs: Pairs, views: Mapping[str, list[str]]) -> Domain:
    own = joined(encoder.encoded(name, pairs.sentences), 1)
    near = {
        kind: joined(encoder.encoded(f"{name}-{kind}", seen), len(seen) // len(pairs.sentences))
        for kind, seen in views.items()
    }
    return Domain(np.array(pairs.labels, np.int64), own, near)


def joined(vectors: Tensor, views: int) -> Tensor:
    """Return pairs as features, view by view, of vectors [views x (premises, hypotheses), D]."""
    first, second = vectors.view(views, 2, -1, vectors.shape[1]).unbind(1)
    return torch.cat([first, second, (first - second).abs(), first * second], 2).flatten(0, 1)


class PairPool:
    """A worker of `runs` that trains a head and measures it on every domain."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.sets = bench, bench.encoded

    def measure(self, cell: Cell) -> Row:
        """Train the cell's head and return its accuracy and every measure by test domain."""
        check_time(self.bench.stop_at)
        began, train = time.process_time(), cast(str, cell["train"])
        seed, seen = 1000 * cast(int, cell["seed"]) + cast(int, cell["number"]), self.sets[f"training-{train}"]
        labels = noisy(torch.from_numpy(seen.labels), len(CLASSES), cast(float, cell["label_noise"]), seed)
        names = ("epochs", "batch_size", "lr", "weight_decay", "width", "depth", "dropout")
        settings: dict[str, Any] = {name: cell[name] for name in names}
        features = cast(Tensor, seen.own)
        model, losses = train_head(features, labels, until=CONVERGED, seed=seed, **settings)
        answers, known = partial(head_answers, model), self.sets[f"validation-{train}"]
        thresholds, views = thresholds_of(answers(cast(Tensor, known.own)), known.labels), self.bench.domains.views
        domains = {name: measured(answers, self.sets[f"test-{name}"], views, thresholds) for name in DOMAINS}
        return {
            "loss": losses[-1],
            "epochs": len(losses),
            "training accuracy": float((answers(features).argmax(1) == labels.numpy()).mean()),
            "seconds": time.process_time() - began,
            "domains": cast(Json, domains),
        }


if __name__ == "__main__":
    main()
