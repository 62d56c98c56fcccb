"""The domains of a pool of text classifiers: categories of product reviews, SST-2 and IMDB, and views of their texts.

`amazon/` has one folder per category with `review_positive` and `review_negative`, a review a line; `sst2/` has
`test.tsv` (text, label); `reviews.json`, of IMDB, is a list of objects with a text `t` and a label `s`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from benchmarks.masked_model import masked_model
from shiftproof import shifts
from shiftproof.data import as_texts, load_data
from shiftproof.estimators.neighborhoods import view_keys
from shiftproof.models.networks.text_cnn import make_vocabulary
from shiftproof.runs import write_atomically

FAR = ("sst2", "imdb")
"""Test domains that are no reviews of products."""

WORDS = 8000
"""Words the networks know: the most frequent ones of all training texts."""

ABLATED = "video"
"""The category on which sizes, views and magnitudes are varied, which no network is trained on."""

MAGNITUDES = {"7%": 1, "15%": 2, "25%": 3, "40%": 4, "60%": 5}
"""Share of the tokens that SSMBA corrupts -> severity."""

READ_BY_MASKED_MODEL = 20_000
"""Reviews of IMDB on which the masked language model is trained, none of them a test text."""

Labelled: TypeAlias = tuple[list[str], list[int]]


@dataclass(frozen=True)
class TextDomains:
    """Where the sets are, and how much of them is used.

    A category has `test_texts` to test on, `validation_texts` for thresholds and `texts` to train on, at most.
    """

    amazon: Path
    sst2: Path | None
    imdb: Path | None
    wordnet: Path | None
    categories: tuple[str, ...]
    texts: int
    test_texts: int
    validation_texts: int
    length: int
    views: int
    steps: int
    device: str
    seed: int
    out: Path

    @property
    def prints(self) -> dict[str, str]:
        """What changes with anything that changes a row: the numbers, the texts and their neighbourhoods."""
        numbers = {name: str(getattr(self, name)) for name in ("length", "views", "steps", "seed")}
        training = {name: self.training(name) for name in self.categories}
        sets = {"training": training, "validation": self.validation, "test": self.tests}
        texts = {
            f"{part} {name}": load_data(some).fingerprint
            for part, found in sets.items()
            for name, some in found.items()
        }
        return {**numbers, **texts, "wordnet": str(self.wordnet is not None), "near": ",".join(self.neighborhoods)}

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
        end = self.test_texts + self.validation_texts
        return {name: _part(self.reviews[name], self.test_texts, end) for name in self.categories}

    def training(self, category: str, share: float = 1.0) -> Labelled:
        """Return a share of the training texts of a category."""
        start = self.test_texts + self.validation_texts
        return _part(self.reviews[category], start, start + round(share * self.texts))

    @cached_property
    def vocabulary(self) -> list[str]:
        """The words that networks know, the same ones for all."""
        return make_vocabulary((text for name in self.categories for text in self.training(name)[0]), WORDS)

    @cached_property
    def neighborhoods(self) -> dict[str, str]:
        """Name -> shift, at the paper's magnitudes; SSMBA's masked language model is trained if it is not there."""
        words = self.out / "vocabulary.txt"
        write_atomically(words, " ".join(self.vocabulary[3:]))
        found = {
            "EDA": "eda@2" + (f"[wordnet={self.wordnet}]" if self.wordnet else ""),
            "RandRep": f"random_replacement@2[vocabulary={words}]",
        }
        if self.imdb is not None and find_spec("transformers") is not None:
            texts, _ = _part(self.films, self.test_texts, self.test_texts + READ_BY_MASKED_MODEL)
            folder = masked_model(
                self.out / "masked-model", texts, steps=self.steps, device=self.device, seed=self.seed
            )
            found = {"SSMBA": f"ssmba@2[model={folder},device={self.device}]", **found}
        return found

    def views_by_domain(self) -> dict[str, dict[str, list[str]]]:
        """Return the views of every test text by domain and neighbourhood, which are made once for all networks."""
        return {
            domain: {name: self._views(domain, texts, name, shift) for name, shift in self.neighborhoods.items()}
            for domain, (texts, _) in self.tests.items()
        }

    def magnitudes(self) -> dict[str, list[str]]:
        """Return the views by SSMBA of the texts of one category by the share of tokens corrupted; none without it."""
        shift = self.neighborhoods.get("SSMBA")
        if shift is None or ABLATED not in self.reviews:
            return {}
        texts, _ = self.tests[ABLATED]
        made = {share: shift.replace("@2", f"@{severity}") for share, severity in MAGNITUDES.items() if severity != 2}
        return {share: self._views(ABLATED, texts, f"SSMBA-{share[:-1]}", one) for share, one in made.items()}

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
        data = as_texts(load_data(path, text_column=text_column, label_column=label_column))
        return self._mixed(list(zip(map(str, data.texts), cast(Tensor, data.labels).tolist(), strict=True)))

    def _mixed(self, rows: Sequence[tuple[str, int]]) -> Labelled:
        """Return texts, cut, and labels in random order: files are often sorted by label."""
        order = np.random.default_rng(self.seed).permutation(len(rows)).tolist()
        return [self._cut(rows[place][0]) for place in order], [rows[place][1] for place in order]

    def _cut(self, text: str) -> str:
        return " ".join(text.replace("<br />", " ").split()[: self.length])


def _part(reviews: Labelled, start: int, stop: int) -> Labelled:
    texts, labels = reviews
    return texts[start:stop], labels[start:stop]


def _by_length(texts: list[str], labels: list[int]) -> Labelled:
    order = sorted(range(len(texts)), key=lambda place: len(texts[place].split()))
    return [texts[place] for place in order], [labels[place] for place in order]
