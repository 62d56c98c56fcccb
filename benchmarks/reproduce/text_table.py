"""Ng et al. 2023, table 2c, CNN: which measure tells the accuracy of sentiment classifiers on other domains.

    python -m benchmarks.reproduce.text_table --data data

A pool of text CNNs trained on four categories of Amazon's reviews and tested on five, on SST-2 and on IMDB. NI-SSMBA
needs `transformers` (`pip install 'shiftproof[text]'`), and trains its masked language model on IMDB first.
"""

from __future__ import annotations

from typing import Any

from benchmarks.pool import as_json, records
from benchmarks.reproduce.record import Figures, options_of
from benchmarks.text_domains import TextDomains
from benchmarks.text_findings import influences, spreads, standings
from benchmarks.text_pool import CATEGORIES, CONVERGED, MEASURES, SETTINGS, run_pool, those_converged
from shiftproof.estimators.protocol import evaluate

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"models": 8, "epochs": 1, "texts": 16, "test_texts": 8, "length": 10, "views": 1, "steps": 1},
    "sample": {"models": 8, "epochs": 6, "texts": 300, "test_texts": 100, "length": 20, "views": 2, "steps": 40},
    "short": {"models": 48, "epochs": 24, "texts": 2000, "test_texts": 1000, "length": 40, "views": 10, "steps": 700},
}


def main() -> None:
    """Train and measure the pool, or what is left of it, and write its scores."""
    options = options_of(__doc__, tuple(SIZES))
    size = dict(SIZES[options.size])
    models, epochs = size.pop("models"), size.pop("epochs")
    cut = [
        f"{models} small CNNs trained on four categories, at most {size['texts']:,} texts each, and tested on five, on "
        "SST-2 and on IMDB, two classes (paper: 2,418 on ten categories, five classes)",
        f"{size['test_texts']:,} test texts a domain, their first {size['length']} words, {size['views']} views each",
        f"networks that do not come below a cross entropy of {CONVERGED:g} in {epochs} epochs are left out",
        f"the masked language model of NI-SSMBA is a small one, trained here for {size['steps']:,} steps; no NI-BT",
    ]
    figures = Figures("estimation-text", options, cut)
    texts, out = options.data / "text", options.runs / figures.name / f"{options.size}-{options.seed}"
    domains = TextDomains(
        amazon=texts / "amazon",
        sst2=texts / "sst2",
        imdb=options.data / "imdb" / "reviews.json",
        wordnet=options.data / "wordnet",
        categories=CATEGORIES,
        device=options.device,
        seed=options.seed,
        out=out,
        **size,
    )
    rows = run_pool(domains, models=models, epochs=epochs, workers=options.workers, stop_at=figures.stop_at)
    converged = those_converged(rows) if options.size == "short" else rows
    figures.add("networks", {"kept": len(converged), "trained": len(rows), "planned": models})
    if not converged:
        return
    figures.add("accuracies", spreads(converged))
    figures.add("influences", influences(converged, SETTINGS, MEASURES))
    figures.add("macro tau", standings(converged, rows))
    figures.add("scores", as_json(evaluate(records(converged))))


if __name__ == "__main__":
    main()
