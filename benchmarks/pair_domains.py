"""The domains of a pool of classifiers of sentence pairs (natural language inference), and views of their sentences.

`sick/` has `SICK_train.txt`, `SICK_trial.txt` and `SICK_test_annotated.txt` as published; `nli/` has `original/`,
`revised_premise/` and `revised_hypothesis/` with `train.tsv`, `dev.tsv` and `test.tsv` (Kaushik et al. 2020: pairs of
SNLI, and the same with a premise or a hypothesis that people rewrote so that the label changes).

SICK was made from captions of photographs and of videos. Its files do not say which pair is from which, but its numbers
do: a sentence has 12 words on average in pairs 1 to 1,090, 7.5 in 1,100 to 5,900, and 12 from 6,000 on.
"""

from __future__ import annotations

import csv
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.masked_model import masked_model
from shiftproof import shifts
from shiftproof.estimators.neighborhoods import view_keys
from shiftproof.models.networks.text_cnn import make_vocabulary
from shiftproof.runs import write_atomically

CLASSES = ("entailment", "neutral", "contradiction")
SICK = {"photographs": ((1, 1_090), (6_000, 9_500)), "videos": ((1_100, 5_900),)}
"""Domain of SICK -> numbers of its pairs; the last pairs of the set, which join sentences of both, are left out."""
SNLI = {"SNLI": "original", "new premises": "revised_premise", "new hypotheses": "revised_hypothesis"}
"""Domain -> its folder."""
DOMAINS = (*SICK, *SNLI)
PARTS = {
    "training": ("SICK_train.txt", "train.tsv"),
    "validation": ("SICK_trial.txt", "dev.tsv"),
    "test": ("SICK_test_annotated.txt", "test.tsv"),
}
"""Part -> its files in SICK and in SNLI."""
WORDS = 8_000


class Pairs(NamedTuple):
    """Premises, hypotheses and labels, in random order."""

    premises: list[str]
    hypotheses: list[str]
    labels: list[int]

    @property
    def sentences(self) -> list[str]:
        """All premises, then all hypotheses."""
        return [*self.premises, *self.hypotheses]


@dataclass(frozen=True)
class PairDomains:
    """Where the sets are, and how much of them is used: pairs to train on, for thresholds, and to test on, at most."""

    sick: Path
    nli: Path
    wordnet: Path
    pairs: int
    validation_pairs: int
    test_pairs: int
    views: int
    steps: int
    device: str
    seed: int
    out: Path

    @cached_property
    def sets(self) -> dict[str, dict[str, Pairs]]:
        """Part -> domain -> its pairs."""
        counts = {"training": self.pairs, "validation": self.validation_pairs, "test": self.test_pairs}
        return {part: {name: self._mixed(self._rows(name, part), counts[part]) for name in DOMAINS} for part in PARTS}

    @property
    def prints(self) -> dict[str, str]:
        """What changes with anything that changes a row."""
        numbers = {name: str(getattr(self, name)) for name in ("views", "steps", "seed")}
        texts = json.dumps({part: {name: list(one) for name, one in some.items()} for part, some in self.sets.items()})
        return {**numbers, "pairs": hashlib.sha256(texts.encode()).hexdigest()}

    @property
    def about(self) -> dict[str, dict[str, float]]:
        """By test domain: pairs, words of a sentence, and the share of its most frequent label."""
        return {
            name: {
                "pairs": len(pairs.labels),
                "words": float(np.mean([len(one.split()) for one in pairs.sentences])),
                "most frequent label": max(np.bincount(pairs.labels)) / len(pairs.labels),
            }
            for name, pairs in self.sets["test"].items()
        }

    @cached_property
    def neighborhoods(self) -> dict[str, str]:
        """Name -> shift, at the paper's magnitudes; SSMBA's masked language model is trained on the training pairs."""
        read = sorted({one for pairs in self.sets["training"].values() for one in pairs.sentences})
        words = self.out / "vocabulary.txt"
        write_atomically(words, " ".join(make_vocabulary(read, WORDS)[3:]))
        model = masked_model(self.out / "masked-model", read, steps=self.steps, device=self.device, seed=self.seed)
        return {
            "SSMBA": f"ssmba@2[model={model},device={self.device}]",
            "EDA": f"eda@2[wordnet={self.wordnet}]",
            "RandRep": f"random_replacement@2[vocabulary={words}]",
        }

    def views_of(self, name: str) -> dict[str, list[str]]:
        """Return the views of all sentences of a test domain by neighbourhood, view by view; made once."""
        return {near: self._views(name, near, shift) for near, shift in self.neighborhoods.items()}

    def _views(self, name: str, near: str, shift: str) -> list[str]:
        sentences = self.sets["test"][name].sentences
        path = self.out / "views" / f"{name.replace(' ', '-')}-{near}-{len(sentences)}-{self.views}.json"
        if not path.is_file():
            began = time.process_time()
            made: Any = shifts.parse(shift)
            views = made(self.views * sentences, view_keys(torch.arange(len(sentences)), self.views), seed=self.seed)
            write_atomically(path, json.dumps(views))
            print(f"views of {name} by {near}: {time.process_time() - began:.0f} s", flush=True)
        found: list[str] = json.loads(path.read_text("utf-8"))
        return found

    def _rows(self, name: str, part: str) -> Iterator[tuple[str, str, int]]:
        """Yield the pairs of a domain in the order of its file; those without a label of three are left out."""
        sick, snli = PARTS[part]
        if name in SICK:
            for row in _table(self.sick / sick):
                if any(low <= int(row["pair_ID"]) <= high for low, high in SICK[name]):
                    yield row["sentence_A"], row["sentence_B"], CLASSES.index(row["entailment_judgment"].lower())
        else:
            for row in _table(self.nli / SNLI[name] / snli):
                yield row["sentence1"], row["sentence2"], CLASSES.index(row["gold_label"])

    def _mixed(self, rows: Iterator[tuple[str, str, int]], count: int) -> Pairs:
        """Return so many pairs in random order."""
        some: Sequence[tuple[str, str, int]] = list(rows)
        order = np.random.default_rng(self.seed).permutation(len(some))[:count].tolist()
        return Pairs(*(list(column) for column in zip(*(some[place] for place in order), strict=True)))


def _table(path: Path) -> Iterator[Mapping[str, str]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
