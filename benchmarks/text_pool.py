"""Does invariance rank text classifiers? Text CNNs and heads on an encoder, over product categories, SST-2 and IMDB.

    python -m benchmarks.text_pool --amazon amazon/ --sst2 sst2/ --imdb reviews.json --wordnet wordnet/ --out text-pool/
    python -m benchmarks.text_pool ... --encoder minilm/     # and heads on a frozen sentence encoder

`benchmarks/text_domains.py` says how the sets are laid out. Networks are trained on some of the categories and tested
on all of them, on SST-2 and on IMDB. They differ in the settings of Ng et al. 2023 (table 6), and are left out if they
have not converged. Some more, with the same settings, see fewer texts: they show what a pool is like in which that
varies too. Each network is a cell of a run: the same command goes on where it stopped. A small masked language model is
trained on IMDB for NI-SSMBA, if `transformers` is installed; NI-BT is left out, since it takes translation models. The
evaluation is that of section 4.3 (`shiftproof.estimators.protocol`); docs/reproduction.md has it beside the paper's
table 2c.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.pool import as_table, check_time, records, train_pool
from benchmarks.text_domains import ABLATED, Labelled, TextDomains
from benchmarks.text_findings import Rows, influences, spreads, standings, table
from benchmarks.text_heads import Encoder, head_answers, train_head
from shiftproof.data import load_data
from shiftproof.estimators.protocol import Votes, evaluate
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

SHAPES = ((64, 1), (64, 2), (128, 1), (128, 2), (256, 1))
"""Widths and depths of the CNNs; the paper's are 128 to 512, and 1 to 3."""

SETTINGS: Mapping[str, Mapping[str, tuple[Json, ...]]] = {
    "cnn": {
        "batch_size": (32, 64, 128),
        "dropout": (0.0, 0.25, 0.5),
        "weight_decay": (0.0, 1e-4, 5e-4),
    },
    "head": {
        "batch_size": (64, 128, 256),
        "lr": (2e-3, 4e-3),
        "width": (128, 256, 512),
        "depth": (1, 2),
        "dropout": (0.0, 0.1),
        "weight_decay": (0.0, 1e-5, 5e-5),
        "label_noise": (0.0, 0.2, 0.4),
    },
}
"""What networks of an architecture differ in: the settings of table 6, and for heads width, depth and rate too."""

FEWER = (0.25, 0.5)
"""Shares of the training texts that the networks with fewer texts see."""

MEASURES = ("NI-SSMBA", "NI-EDA", "NI-RandRep", "ATC-NE", "ATC-MC")
"""The measures of the paper's table 2c that are measured here."""

CONVERGED = {"cnn": 0.04, "head": 0.05}
"""The cross entropy on the training texts at which training stops; networks that do not come there are left out."""

EPOCHS = {"cnn": 16, "head": 60}
"""The most that networks are trained."""

TEST_SIZES = (10, 25, 50, 100, 200, 400)
"""Test texts of one category with which invariance is measured, beside all of them."""

RATE = 3e-3
"""The CNNs' first learning rate, three times the paper's: they converge in half the epochs."""

EMBEDDING = 256
"""Dimensions of the CNNs' words, half the paper's."""


def main() -> None:
    """Train and measure what is missing of the pool, and print the scores of every measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--amazon", type=Path, required=True)
    parser.add_argument("--sst2", type=Path)
    parser.add_argument("--imdb", type=Path)
    parser.add_argument("--wordnet", type=Path, help="WordNet's files; without it EDA has a small list of synonyms")
    parser.add_argument("--encoder", type=Path, help="a folder of a sentence encoder; without it there are no heads")
    parser.add_argument("--categories", default=",".join(CATEGORIES), help="those networks are trained on")
    parser.add_argument("--models", type=int, default=24, help="CNNs")
    parser.add_argument("--heads", type=int, default=128)
    parser.add_argument("--fewer", type=int, default=0, help="more of either that see fewer texts")
    parser.add_argument("--texts", type=int, default=4800, help="training texts of a network, at most")
    parser.add_argument("--test-texts", type=int, default=800, help="of each domain")
    parser.add_argument("--validation-texts", type=int, default=400, help="of each category")
    parser.add_argument("--length", type=int, default=40, help="words of a text that are used")
    parser.add_argument("--views", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500, help="of training the masked language model")
    parser.add_argument("--workers", type=int, default=1, help="networks at a time, a process each")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("text-pool"))
    options = vars(parser.parse_args())
    encoder, workers = options.pop("encoder"), options.pop("workers")
    counts = {"cnn": options.pop("models"), "head": options.pop("heads") if encoder else 0}
    fewer = options.pop("fewer")
    domains = TextDomains(**{**options, "categories": tuple(options["categories"].split(","))})
    cells = [
        cell
        for architecture, count in counts.items()
        for cell in cells_of(architecture, count, domains, fewer if count else 0)
    ]
    rows = run_pool(domains, cells, encoder=encoder, workers=workers)
    spent = sum(cast(float, row["seconds"]) for _, row in rows) / 60
    print(f"\nall took {spent:.0f} minutes of processor time")
    for architecture in counts:
        some = [(cell, row) for cell, row in rows if cell["architecture"] == architecture]
        kept = those_converged(with_all_texts(some))
        print(f"\n{architecture}: {len(kept)} of {len(with_all_texts(some))} networks converged\n")
        if not kept:
            continue
        print(as_table(evaluate(records(kept))))
        taus = standings(kept, some)
        ranked = {name: {at: taus[at][name]["mean"] for at in taus if name in taus[at]} for name in MEASURES}
        print(f"\n{table('macro tau', ranked)}\n\n{table('test domain', spreads(kept), 1)}")
        print(f"\n{table('setting', influences(kept, settings_of(architecture), MEASURES))}")


def cells_of(
    architecture: str, count: int, domains: TextDomains, fewer: int = 0, epochs: int | None = None
) -> list[Cell]:
    """Return the cells of so many networks, and of so many more that see fewer texts.

    `epochs` are the most that any is trained, by default those of the architecture.
    """
    most = EPOCHS[architecture] if epochs is None else epochs
    recipes = (
        recipe(architecture, number, number >= count, domains.categories, domains.seed)
        for number in range(count + fewer)
    )
    return [Cell("text pool", **one, epochs=most) for one in recipes]


def run_pool(
    domains: TextDomains,
    cells: Sequence[Cell],
    *,
    encoder: Path | None = None,
    workers: int = 1,
    stop_at: float | None = None,
) -> list[tuple[Cell, Row]]:
    """Train and measure what is missing of a pool, and return the cells and rows of the networks that there are.

    Every architecture has a run of its own, so that they can be trained side by side.
    """
    views = domains.views_by_domain()  # before there are several workers to make them
    domains.magnitudes()
    if encoder is not None:
        _encoded(domains, encoder, views)
    bench = Bench(domains, encoder, stop_at)
    runs = {name: [cell for cell in cells if cell["architecture"] == name] for name in SETTINGS}
    return [
        found
        for name, some in runs.items()
        if some
        for found in train_pool(some, bench, domains.prints, out=domains.out / name, workers=workers)
    ]


def those_converged(rows: Rows) -> list[tuple[Cell, Row]]:
    """Return the networks whose training came below the loss of their architecture."""
    return [(cell, row) for cell, row in rows if cast(float, row["loss"]) < CONVERGED[cast(str, cell["architecture"])]]


def with_all_texts(rows: Rows) -> list[tuple[Cell, Row]]:
    """Return the networks that see all training texts."""
    return [(cell, row) for cell, row in rows if cell["share"] == 1.0]


def settings_of(architecture: str) -> list[str]:
    """Return what networks of an architecture differ in."""
    return list(dict.fromkeys([*SETTINGS[architecture], "width", "depth"]))


def recipe(architecture: str, number: int, fewer: bool, categories: Sequence[str], seed: int) -> dict[str, Json]:
    """Return the settings of one network of the pool, each drawn from its values; categories take turns."""
    rng = np.random.default_rng([seed, number, *architecture.encode()])
    width, depth = SHAPES[int(rng.integers(len(SHAPES)))]
    drawn = {name: values[int(rng.integers(len(values)))] for name, values in SETTINGS[architecture].items()}
    share = FEWER[int(rng.integers(len(FEWER)))] if fewer else 1.0
    return {
        "architecture": architecture,
        "number": number,
        "train": categories[number % len(categories)],
        **{"width": width, "depth": depth, **drawn},
        "share": share,
        "seed": seed,
    }


@dataclass(frozen=True)
class Bench:
    """What a worker needs: the domains, the encoder if any, and when to begin nothing more."""

    domains: TextDomains
    encoder: Path | None = None
    stop_at: float | None = None

    def __call__(self) -> Pool:
        """Load the sets, and the views of every test domain."""
        return Pool(self)


@dataclass(frozen=True)
class Trained:
    """A network at work: its answers to inputs, the cross entropy of every epoch, and its accuracy in training."""

    answers: Callable[[Any], NDArray[np.float32]]
    losses: list[float]
    accuracy: float


class Pool:
    """A worker of `runs` that trains a network and measures it on every domain."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.domains, self.device = bench, bench.domains, bench.domains.device

    def measure(self, cell: Cell) -> Row:
        """Train the cell's network and return its accuracy and every measure by test domain."""
        check_time(self.bench.stop_at)
        began, train = time.process_time(), cast(str, cell["train"])
        is_head = cell["architecture"] == "head"
        sets = self.encoded if is_head else self.numbered
        trained = (self._head if is_head else self._cnn)(cell)
        known = sets[f"validation-{train}"]
        thresholds = thresholds_of(trained.answers(known.own), known.labels)
        domains = {
            name: measured(trained.answers, sets[f"test-{name}"], self.domains.views, thresholds)
            for name in self.domains.tests
        }
        return {
            "loss": trained.losses[-1],
            "epochs": len(trained.losses),
            "training accuracy": trained.accuracy,
            "seconds": time.process_time() - began,
            "domains": cast(Json, domains),
            "ablations": cast(Json, self._ablated(trained.answers, sets)),
        }

    def _ablated(self, answers: Callable[[Any], NDArray[np.float32]], sets: Mapping[str, Domain]) -> dict[str, float]:
        """Return the invariance under SSMBA on one category by test texts, views and share of tokens corrupted."""
        domain = sets.get(f"test-{ABLATED}")
        if domain is None or "SSMBA" not in domain.views:
            return {}
        own = answers(domain.own).argmax(1)

        def voted(views: Any) -> Votes:
            votes = answers(views).argmax(1).reshape(self.domains.views, len(own)).T
            return Votes("", "", "", "", np.column_stack([own, votes]), 2, 0.0)

        usual = voted(domain.views["SSMBA"])
        sizes = {f"inputs={size}": usual.invariance(size, self.domains.views) for size in TEST_SIZES if size < len(own)}
        counts = {f"views={count}": usual.invariance(len(own), count) for count in range(1, self.domains.views + 1)}
        stronger = {
            f"magnitude={share}": voted(views).invariance(len(own), self.domains.views)
            for share, views in sets["magnitudes"].views.items()
        }
        return {**sizes, **counts, "magnitude=15%": counts[f"views={self.domains.views}"], **stronger}

    @cached_property
    def numbered(self) -> dict[str, Domain]:
        """The sets as numbers of words, for CNNs."""
        words, longest = self.domains.vocabulary, 2 * self.domains.length
        reader = TextCNN(words, embedding=1, width=1, hidden=1, max_length=longest)
        views = self.domains.views_by_domain()
        sets = {name: Domain.of(reader, one, {}) for name, one in _own(self.domains).items()}
        sets["magnitudes"] = Domain.of(reader, ([], []), self.domains.magnitudes())
        return {**sets, **{f"test-{n}": Domain.of(reader, one, views[n]) for n, one in self.domains.tests.items()}}

    @cached_property
    def encoded(self) -> dict[str, Domain]:
        """The sets as the encoder's vectors, for heads."""
        return _encoded(self.domains, cast(Path, self.bench.encoder), self.domains.views_by_domain())

    def _cnn(self, cell: Cell) -> Trained:
        train, share, losses = cast(str, cell["train"]), cast(float, cell["share"]), list[float]()
        model = train_text_cnn(
            load_data(self.domains.training(train, share)),
            epochs=cast(int, cell["epochs"]),
            until=CONVERGED["cnn"],
            batch_size=cast(int, cell["batch_size"]),
            weight_decay=cast(float, cell["weight_decay"]),
            lr=RATE,
            vocabulary=self.domains.vocabulary,
            seed=1000 * cast(int, cell["seed"]) + cast(int, cell["number"]),
            device=self.device,
            on_progress=lambda _, loss: losses.append(loss),
            embedding=EMBEDDING,
            width=cell["width"],
            depth=cell["depth"],
            dropout=cell["dropout"],
            max_length=2 * self.domains.length,  # insertions make texts longer
        )
        seen = self.numbered[f"training-{train}"].first(len(self.domains.training(train, share)[0]))
        classify = model.folded()

        def answers(batches: Iterable[Tensor]) -> NDArray[np.float32]:
            return torch.cat([classify(batch.to(self.device)).cpu() for batch in batches]).numpy()

        return Trained(answers, losses, float((answers(seen.own).argmax(1) == seen.labels).mean()))

    def _head(self, cell: Cell) -> Trained:
        train, seed = cast(str, cell["train"]), 1000 * cast(int, cell["seed"]) + cast(int, cell["number"])
        count = len(self.domains.training(train, cast(float, cell["share"]))[0])
        seen = self.encoded[f"training-{train}"]
        labels = noisy(torch.from_numpy(seen.labels[:count]), 2, cast(float, cell["label_noise"]), seed)
        names = ("epochs", "batch_size", "lr", "weight_decay", "width", "depth", "dropout")
        settings: dict[str, Any] = {name: cell[name] for name in names}
        features = cast(Tensor, seen.own)[:count]
        model, losses = train_head(features, labels, until=CONVERGED["head"], seed=seed, **settings)
        accuracy = float((head_answers(model, features).argmax(1) == labels.numpy()).mean())
        return Trained(partial(head_answers, model), losses, accuracy)


def measured(
    answers: Callable[[Any], NDArray[np.float32]], domain: Domain, views: int, thresholds: Mapping[str, float]
) -> dict[str, Json]:
    """Return the accuracy on a domain and every measure there; each of its texts has so many views a neighbourhood."""
    logits = answers(domain.own)
    own = logits.argmax(1)
    measures: dict[str, Json] = {}
    for name, seen in domain.views.items():
        votes = answers(seen).argmax(1).reshape(views, len(own)).T
        shares = decision_shares(np.column_stack([own, votes]), logits.shape[1])
        measures[f"NI-{name}"] = float(modal_share(shares).mean())
        measures[f"NE-{name}"] = float(decision_negative_entropy(shares).mean())
    for kind, short in (("confidence", "MC"), ("entropy", "NE")):
        measures[f"ATC-{short}"] = share_at_least(thresholds[kind], score(logits, kind))
    measures["average confidence"] = float(confidence(logits).mean())
    return {"accuracy": float((own == domain.labels).mean()), "measures": measures}


def thresholds_of(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> dict[str, float]:
    """Return the thresholds of ATC by score, from logits of labelled texts."""
    right = logits.argmax(1) == labels
    return {kind: atc_threshold(score(logits, kind), right) for kind in ("confidence", "entropy")}


def noisy(labels: Tensor, classes: int, share: float, seed: int) -> Tensor:
    """Return labels of which a share is drawn anew."""
    generator = torch.Generator().manual_seed(seed)
    wrong = torch.rand(len(labels), generator=generator) < share
    return torch.where(wrong, torch.randint(classes, labels.shape, generator=generator), labels)


@dataclass(frozen=True)
class Domain:
    """Labelled texts as an architecture reads them, and their views by neighbourhood, view by view.

    CNNs read batches of numbers of words, heads the vectors of an encoder.
    """

    labels: NDArray[np.int64]
    own: tuple[Tensor, ...] | Tensor
    views: Mapping[str, tuple[Tensor, ...] | Tensor]

    @classmethod
    def of(cls, reader: TextCNN, texts: Labelled, views: Mapping[str, list[str]]) -> Domain:
        """Return texts and views as a network with the same vocabulary reads them."""
        batched = {name: _batches(reader, seen) for name, seen in views.items()}
        return cls(np.array(texts[1], np.int64), _batches(reader, texts[0]), batched)

    def first(self, count: int) -> Domain:
        """Return the batches that begin among the first so many texts, without views."""
        ends = np.cumsum([len(batch) for batch in self.own])
        kept = tuple(batch for batch, end in zip(self.own, ends, strict=True) if end - len(batch) < count)
        return Domain(self.labels[: sum(map(len, kept))], kept, {})


def _own(domains: TextDomains) -> dict[str, Labelled]:
    """Return the sets to train on and to set thresholds on, by name."""
    training = {f"training-{name}": domains.training(name) for name in domains.categories}
    return {**training, **{f"validation-{name}": one for name, one in domains.validation.items()}}


def _encoded(domains: TextDomains, model: Path, views: Mapping[str, Mapping[str, list[str]]]) -> dict[str, Domain]:
    """Return all sets as the vectors of an encoder, which are computed once."""
    encoder = Encoder(model, domains.out / "encoded", domains.device)
    tests = {f"test-{name}": one for name, one in domains.tests.items()}
    stronger = {share: encoder.encoded(f"magnitude-{share}", seen) for share, seen in domains.magnitudes().items()}
    sets = {
        name: Domain(
            np.array(labels, np.int64),
            encoder.encoded(name, texts),
            {near: encoder.encoded(f"{name}-{near}", seen) for near, seen in views.get(name[5:], {}).items()}
            if name in tests
            else {},
        )
        for name, (texts, labels) in {**_own(domains), **tests}.items()
    }
    return {**sets, "magnitudes": Domain(np.zeros(0, np.int64), torch.zeros(0), stronger)}


def _batches(reader: TextCNN, texts: Sequence[str], size: int = 250) -> tuple[Tensor, ...]:
    return tuple(
        padded(reader.numbers(texts[start : start + size])).to(torch.int32) for start in range(0, len(texts), size)
    )


if __name__ == "__main__":
    main()
