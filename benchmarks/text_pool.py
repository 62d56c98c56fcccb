"""Does invariance rank text classifiers? A pool of text CNNs over product categories, SST-2 and IMDB.

python benchmarks/text_pool.py --amazon amazon/ --sst2 sst2/ --imdb reviews.json --models 36 --out text-pool/

`amazon/` has one folder per category with `review_positive` and `review_negative`, a review a line; `sst2/` has
`test.tsv` (text, label); `reviews.json` is a list of objects with a text `t` and a label `s`. Networks differ in
category, depth, width, dropout, weight decay and batch size (Ng et al. 2023, table 6, small). Each is a cell of
a run: the same command goes on where it stopped. A small masked language model is trained on IMDB for NI-SSMBA, if
`transformers` is installed. The evaluation is that of section 4.3 (`shiftproof.estimators.protocol`), beside the
paper's table 2c.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from shiftproof import shifts
from shiftproof.data import TextSet, load_data
from shiftproof.estimators.evidence import Evidence, observe
from shiftproof.estimators.neighborhoods import view_keys
from shiftproof.estimators.protocol import Record, Scores, evaluate
from shiftproof.measures.estimation import atc_threshold, confidence, decision_negative_entropy, modal_share, score
from shiftproof.models.networks.text_cnn import TextCNN, make_vocabulary
from shiftproof.runs import Cell, Inline, Json, Plan, Row, Store, drive, write_atomically
from shiftproof.training.text import train_text_cnn

WORDS = 100
"""Words of a text that are used."""

PAPER = {
    "NI-SSMBA": (0.662, 1.93, 0.677, 0.689, 0.629),
    "NI-EDA": (0.641, 2.04, 0.664, 0.649, 0.611),
    "NI-RandRep": (0.409, 2.64, 0.544, 0.554, 0.439),
    "ATC-NE": (0.760, 2.47, 0.514, 0.633, 0.467),
    "ATC-MC": (0.761, 2.46, 0.517, 0.634, 0.467),
}
"""Table 2c of Ng et al. 2023, CNN: R2, MAE, macro, micro and ID tau, of 2,418 networks on ten categories."""


def main() -> None:
    """Train and measure what is missing of the pool, and print the scores of every measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--amazon", type=Path, required=True)
    parser.add_argument("--sst2", type=Path)
    parser.add_argument("--imdb", type=Path)
    parser.add_argument("--wordnet", help="folder of WordNet's files; without it EDA has a small list of synonyms")
    parser.add_argument("--categories", default="books,dvd,electronics,kitchen")
    parser.add_argument("--models", type=int, default=36)
    parser.add_argument("--texts", type=int, default=3000, help="training texts of a network")
    parser.add_argument("--test-texts", type=int, default=300, help="of each domain")
    parser.add_argument("--views", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=12, help="the most a network is trained")
    parser.add_argument("--steps", type=int, default=1000, help="of training the masked language model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("text-pool"))
    options = parser.parse_args()
    bench = Bench(
        options.amazon,
        options.sst2,
        options.imdb,
        options.wordnet,
        tuple(options.categories.split(",")),
        options.texts,
        options.test_texts,
        options.views,
        options.steps,
        options.device,
        options.seed,
        options.out,
    )
    recipes = (recipe(number, bench.categories, options.seed, options.epochs) for number in range(options.models))
    cells = tuple(Cell("pool", **one) for one in recipes)
    sizes = f"{options.texts},{options.test_texts},{options.views},{options.steps},{options.sst2 is not None}"
    began = time.monotonic()
    with Store(options.out, {"pool": "1"}) as store:
        plan = Plan(cells, {"sizes": f"{sizes},{options.imdb is not None},{options.wordnet is not None}"})
        found = drive(plan, store, bench, executor=Inline(), watch=_tell)
    rows = [(result.cell, result.row) for result in found if result.row is not None]
    print(f"\n{len(rows)} networks, {len(bench.categories)} categories, {time.monotonic() - began:.0f} s this time")
    _print(evaluate(record for cell, row in rows for record in _records(cell, row)))


def recipe(number: int, categories: Sequence[str], seed: int, epochs: int) -> dict[str, Json]:
    """Return the settings of one network of the pool, drawn from the paper's grid at small width."""
    rng = np.random.default_rng([seed, number])

    def one(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    return {
        "number": number,
        "train": categories[number % len(categories)],
        "batch_size": one(32, 64, 128),
        "depth": one(1, 2),
        "width": one(16, 32, 64),
        "dropout": one(0.0, 0.25, 0.5),
        "weight_decay": one(0.0, 1e-4, 5e-4),
        "epochs": epochs,
        "seed": seed,
    }


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
    views: int
    steps: int
    device: str
    seed: int
    out: Path

    def __call__(self) -> Pool:
        """Load the sets, and make the views of every test domain once for all networks."""
        return Pool(self)


class Pool:
    """A worker of `runs` that trains a network and measures it on every domain."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        reviews = {name: _category(bench.amazon / name, bench.seed) for name in bench.categories}
        held = 2 * bench.test_texts
        self.train = {name: (texts[held:][: bench.texts], labels[held:][: bench.texts])
                      for name, (texts, labels) in reviews.items()}  # fmt: skip
        self.validation = {name: _part(one, 0, bench.test_texts) for name, one in reviews.items()}
        self.test = {name: _part(one, bench.test_texts, held) for name, one in reviews.items()}
        if bench.sst2 is not None:
            found = load_data(bench.sst2 / "test.tsv", text_column="0", label_column="1")
            self.test["sst2"] = _cut(cast(TextSet, found.take(bench.test_texts, seed=bench.seed)))
        if bench.imdb is not None:
            found = load_data(bench.imdb, text_column="t", label_column="s")
            self.test["imdb"] = _cut(cast(TextSet, found.take(bench.test_texts, seed=bench.seed)))
        self.neighborhoods = {
            name: {domain: _views(bench, name, shift, domain, data) for domain, data in self.test.items()}
            for name, shift in _shifts(bench).items()
        }

    def measure(self, cell: Cell) -> Row:
        """Train the cell's network and return its accuracy and every measure by test domain."""
        texts, labels = self.train[cast(str, cell["train"])]
        model = train_text_cnn(
            cast(TextSet, load_data((texts, labels))),
            epochs=cast(int, cell["epochs"]),
            batch_size=cast(int, cell["batch_size"]),
            weight_decay=cast(float, cell["weight_decay"]),
            lr=3e-3,
            vocabulary=8000,
            seed=1000 * cast(int, cell["seed"]) + cast(int, cell["number"]),
            device=self.bench.device,
            embedding=64,
            hidden=64,
            width=cell["width"],
            depth=cell["depth"],
            dropout=cell["dropout"],
            max_length=WORDS + WORDS // 2,  # insertions make texts longer
        )
        source = self._seen(model, self.validation[cast(str, cell["train"])], None)
        thresholds = {
            kind: atc_threshold(score(source.logits, kind), source.correct) for kind in ("confidence", "entropy")
        }
        domains: dict[str, Json] = {}
        for name, data in self.test.items():
            measures: dict[str, float] = {}
            found = source
            for near, views in self.neighborhoods.items():
                found = self._seen(model, data, _Stored(views[name]))
                measures[f"NI-{near}"] = float(modal_share(found.shares).mean())
                measures[f"NE-{near}"] = float(decision_negative_entropy(found.shares).mean())
            for kind, short in (("confidence", "MC"), ("entropy", "NE")):
                measures[f"ATC-{short}"] = float((score(found.logits, kind) >= thresholds[kind]).mean())
            measures["average confidence"] = float(confidence(found.logits).mean())
            domains[name] = {"accuracy": found.accuracy, "measures": measures}
        return {"domains": domains}

    def _seen(self, model: TextCNN, data: TextSet, near: Callable[..., Any] | None) -> Evidence:
        return observe(
            model,
            data.batches(256, device=self.bench.device),
            neighborhood=near,
            n=self.bench.views,
            seed=self.bench.seed,
            batch_size=256,
        )


@dataclass(frozen=True)
class _Stored:
    """A neighbourhood whose views were made before."""

    views: Mapping[str, list[str]]

    def __call__(self, texts: list[str], keys: torch.Tensor, n: int, seed: int) -> list[str]:
        """Return n views of every text, view by view."""
        return [self.views[text][number] for number in range(n) for text in texts]


def _category(folder: Path, seed: int) -> tuple[list[str], list[str]]:
    """Return the reviews of a category and their labels, in random order."""
    rows = [
        (" ".join(line.split()[:WORDS]), kind)
        for kind in ("negative", "positive")
        for line in (folder / f"review_{kind}").read_text("utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    return [rows[place][0] for place in order], [rows[place][1] for place in order]


def _part(reviews: tuple[list[str], list[str]], start: int, stop: int) -> TextSet:
    texts, labels = reviews
    return cast(TextSet, load_data((texts[start:stop], labels[start:stop])))


def _cut(data: TextSet) -> TextSet:
    """Return a set whose texts are cut; its classes are in the order negative, positive."""
    return cast(TextSet, load_data(([" ".join(str(text).split()[:WORDS]) for text in data.texts], data.labels)))


def _shifts(bench: Bench) -> dict[str, str]:
    found = {
        "EDA": "eda@2" + (f"[wordnet={bench.wordnet}]" if bench.wordnet else ""),
        "RandRep": f"random_replacement@2[vocabulary={_vocabulary(bench)}]",
    }
    if bench.imdb is not None and find_spec("transformers") is not None:
        found = {"SSMBA": f"ssmba@2[model={_masked_model(bench)},device={bench.device}]", **found}
    return found


def _vocabulary(bench: Bench) -> Path:
    """Write the words of the first categories' reviews, from which random ones are drawn."""
    path = bench.out / "vocabulary.txt"
    if not path.is_file():
        texts = [text for name in bench.categories for text in _category(bench.amazon / name, bench.seed)[0][:1000]]
        write_atomically(path, " ".join(make_vocabulary(texts, 5000)[3:]))
    return path


def _views(bench: Bench, name: str, shift: str, domain: str, data: TextSet) -> dict[str, list[str]]:
    """Return the views of every text of a domain, from the run's folder if they are there."""
    path = bench.out / "views" / f"{domain}-{name}-{len(data)}-{bench.views}.json"
    if not path.is_file():
        began = time.monotonic()
        made: Any = shifts.parse(shift)
        texts = made(bench.views * data.texts, view_keys(data.keys, bench.views), seed=bench.seed)
        grouped = {str(text): texts[place :: len(data)] for place, text in enumerate(data.texts)}
        write_atomically(path, json.dumps(grouped))
        print(f"views of {domain} by {name}: {time.monotonic() - began:.0f} s", flush=True)
    views: dict[str, list[str]] = json.loads(path.read_text())
    return views


def _masked_model(bench: Bench) -> Path:
    """Return the folder of a small masked language model, trained on IMDB's reviews if it is not there."""
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    folder = bench.out / "masked-model"
    if (folder / "config.json").is_file():
        return folder
    rows = cast(TextSet, load_data(cast(Path, bench.imdb), text_column="t", label_column="s")).texts[:20_000]
    texts = [" ".join(str(text).replace("<br />", " ").split()[:WORDS]) for text in rows]
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    numbers = {word: number for number, word in enumerate([*marks, *make_vocabulary(texts, 8000)[3:]])}
    inside = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    inside.normalizer = normalizers.Lowercase()
    inside.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inside.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", numbers["[CLS]"]), ("[SEP]", numbers["[SEP]"])]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inside, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=2 * WORDS,
    )  # fmt: skip
    torch.manual_seed(bench.seed)
    model = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=len(numbers), hidden_size=96, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=192, max_position_embeddings=2 * WORDS,
        )
    ).to(bench.device)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rng = np.random.default_rng(bench.seed)
    began = time.monotonic()
    for step in range(bench.steps):
        chosen = [texts[place] for place in rng.integers(len(texts), size=16).tolist()]
        batch = tokenizer(chosen, padding=True, truncation=True, max_length=80, return_tensors="pt")
        ids, there = batch["input_ids"].to(bench.device), batch["attention_mask"].to(bench.device)
        masked = (torch.from_numpy(rng.random(ids.shape)).to(bench.device) < 0.15) & (ids >= len(marks))
        labels = torch.where(masked, ids, -100)
        loss = model(input_ids=ids.masked_fill(masked, numbers["[MASK]"]), attention_mask=there, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 200 == 0:
            print(
                f"masked model: step {step + 1}, loss {loss.item():.2f}, {time.monotonic() - began:.0f} s", flush=True
            )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _records(cell: Cell, row: Row) -> Iterator[Record]:
    for test, found in cast(dict[str, dict[str, Any]], row["domains"]).items():
        for measure, value in found["measures"].items():
            yield Record(
                f"model-{cell['number']}", "cnn", cast(str, cell["train"]), test, measure, value, found["accuracy"]
            )


def _tell(result: Any) -> None:
    if result.error is not None:
        print(f"model {result.cell['number']}: {result.error.splitlines()[-1]}", flush=True)
        return
    own = result.row["domains"][result.cell["train"]]["accuracy"]
    print(f"model {result.cell['number']}: {own:.3f} on {result.cell['train']}, {result.seconds:.0f} s", flush=True)


def _print(scores: tuple[Scores, ...]) -> None:
    names = ("r_squared", "mae", "macro_tau", "micro_tau", "id_tau")
    print("| measure | R2 | MAE | macro tau | micro tau | ID tau |\n|---|---|---|---|---|---|")
    for one in sorted(scores, key=lambda found: -(found.macro_tau.mean if found.macro_tau else -1)):
        cells = (getattr(one, name) for name in names)
        print(f"| {one.measure} | {' | '.join('' if cell is None else str(cell) for cell in cells)} |")
    for measure, row in PAPER.items():
        print(f"| {measure}, paper's | {' | '.join(f'{value:.3f}' for value in row)} |")


if __name__ == "__main__":
    main()
