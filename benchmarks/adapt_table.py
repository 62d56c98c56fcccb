"""What adapting wins: accuracy of every method under the common corruptions, and of priors for small batches.

    python benchmarks/adapt_table.py --out folder                                  # the embedded demo images
    python benchmarks/adapt_table.py --data test.npz --device cuda --out folder    # CIFAR-10's test images

Prints two tables in Markdown, for docs/guide/adaptation.md. Interrupted, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shiftproof import shifts
from shiftproof.comparisons.methods import MethodComparison, compare_methods

METHODS = "bn,tent,rpl,cpl,slr,eta,eata,rdumb,sar,roid,deyo,cotta,rotta,cmf,lame,t3a"
PRIORS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)


def mean(found: MethodComparison, method: str) -> float:
    """Return the mean accuracy of a method over the shifts, in percent."""
    return 100 * sum(found.accuracies[method, shift].value for shift in found.shifts) / len(found.shifts)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--data", default="demo")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--images", type=int)
    parser.add_argument("--severity", type=float, default=5)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--part", choices=("all", "methods", "priors"), default="all")
    parser.add_argument("--small-batch", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("adapt-table"))
    options = parser.parse_args()
    labels = [f"{name}@{options.severity:g}" for name in shifts.names("common")]
    given = {"shifts": labels, "images": options.images, "device": options.device}
    if options.part != "priors":
        tell_methods(options, given)
    if options.part != "methods":
        tell_priors(options, given)


def tell_methods(options: argparse.Namespace, given: Mapping[str, Any]) -> None:
    """Print a row per method."""
    found = compare_methods(
        options.model, options.data, methods=options.methods.split(","), out=options.out / "methods", **given
    )
    print(
        "| method | mean accuracy, % | points won | worst corruption, % | time per batch |\n|---|---:|---:|---:|---:|"
    )
    for method in found.methods:
        if method not in found.reasons:
            worst = 100 * min(found.accuracies[method, shift].value for shift in found.shifts)
            gain, cost = found.gain(method), found.costs[method]
            print(f"| {method} | {mean(found, method):.1f} | {100 * (gain or 0):+.1f} | {worst:.1f} | {cost:.1f}x |")
    for method, reason in found.reasons.items():
        print(f"{method}: {reason}")


def tell_priors(options: argparse.Namespace, given: Mapping[str, Any]) -> None:
    """Print a row per prior."""
    print(f"\n| prior N | accuracy with batches of {options.small_batch}, % |\n|---:|---:|")
    for prior in (*PRIORS, "auto"):
        small = compare_methods(
            options.model,
            options.data,
            methods=["bn"],
            batch_size=options.small_batch,
            options={"prior": prior},
            out=options.out / "priors",
            **given,
        )
        if prior == 0:
            print(f"| source alone | {mean(small, 'source'):.1f} |")
        print(f"| {prior} | {mean(small, 'bn'):.1f} |", flush=True)


if __name__ == "__main__":
    main()
