"""Volpi & Murino 2019: accuracy under the worst tuples of transformations that searches find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.reproduce import papers
from benchmarks.reproduce.markdown import MISSING, beside, markdown
from benchmarks.reproduce.tables.files import Files, figures


def worst_case(
    files: Files,
    task: str,
    paper: Mapping[str, Mapping[str, float]],
    tests: Mapping[str, Callable[[Any], float | None]],
) -> str:
    """Tables 1, 3, 4 and 5 of paper 003: a row per test, a column per recipe."""
    recipes = ("erm", "rda", "rsda", "esda", "rda-mixed", "rsda-mixed", "esda-mixed")
    found = {recipe: figures(files, f"worst-case-{task}-{recipe}") for recipe in recipes}
    found = {recipe: some for recipe, some in found.items() if some}
    if not found:
        return MISSING
    rows = [
        [test, *(beside(read(some), paper.get(test, {}).get(recipe)) for recipe, some in found.items())]
        for test, read in tests.items()
    ]
    return markdown(["test", *(recipe.replace("-", ", ") for recipe in found)], rows)


def _searched(name: str, value: str = "worst") -> Callable[[Any], float | None]:
    return lambda found: found.get(name, {}).get(value)


def _accuracy(name: str) -> Callable[[Any], float | None]:
    return lambda found: found.get("accuracy", {}).get(name)


SEARCHED = {"original": _accuracy("original")} | {name: _searched(name) for name in ("RS", "ES", "ES, as published")}


def mnist(files: Files) -> str:
    """Tables 1 and 3 of paper 003."""
    others = {name: _accuracy(name) for name in ("negative", "USPS")}
    return worst_case(files, "mnist", papers.MNIST, {**SEARCHED, **others})


def cifar(files: Files) -> str:
    """Table 4 of paper 003."""
    other = "ImageNet as CIFAR-10"
    return worst_case(files, "cifar", papers.CIFAR, {**SEARCHED, other: _accuracy(other)})


def camvid(files: Files) -> str:
    """Table 5 of paper 003."""
    tests = {"original": _searched("RS", "clean"), "RS": _searched("RS"), "ES": _searched("ES")}
    return worst_case(files, "camvid", papers.CAMVID, tests)


def faces(files: Files) -> str:
    """Table 6 of paper 003."""
    found = figures(files, "worst-case-faces")
    first = next(iter(found.values()), None)
    rows = [] if first is None else [["original", beside(first["clean"], papers.FACES["original"])]]
    rows += [[name, beside(row["worst"], papers.FACES.get(name))] for name, row in found.items()]
    return markdown(["test", "faces found (paper)"], rows)
