"""Does invariance rank text classifiers? A pool of text CNNs over product categories, SST-2 and IMDB.

    python -m benchmarks.text_pool --amazon amazon/ --sst2 sst2/ --imdb reviews.json --wordnet wordnet/ --out text-pool/

`amazon/` has one folder per category with `review_positive` and `review_negative`, a review a line; `sst2/` has
`test.tsv` (text, label); `reviews.json` is a list of objects with a text `t` and a label `s`. Networks are trained on
some of the categories and tested on all of them, on SST-2 and on IMDB. They differ in the settings of Ng et al. 2023
(table 6, at small width) and in how many texts they see, and are left out if they have not converged. Each is a cell of
a run: the same command goes on where it stopped. A small masked language model is trained on IMDB for NI-SSMBA, if
`transformers` is installed; NI-BT is left out, since it takes translation models. The evaluation is that of section 4.3
(`shiftproof.estimators.protocol`), beside the paper's table 2c.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.masked_model import masked_model
from benchmarks.pool import as_table, records, train_pool
from shiftproof import shifts
from shiftproof.data import TextSet, load_data
from shiftproof.estimators.neighborhoods import view_keys
from shiftproof.estimators.protocol import evaluate
from shiftproof.measures.estimation import (
    atc_threshold,
    confidence,
    decision_negative_entropy,
    decision_shares,
    kendall_tau,
    modal_share,
    score,
    share_at_least,
)
from shiftproof.models.networks.text_cnn import TextCNN, make_vocabulary, padded
from shiftproof.runs import Cell, Json, Row, write_atomically
from shiftproof.training.text import train_text_cnn

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

CONVERGED = 0.08
"""The cross entropy on the training texts at which training stops; networks that do not come there are left out."""

WORDS = 8000
"""Words the networks know: the most frequent ones of all training texts."""

FAR = ("sst2", "imdb")
"""Test domains that are no reviews of products."""

PAPER = {
    "NI-SSMBA": (0.662, 1.93, 0.677, 0.689, 0.629),
    "NI-EDA": (0.641, 2.04, 0.664, 0.649, 0.611),
    "NI-BT": (0.550, 2.99, 0.592, 0.501, 0.538),
    "NI-RandRep": (0.409, 2.64, 0.544, 0.554, 0.439),
    "ATC-NE": (0.760, 2.47, 0.514, 0.633, 0.467),
    "ATC-MC": (0.761, 2.46, 0.517, 0.634, 0.467),
}
"""Table 2c of Ng et al. 2023, CNN: R2, MAE, macro, micro and ID tau, of 2,418 networks on ten categories."""

Labelled = tuple[list[str], list[int]]


def main() -> None:
    """Train and measure what is missing of the pool, and print the scores of every measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--amazon", type=Path, required=True)
    parser.add_argument("--sst2", type=Path)
    parser.add_argument("--imdb", type=Path)
    parser.add_argument("--wordnet", help="folder of WordNet's files; without it EDA has a small list of synonyms")
    parser.add_argument("--categories", default="books,dvd,electronics,kitchen", help="those networks are trained on")
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
    models, epochs, workers = (options.pop(name) for name in ("models", "epochs", "workers"))
    bench = Bench(**{**options, "categories": tuple(options["categories"].split(","))})
    cells = [Cell("text pool", **recipe(number, bench.categories, bench.seed, epochs)) for number in range(models)]
    bench.views_by_domain()
    rows = train_pool(cells, bench, bench.prints, out=bench.out, workers=workers)
    converged = [(cell, row) for cell, row in rows if cast(float, row["loss"]) < CONVERGED]
    spent = sum(cast(float, row["seconds"]) for _, row in rows) / 60
    print(f"\n{len(converged)} of {len(rows)} networks converged; all took {spent:.0f} minutes of processor time\n")
    print(as_table(evaluate(records(converged))))
    print("\n| paper | R2 | MAE | macro tau | micro tau | ID tau |\n|---|---|---|---|---|---|")
    for measure, values in PAPER.items():
        print(f"| {measure} | {' | '.join(f'{value:.3f}' for value in values)} |")
    print(f"\n{standings(converged, rows)}\n\n{spreads(converged)}\n\n{influences(converged)}")


def recipe(number: int, categories: Sequence[str], seed: int, epochs: int) -> dict[str, Json]:
    """Return the settings of one network of the pool, each drawn from its values; categories take turns."""
    rng = np.random.default_rng([seed, number])
    drawn = {name: values[int(rng.integers(len(values)))] for name, values in SETTINGS.items()}
    return {"number": number, "train": categories[number % len(categories)], **drawn, "epochs": epochs, "seed": seed}


@dataclass(frozen=True)
class Bench:
    """What a worker needs: where the sets are, and how much of them is used."""

    amazon: Path
    sst2: Path | None
    imdb: Path | None
    wordnet: str | None
    categories: tuple[str, ...]
    texts: int
    test_texts: int
    length: int
    views: int
    steps: int
    device: str
    seed: int
    out: Path

    @property
    def prints(self) -> dict[str, str]:
        """What changes with anything that changes a row."""
        others = ("out", "device")
        return {name: str(value) for name, value in vars(self).items() if name not in others}

    def __call__(self) -> Pool:
        """Load the sets, and make the views of every test domain once for all networks."""
        return Pool(self)

    @cached_property
    def reviews(self) -> dict[str, Labelled]:
        """The reviews of every category in random order, cut; positive ones are 1."""
        return {folder.name: self._category(folder) for folder in sorted(self.amazon.iterdir()) if folder.is_dir()}

    @cached_property
    def films(self) -> Labelled:
        """The reviews of IMDB."""
        return self._table(cast(Path, self.imdb), "t", "s")

    @property
    def tests(self) -> dict[str, Labelled]:
        """The test texts of every domain, short ones first, so that batches need little padding."""
        found = {name: _part(one, 0, self.test_texts) for name, one in self.reviews.items()}
        if self.sst2 is not None:
            found["sst2"] = _part(self._table(self.sst2 / "test.tsv", "0", "1"), 0, self.test_texts)
        if self.imdb is not None:
            found["imdb"] = _part(self.films, 0, self.test_texts)
        return {name: _by_length(*one) for name, one in found.items()}

    @property
    def validation(self) -> dict[str, Labelled]:
        """Texts on which thresholds are set, of the categories that networks are trained on."""
        return {name: _part(self.reviews[name], self.test_texts, 2 * self.test_texts) for name in self.categories}

    def training(self, category: str, share: float) -> Labelled:
        """Return a share of the training texts of a category."""
        start = 2 * self.test_texts
        return _part(self.reviews[category], start, start + round(share * self.texts))

    @cached_property
    def vocabulary(self) -> list[str]:
        """The words that networks know, the same ones for all."""
        return make_vocabulary((text for name in self.categories for text in self.training(name, 1.0)[0]), WORDS)

    def shifts(self) -> dict[str, str]:
        """Return the neighbourhoods, at the paper's magnitudes."""
        words = self.out / "vocabulary.txt"
        write_atomically(words, " ".join(self.vocabulary[3:]))
        found = {
            "EDA": "eda@2" + (f"[wordnet={self.wordnet}]" if self.wordnet else ""),
            "RandRep": f"random_replacement@2[vocabulary={words}]",
        }
        if self.imdb is not None and find_spec("transformers") is not None:
            texts, _ = _part(self.films, self.test_texts, self.test_texts + 20_000)
            folder = masked_model(
                self.out / "masked-model", texts, steps=self.steps, device=self.device, seed=self.seed
            )
            found = {"SSMBA": f"ssmba@2[model={folder},device={self.device}]", **found}
        return found

    def views_by_domain(self) -> dict[str, dict[str, list[str]]]:
        """Return the views of every test text by domain and neighbourhood, which are made once for all networks."""
        near = self.shifts()
        return {
            domain: {name: self._views(domain, texts, name, shift) for name, shift in near.items()}
            for domain, (texts, _) in self.tests.items()
        }

    def _views(self, domain: str, texts: list[str], name: str, shift: str) -> list[str]:
        """Return the views of all texts of a domain, view by view, from the run's folder if they are there."""
        path = self.out / "views" / f"{domain}-{name}-{len(texts)}-{self.length}-{self.views}.json"
        if not path.is_file():
            began = time.process_time()
            made: Any = shifts.parse(shift)
            views = made(self.views * texts, view_keys(torch.arange(len(texts)), self.views), seed=self.seed)
            write_atomically(path, json.dumps(views))
            print(f"views of {domain} by {name}: {time.process_time() - began:.0f} s", flush=True)
        found: list[str] = json.loads(path.read_text("utf-8"))
        return found

    def _category(self, folder: Path) -> Labelled:
        kinds = ("negative", "positive")
        files = [(folder / f"review_{kind}").read_text("utf-8", errors="replace").splitlines() for kind in kinds]
        rows = [(line, label) for label, lines in enumerate(files) for line in lines if line.strip()]
        return self._mixed(rows)

    def _table(self, path: Path, text_column: str, label_column: str) -> Labelled:
        """Return the texts of a labelled file; its classes are in the order negative, positive."""
        data = cast(TextSet, load_data(path, text_column=text_column, label_column=label_column))
        return self._mixed(list(zip(map(str, data.texts), cast(Tensor, data.labels).tolist(), strict=True)))

    def _mixed(self, rows: Sequence[tuple[str, int]]) -> Labelled:
        """Return texts, cut, and labels in random order: files are often sorted by label."""
        order = np.random.default_rng(self.seed).permutation(len(rows)).tolist()
        return [self._cut(rows[place][0]) for place in order], [rows[place][1] for place in order]

    def _cut(self, text: str) -> str:
        return " ".join(text.replace("<br />", " ").split()[: self.length])


class Pool:
    """A worker of `runs` that trains a network and measures it on every domain."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        reader = TextCNN(bench.vocabulary, embedding=1, width=1, hidden=1, max_length=2 * bench.length)
        self.validation = {name: Domain.of(reader, one, {}) for name, one in bench.validation.items()}
        views = bench.views_by_domain()
        self.tests = {domain: Domain.of(reader, one, views[domain]) for domain, one in bench.tests.items()}

    def measure(self, cell: Cell) -> Row:
        """Train the cell's network and return its accuracy and every measure by test domain."""
        began, losses = time.process_time(), []
        model = train_text_cnn(
            cast(TextSet, load_data(self.bench.training(cast(str, cell["train"]), cast(float, cell["share"])))),
            epochs=cast(int, cell["epochs"]),
            until=CONVERGED,
            batch_size=cast(int, cell["batch_size"]),
            weight_decay=cast(float, cell["weight_decay"]),
            label_noise=cast(float, cell["label_noise"]),
            lr=3e-3,
            vocabulary=self.bench.vocabulary,
            seed=1000 * cast(int, cell["seed"]) + cast(int, cell["number"]),
            device=self.bench.device,
            watch=lambda _, loss: losses.append(loss),
            embedding=64,
            hidden=64,
            width=cell["width"],
            depth=cell["depth"],
            dropout=cell["dropout"],
            max_length=2 * self.bench.length,  # insertions make texts longer
        )
        source = self.validation[cast(str, cell["train"])]
        logits = _answers(model, source.own, self.bench.device)
        right = logits.argmax(1) == source.labels
        thresholds = {kind: atc_threshold(score(logits, kind), right) for kind in ("confidence", "entropy")}
        domains = {name: self._measured(model, domain, thresholds) for name, domain in self.tests.items()}
        spent = time.process_time() - began
        return {"loss": losses[-1], "epochs": len(losses), "seconds": spent, "domains": cast(Json, domains)}

    def _measured(self, model: TextCNN, domain: Domain, thresholds: Mapping[str, float]) -> dict[str, Json]:
        logits = _answers(model, domain.own, self.bench.device)
        own = logits.argmax(1)
        measures: dict[str, Json] = {}
        for name, batches in domain.views.items():
            votes = _answers(model, batches, self.bench.device).argmax(1).reshape(self.bench.views, len(own)).T
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


def _part(reviews: Labelled, start: int, stop: int) -> Labelled:
    texts, labels = reviews
    return texts[start:stop], labels[start:stop]


def _by_length(texts: list[str], labels: list[int]) -> Labelled:
    order = sorted(range(len(texts)), key=lambda place: len(texts[place].split()))
    return [texts[place] for place in order], [labels[place] for place in order]


def standings(converged: Sequence[tuple[Cell, Row]], rows: Sequence[tuple[Cell, Row]]) -> str:
    """Return macro tau on other categories, as in the paper's table 2c, on far domains, and of all networks."""
    away = [one for one in records(converged) if one.measure in PAPER]
    groups = {
        "other categories": [one for one in away if one.test not in FAR],
        **{name: [one for one in away if one.test == name] for name in FAR},
        "all domains, all networks": [one for one in records(rows) if one.measure in PAPER],
    }
    taus = [{one.measure: one.macro_tau for one in evaluate(some)} for some in groups.values()]
    lines = [f"| macro tau | {' | '.join(groups)} |", f"|---{'|---' * len(groups)}|"]
    measures = [name for name in PAPER if name in taus[0]]
    return "\n".join(
        [*lines, *(f"| {name} | {' | '.join(str(found.get(name, '')) for found in taus)} |" for name in measures)]
    )


def spreads(rows: Sequence[tuple[Cell, Row]]) -> str:
    """Return a table of what there is to rank: by test domain, how far networks of one category differ."""
    lines = ["| test domain | accuracy | spread | spread of NI-EDA |", "|---|---|---|---|"]
    for test in _domains(rows[0][1]):
        groups = _by_category(rows, test)
        accuracies = [[100 * found["accuracy"] for _, found in some] for some in groups]
        values = [[100 * found["measures"]["NI-EDA"] for _, found in some] for some in groups]
        mean = np.mean([value for some in accuracies for value in some])
        lines.append(f"| {test} | {mean:.1f} | {_deviation(accuracies):.1f} | {_deviation(values):.1f} |")
    return "\n".join(lines)


def influences(rows: Sequence[tuple[Cell, Row]]) -> str:
    """Return a table of what settings move: their tau with accuracy and measures, the mean over pairs of domains."""
    tests = _domains(rows[0][1])
    measures = [name for name in PAPER if name in next(iter(tests.values()))["measures"]]
    lines = [f"| setting | accuracy | {' | '.join(measures)} |", f"|---|---{'|---' * len(measures)}|"]
    for setting in SETTINGS:
        taus: dict[str, list[float]] = {name: [] for name in ("accuracy", *measures)}
        for test in tests:
            for some in _by_category(rows, test):
                values = [cast(float, cell[setting]) for cell, _ in some]
                for name in taus:
                    tau = kendall_tau(values, [one["measures"].get(name, one["accuracy"]) for _, one in some])
                    taus[name] += [] if tau is None else [tau]
        lines.append(f"| {setting} | {' | '.join(f'{np.mean(some):+.2f}' for some in taus.values())} |")
    return "\n".join(lines)


def _domains(row: Row) -> dict[str, Any]:
    return cast("dict[str, Any]", row["domains"])


def _by_category(rows: Sequence[tuple[Cell, Row]], test: str) -> list[list[tuple[Cell, dict[str, Any]]]]:
    """Return what was found on a test domain, by the other categories that networks were trained on."""
    trains = sorted({str(cell["train"]) for cell, _ in rows} - {test})
    return [[(cell, _domains(row)[test]) for cell, row in rows if cell["train"] == train] for train in trains]


def _deviation(groups: Sequence[Sequence[float]]) -> float:
    return float(np.mean([np.std(some, ddof=1) for some in groups if len(some) > 1]))


if __name__ == "__main__":
    main()
