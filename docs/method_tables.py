"""Sphinx directives that make tables of methods, so that the documents follow the registries and the figures.

```{method-departures}
```
```{adapter-chooser}
```
```{recipe-chooser}
```
```{estimator-chooser}
```
```{verb-table}
```
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shift_tables import Generated, code, table
from sphinx.application import Sphinx

from shiftproof.adapters import facts, method
from shiftproof.cli.commands import COMMANDS
from shiftproof.estimators import METHODS as ESTIMATORS
from shiftproof.models.named import cards
from shiftproof.training import RECIPES

DOCS = Path(__file__).parent
FIGURES = DOCS.parent / "benchmarks" / "reproduce" / "figures"
PAGES = {"ada": "tuples", "prime": "mixed", "spectra": "mixed", "rda": "tuples", "rsda": "tuples", "esda": "tuples"}
"""Recipes that share a page of another name."""


class Departures(Generated):
    """Where methods depart from their papers or released code."""

    def lines(self) -> Iterator[str]:
        """Yield a row per method that does."""
        rows = [(code(each.name), each.paper, each.departures) for each in facts() if each.departures]
        yield from table(("method", "paper", "how ours differs"), rows)


class AdapterChooser(Generated):
    """What each method of adaptation needs and costs, and how it did along a million images."""

    def lines(self) -> Iterator[str]:
        """Yield a row per method."""
        along = along_ccc()
        rows = []
        for each in facts():
            chosen, found = method(each.name), along.get(each.name)
            forward, backward = chosen.passes or (1, int(chosen.needs_gradients))
            fell = "" if found is None or found["collapsed_after"] is None else f"{found['collapsed_after']:,}"
            accuracy = "" if found is None else f"{100 * found['accuracy']:.1f}"
            pixels = "yes" if chosen.per_pixel else ""
            rows.append((code(each.name), each.needs, f"{forward:g} + {backward:g}", accuracy, fell, pixels))
        yield from table(("method", "needs", "passes", "CCC, %", "collapsed", "pixels"), rows)


class RecipeChooser(Generated):
    """What each recipe does and costs, and the radii of networks that come with the package."""

    def lines(self) -> Iterator[str]:
        """Yield a row per recipe."""
        found_cards = [card for card in cards().values() if "recipe" in card["training"]]
        measured = {card["training"]["recipe"]: card["measured"] for card in found_cards}
        rows = []
        for name in RECIPES:
            recipe, found = RECIPES[name], measured.get(name, {})
            stem = name.partition("+")[0]
            radii = [number(found.get("clean", {}).get("acr")), number(found.get("mACR on CIFAR-10-C"))]
            rows.append((f"[{code(name)}](recipes/{PAGES.get(stem, stem)}.md)", recipe.does, recipe.passes, *radii))
        yield from table(("recipe", "what it does", "passes", "clean ACR", "mACR"), rows)


class EstimatorChooser(Generated):
    """What each estimator reads, and how far it is from the truth."""

    def lines(self) -> Iterator[str]:
        """Yield a row per method, the best first."""
        errors = estimation_errors()
        names = sorted(ESTIMATORS, key=lambda name: float(errors.get(name, "inf")))
        rows = [(code("auto"), "chooses among them by calibration", "outputs", errors["auto"])]
        for name in names:
            known = ESTIMATORS[name]
            needs = "a second model" if known.second_model else "outputs"
            needs = "a module with batch norms" if "drift" in known.needs else needs
            needs = "outputs on views" if {"invariance", "decision_entropy"} & set(known.needs) else needs
            rows.append((code(name), known.does, needs, errors.get(name, "")))
        yield from table(("method", "what it reads", "needs", "MAE, points"), rows)


class Verbs(Generated):
    """Every command, with the function of the same name and its first sentence."""

    def lines(self) -> Iterator[str]:
        """Yield a row per command that is a verb."""
        rows = []
        for name, command in COMMANDS.items():
            verb, package = command.verb.rpartition(":")[2], command.verb.split(".")[1]
            if package != "cli":
                link = f"{{py:func}}`shiftproof.{verb} <shiftproof.{package}.{verb}>`"
                rows.append((code(f"shiftproof {name}"), link, command.summary))
        yield from table(("command", "function", "what it does"), rows)


def along_ccc() -> Mapping[str, Mapping[str, Any]]:
    """Return what methods reached along the long stream."""
    found = json.loads((FIGURES / "streams-ccc.json").read_text())["figures"]["1"]
    return {row["method"]: row for row in found}


def estimation_errors() -> dict[str, str]:
    """Return the mean error of each estimator on families left out, as the guide has it."""
    text = (DOCS / "guide" / "estimation.md").read_text()
    lines = iter(text.splitlines())
    next(line for line in lines if line.startswith("| method | all |"))
    next(lines)
    rows = (line.split("|") for line in iter(lambda: next(lines), ""))
    return {cells[1].strip(): cells[2].strip() for cells in rows}


def number(value: float | None) -> str:
    """Return a number with three digits, or nothing."""
    return "" if value is None else f"{value:.3f}"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    for name, directive in {
        "method-departures": Departures,
        "adapter-chooser": AdapterChooser,
        "recipe-chooser": RecipeChooser,
        "estimator-chooser": EstimatorChooser,
        "verb-table": Verbs,
    }.items():
        app.add_directive(name, directive)
    return {"parallel_read_safe": True}
