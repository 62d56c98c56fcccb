"""Does invariance rank text classifiers? A pool of text CNNs over product categories, SST-2 and IMDB.

    python -m benchmarks.text_pool --amazon amazon/ --sst2 sst2/ --imdb reviews.json --wordnet wordnet/ --out text-pool/

`benchmarks/text_domains.py` says how the sets are laid out. Networks are trained on some of the categories and tested
on all of them, on SST-2 and on IMDB. They differ in the settings of Ng et al. 2023 (table 6, at small width) and in how
many texts they see, and are left out if they have not converged. Each is a cell of a run: the same command goes on
where it stopped. A small masked language model is trained on IMDB for NI-SSMBA, if `transformers` is installed; NI-BT
is left out, since it takes translation models. The evaluation is that of section 4.3
(`shiftproof.estimators.protocol`); docs/reproduction.md has it beside the paper's table 2c.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.pool import as_table, check_time, records, train_pool
from benchmarks.text_domains import Labelled, TextDomains
from benchmarks.text_findings import Rows, influences, spreads, standings, table
from shiftproof.data import load_data
from shiftproof.estimators.protocol import evaluate
from shiftproof.measures.estimation import (
    atc_threshold,
    confidence,
    decision_negative_entropy,
    decision_shares,
    modal_share,
    score,
    share_at_least,
)
from shiftproof.models.networks.text_cnn import TextCNN, padded
from shiftproof.runs import Cell, Json, Row
from shiftproof.training.text import train_text_cnn

CATEGORIES = ("books", "dvd", "electronics", "kitchen")
"""Those that networks are trained on; video is left to be tested on."""

SETTINGS: Mapping[str, tuple[Json, ...]] = {
    "batch_size": (32, 64, 128),
    "depth": (1, 2),
    "width": (16, 32, 64),
    "dropout": (0.0, 0.1, 0.25),
    "weight_decay": (0.0, 1e-4, 5e-4),
    "label_noise": (0.0, 0.2, 0.4),
    "share": (0.25, 0.5, 1.0),
}
"""What networks differ in: the settings of table 6, at an eighth of its widths, and the share of the training texts."""

MEASURES = ("NI-SSMBA", "NI-EDA", "NI-RandRep", "ATC-NE", "ATC-MC")
"""The measures of the paper's table 2c that are measured here."""

CONVERGED = 0.08
"""The cross entropy on the training texts at which training stops; networks that do not come there are left out."""


def main() -> None:
    """Train and measure what is missing of the pool, and print the scores of every measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--amazon", type=Path, required=True)
    parser.add_argument("--sst2", type=Path)
    parser.add_argument("--imdb", type=Path)
    parser.add_argument("--wordnet", type=Path, help="WordNet's files; without it EDA has a small list of synonyms")
    parser.add_argument("--categories", default=",".join(CATEGORIES), help="those networks are trained on")
    parser.add_argument("--models", type=int, default=48)
    parser.add_argument("--texts", type=int, default=2000, help="training texts of a network, at most")
    parser.add_argument("--test-texts", type=int, default=1000, help="of each domain")
    parser.add_argument("--length", type=int, default=40, help="words of a text that are used")
    parser.add_argument("--views", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=24, help="the most a network is trained")
    parser.add_argument("--steps", type=int, default=700, help="of training the masked language model")
    parser.add_argument("--workers", type=int, default=1, help="networks at a time, a process each")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("text-pool"))
    options = vars(parser.parse_args())
    how = {name: options.pop(name) for name in ("models", "epochs", "workers")}
    rows = run_pool(TextDomains(**{**options, "categories": tuple(options["categories"].split(","))}), **how)
    converged = those_converged(rows)
    spent = sum(cast(float, row["seconds"]) for _, row in rows) / 60
    print(f"\n{len(converged)} of {len(rows)} networks converged; all took {spent:.0f} minutes of processor time\n")
    print(as_table(evaluate(records(converged))))
    taus = standings(converged, rows)
    ranked = {name: {where: taus[where][name]["mean"] for where in taus if name in taus[where]} for name in MEASURES}
    print(f"\n{table('macro tau', ranked)}\n\n{table('test domain', spreads(converged), 1)}")
    print(f"\n{table('setting', influences(converged, SETTINGS, MEASURES))}")


def run_pool(
    domains: TextDomains, *, models: int, epochs: int, workers: int = 1, stop_at: float | None = None
) -> list[tuple[Cell, Row]]:
    """Train and measure what is missing of a pool, and return the cells and rows of the networks that there are."""
    cells = [Cell("text pool", **recipe(number, domains.categories, domains.seed, epochs)) for number in range(models)]
    domains.views_by_domain()  # before there are several workers to make them
    return train_pool(cells, Bench(domains, stop_at), domains.prints, out=domains.out, workers=workers)


def those_converged(rows: Rows, loss: float = CONVERGED) -> list[tuple[Cell, Row]]:
    """Return the networks whose training came below a loss."""
    return [(cell, row) for cell, row in rows if cast(float, row["loss"]) < loss]


def recipe(number: int, categories: Sequence[str], seed: int, epochs: int) -> dict[str, Json]:
    """Return the settings of one network of the pool, each drawn from its values; categories take turns."""
    rng = np.random.default_rng([seed, number])
    drawn = {name: values[int(rng.integers(len(values)))] for name, values in SETTINGS.items()}
    return {"number": number, "train": categories[number % len(categories)], **drawn, "epochs": epochs, "seed": seed}


@dataclass(frozen=True)
class Bench:
    """What a worker needs: the domains, and when to begin nothing more."""

    domains: TextDomains
    stop_at: float | None = None

    def __call__(self) -> Pool:
        """Load the sets, and the views of every test domain."""
        return Pool(self)


class Pool:
    """A worker of `runs` that trains a network and measures it on every domain."""

    def __init__(self, bench: Bench) -> None:
        self.domains, self.stop_at = bench.domains, bench.stop_at
        words, longest = self.domains.vocabulary, 2 * self.domains.length
        reader = TextCNN(words, embedding=1, width=1, hidden=1, max_length=longest)
        self.validation = {name: Domain.of(reader, one, {}) for name, one in self.domains.validation.items()}
        views = self.domains.views_by_domain()
        self.tests = {domain: Domain.of(reader, one, views[domain]) for domain, one in self.domains.tests.items()}

    def measure(self, cell: Cell) -> Row:
        """Train the cell's network and return its accuracy and every measure by test domain."""
        check_time(self.stop_at)
        began, losses = time.process_time(), []
        model = train_text_cnn(
            load_data(self.domains.training(cast(str, cell["train"]), cast(float, cell["share"]))),
            epochs=cast(int, cell["epochs"]),
            until=CONVERGED,
            batch_size=cast(int, cell["batch_size"]),
            weight_decay=cast(float, cell["weight_decay"]),
            label_noise=cast(float, cell["label_noise"]),
            lr=3e-3,
            vocabulary=self.domains.vocabulary,
            seed=1000 * cast(int, cell["seed"]) + cast(int, cell["number"]),
            device=self.domains.device,
            on_progress=lambda _, loss: losses.append(loss),
            embedding=64,
            hidden=64,
            width=cell["width"],
            depth=cell["depth"],
            dropout=cell["dropout"],
            max_length=2 * self.domains.length,  # insertions make texts longer
        )
        source = self.validation[cast(str, cell["train"])]
        logits = _answers(model, source.own, self.domains.device)
        right = logits.argmax(1) == source.labels
        thresholds = {kind: atc_threshold(score(logits, kind), right) for kind in ("confidence", "entropy")}
        domains = {name: self._measured(model, domain, thresholds) for name, domain in self.tests.items()}
        spent = time.process_time() - began
        return {"loss": losses[-1], "epochs": len(losses), "seconds": spent, "domains": cast(Json, domains)}

    def _measured(self, model: TextCNN, domain: Domain, thresholds: Mapping[str, float]) -> dict[str, Json]:
        logits = _answers(model, domain.own, self.domains.device)
        own = logits.argmax(1)
        measures: dict[str, Json] = {}
        for name, batches in domain.views.items():
            votes = _answers(model, batches, self.domains.device).argmax(1).reshape(self.domains.views, len(own)).T
            shares = decision_shares(np.column_stack([own, votes]), logits.shape[1])
            measures[f"NI-{name}"] = float(modal_share(shares).mean())
            measures[f"NE-{name}"] = float(decision_negative_entropy(shares).mean())
        for kind, short in (("confidence", "MC"), ("entropy", "NE")):
            measures[f"ATC-{short}"] = share_at_least(thresholds[kind], score(logits, kind))
        measures["average confidence"] = float(confidence(logits).mean())
        return {"accuracy": float((own == domain.labels).mean()), "measures": measures}


@dataclass(frozen=True)
class Domain:
    """Labelled texts as numbers of words, in batches, and their views by neighbourhood, view by view."""

    labels: NDArray[np.int64]
    own: tuple[Tensor, ...]
    views: Mapping[str, tuple[Tensor, ...]]

    @classmethod
    def of(cls, reader: TextCNN, texts: Labelled, views: Mapping[str, list[str]]) -> Domain:
        """Return texts and views as a network with the same vocabulary reads them."""
        batched = {name: _batches(reader, seen) for name, seen in views.items()}
        return cls(np.array(texts[1], np.int64), _batches(reader, texts[0]), batched)


def _batches(reader: TextCNN, texts: Sequence[str], size: int = 250) -> tuple[Tensor, ...]:
    return tuple(
        padded(reader.numbers(texts[start : start + size])).to(torch.int32) for start in range(0, len(texts), size)
    )


def _answers(model: TextCNN, batches: Iterable[Tensor], device: str) -> NDArray[np.float32]:
    classify = model.folded()
    return torch.cat([classify(batch.to(device)).cpu() for batch in batches]).numpy()


if __name__ == "__main__":
    main()
