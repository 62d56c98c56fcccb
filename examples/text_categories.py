"""Test a sentiment classifier on other product categories: its loss of accuracy, and the estimate without labels.

    python examples/text_categories.py kitchen.csv electronics.csv books.csv

Every file is a table of labelled reviews (columns text and label; `--text-column` and `--label-column` name others), or
a folder with one sub-folder per class. A small text CNN is trained on most of the first category, which takes a minute
on a CPU. Its accuracy on every category is then estimated without labels, from the rest of the first one, and compared
with the truth. `--save folder` keeps the network: `shiftproof audit --model folder --data books.csv` audits it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import cast

from torch import Tensor

from shiftproof import load_data
from shiftproof.data import TextSet, as_texts
from shiftproof.estimators import Estimator
from shiftproof.models import logits
from shiftproof.models.networks.text_cnn import TextCNN
from shiftproof.training.text import train_text_cnn


def main() -> None:
    """Train on the first category and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("categories", nargs="+", help="tables or folders of labelled reviews, the first to train on")
    parser.add_argument("--text-column")
    parser.add_argument("--label-column")
    parser.add_argument("--texts", type=int, default=500, help="reviews of a category to test on")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()

    def load(category: str) -> TextSet:
        return as_texts(load_data(category, text_column=options.text_column, label_column=options.label_column))

    first = load(options.categories[0])
    held = first.take(2 * options.texts, seed=1)
    known = set(held.keys.tolist())
    training = first.subset([place for place, key in enumerate(first.keys.tolist()) if key not in known])
    model = train_text_cnn(
        training,
        epochs=options.epochs,
        lr=3e-3,
        embedding=64,
        width=32,
        hidden=64,
        max_length=200,
        on_progress=lambda epoch, loss: print(f"epoch {epoch}: loss {loss:.3f}", flush=True),
    )
    if options.save is not None:
        model.save(options.save)
    source = held.subset(range(0, len(held), 2))
    estimator = Estimator.fit(model, source)
    own = held.subset(range(1, len(held), 2))
    targets = {first.name: own, **{load(one).name: load(one) for one in options.categories[1:]}}
    print(f"\n{'category':<24} {'estimated':>9} {'80% interval':>16} {'true':>6}  by")
    for name, data in targets.items():
        target = data.take(options.texts, seed=1)
        found = estimator(target)
        bounds, truth = f"{100 * found.low:.1f} to {100 * found.high:.1f}", 100 * accuracy(model, target)
        print(f"{name:<24} {100 * found.accuracy:>9.1f} {bounds:>16} {truth:>6.1f}  {found.method}")
        for warning in found.warnings:
            print(f"  {warning}")


def accuracy(model: TextCNN, data: TextSet) -> float:
    """Return the share of right answers on a labelled set."""
    predicted = logits(model, data.texts).argmax(1)
    return float(predicted.eq(cast(Tensor, data.labels)).double().mean())


if __name__ == "__main__":
    main()
