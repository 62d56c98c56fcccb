"""The tables of docs/reproduction.md: a module for each paper, a function for each table, from figures to Markdown."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.reproduce.tables import (
    certificates,
    claims,
    costs,
    estimation,
    sentence_pairs,
    statistics,
    streams,
    tested,
    worst_case,
)
from benchmarks.reproduce.tables.files import Files

TABLES: dict[str, Callable[[Files], str]] = {
    "claims": claims.claims,
    "causes": claims.causes,
    "not-run": claims.not_run,
    "adaptation": statistics.adaptation,
    "mixture": statistics.mixture,
    "norms": statistics.norms,
    "priors": statistics.priors,
    "regression": statistics.regression,
    "linearity": statistics.linearity,
    "grid": statistics.grid,
    "streams": streams.streams,
    "ccc": streams.ccc,
    "cells": streams.cells,
    "cells-vit": lambda files: streams.cells(files, "cifar10-vit"),
    "cells-tenfold": lambda files: streams.cells(files, "demo x10"),
    "orders": streams.orders,
    "imagenet": streams.imagenet,
    "resets": streams.resets,
    "margins": streams.margins,
    "margins-cin-c": lambda files: streams.margins(files, "streams-margins-cin-c"),
    "certificates": certificates.certificates,
    "equal": certificates.equal,
    "deep": certificates.deep,
    "differences": certificates.differences,
    "waves": certificates.waves,
    "named": certificates.named,
    "mnist": worst_case.mnist,
    "cifar": worst_case.cifar,
    "camvid": worst_case.camvid,
    "camvid-causes": tested.camvid_causes,
    "faces": worst_case.faces,
    "estimation-cifar": estimation.cifar,
    "estimation-cifar-causes": tested.strengths_of_shift,
    "estimation-transformations": tested.transformations,
    "estimation-digits": estimation.digits,
    "estimation-text": estimation.text,
    "estimation-text-heads": lambda files: estimation.text(files, "head"),
    "estimation-text-accuracies": estimation.text_accuracies,
    "estimation-text-pools": estimation.text_pools,
    "estimation-text-ablations": estimation.text_ablations,
    "estimation-text-domains": estimation.text_by_domain,
    "estimation-pairs": sentence_pairs.scores,
    "estimation-pairs-accuracies": sentence_pairs.accuracies,
    "estimation-pairs-pools": sentence_pairs.pools,
    "hypersphere": estimation.hypersphere,
    "costs": costs.costs,
    "reductions": costs.reductions,
}
"""Mark -> the table between it and its end."""
