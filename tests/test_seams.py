"""What passes between rooms is typed: no text form is read back, and every cast has its reason."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import shiftproof

ROOT = Path(shiftproof.__file__).parent

READERS = {
    "adapters.views": "the option augment of a method, as the user writes it",
    "audits.audit_settings": "shifts of an audit, as the user wrote them; a run directory keeps the same texts",
    "certificates.conditions": "the shifts to certify under",
    "comparisons.methods": "the shifts to adapt to",
    "diagnoses.finding_failures": "the shifts to look for failures under",
    "estimators.estimating": "the shifts to calibrate on, of label maps",
    "estimators.estimator": "the shifts to calibrate on",
    "estimators.families": "the table of shifts to calibrate on",
    "estimators.neighborhoods": "a neighbourhood by its text form, and the table of those that have a name",
    "exports.suites": "the shifts of a copy",
    "exports.writing": "the shifts of a copy of texts",
    "hardening.weaknesses": "the table of augmentations against weaknesses",
    "searchers.space": "operations with levels, in the user's list or JSON file",
    "shifts.corrupting": "the shift of `corrupt` and of a transform",
    "training.feed": "augment of a recipe and framing of the settings, as the user writes them",
}
"""Modules that read the text form of a shift: doors at which a text of the user's comes in."""

CASTS = {
    "rows that a store gives back as JSON": {
        "audits.forecast", "audits.sections.adaptation", "audits.sections.adapted_errors", "audits.sections.certified",
        "audits.sections.certified_words", "audits.sections.chance",
        "audits.sections.clean", "audits.sections.corruptions_figures", "audits.sections.failures",
        "audits.sections.label_free",
        "audits.sections.confidence_under_shift", "audits.sections.half_sets",
        "audits.sections.label_free_figures", "audits.sections.mixups", "audits.sections.shift_statistics",
        "audits.sections.segmentation.map_certified", "audits.sections.segmentation.map_clean",
        "audits.sections.segmentation.map_label_free",
        "audits.sections.segmentation.map_measuring", "audits.sections.segmentation.map_pictures",
        "audits.sections.spectrum_figures", "audits.sections.stability",
        "audits.sections.worst_case_figures", "certificates.certifying", "certificates.certifying_maps",
        "certificates.spectral_analysis", "estimators.map_estimates",
        "comparisons.methods", "estimators.resuming", "exports.copies", "exports.writing", "runs.store",
        "searchers.evaluator", "streams.ccc.probing", "streams.ccc.surveying", "streams.trace", "training.running",
    },
    "what came through a pipe from a worker of ours": {"runs.hosting"},
    "a thing that `is_one` has looked at": {"registry"},
    "tensors that torch's stubs call modules": {"models.networks.text_cnn"},
}  # fmt: skip
"""Why there are casts, and in which modules."""


ANY = {
    "__init__": (1, "a module's `__getattr__`"),
    "adapters": (25, "what a method keeps is its own; options and state dicts"),
    "audits": (25, "what JSON and Plotly hold; inputs are images or texts; a pandas frame; a segmenter"),
    "certificates": (
        15,
        "a user's model is any callable; what JSON holds; options of rules and overloads",
    ),
    "cli": (58, "annotations and values that are inspected at run time"),
    "comparisons": (7, "options of methods, by name"),
    "data": (111, "foreign sets, tables and their items; a bare `Dataset` is of either kind"),
    "deferred": (4, "what a loader is given, by name"),
    "diagnoses": (6, "a user's model is any callable; a pandas frame"),
    "estimators": (53, "a user's model is any callable; inputs of either kind; state dicts; what JSON holds"),
    "exports": (12, "what a copy has read is its own; what JSON holds"),
    "hardening": (4, "what JSON holds; settings of the loop, by name; a module's `__getattr__`"),
    "models": (108, "a user's model is any callable and returns anything; its state is digested whatever it is"),
    "options": (43, "annotations and values that are inspected at run time"),
    "prediction_tasks": (8, "a user's model is any callable; a bare `Dataset` is of either kind"),
    "registry": (7, "things of any kind, by name"),
    "reports": (10, "what Plotly and templates hold"),
    "runs": (16, "tasks of any subject, through a pipe or a store"),
    "searchers": (
        32,
        "a service or a detector answers anything; options of searchers, by name; what JSON holds",
    ),
    "shifts": (44, "what a shift draws is its own; a bare `Shift` is of either kind; samples of any form"),
    "slices": (1, "columns of any kind of number or text"),
    "streams": (20, "options of streams, by name; state dicts"),
    "subjects": (2, "pickled state"),
    "training": (19, "options of recipes, by name; state dicts"),
}
"""How often `Any` stands in a package, at most, and why."""


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    """Return every module of the package by its name below it."""
    files = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in ROOT.rglob("*.py")}
    return {name: ast.parse(file.read_text("utf-8")) for name, file in files.items()}


def calls(tree: ast.Module, *names: str) -> Iterator[ast.Call]:
    """Yield the calls of functions by name, as `parse(...)` or `shifts.parse(...)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            called = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            owner = function.value if isinstance(function, ast.Attribute) else None
            ours = owner is None or (isinstance(owner, ast.Name) and owner.id in ("shifts", "catalogue"))
            if called in names and ours:
                yield node


def imports_parse_of_shifts(tree: ast.Module) -> bool:
    """Whether a module imports the reader of text forms by its name."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return any(
        (node.module or "").startswith("shiftproof.shifts") and "parse" in [each.name for each in node.names]
        for node in found
    )


def test_text_forms_are_read_where_a_user_writes_them_and_nowhere_else(modules: dict[str, ast.Module]) -> None:
    readers = set()
    for name, tree in modules.items():
        if name.startswith("shifts.") and name != "shifts.corrupting":
            continue
        read = [*calls(tree, "as_shift", "as_image_shift")]
        parsed = [call for call in calls(tree, "parse") if isinstance(call.func, ast.Attribute)]
        if read or parsed or imports_parse_of_shifts(tree):
            readers.add(name)
    assert readers == READERS.keys()


def test_no_label_is_read_back(modules: dict[str, ast.Module]) -> None:
    for name, tree in modules.items():
        for call in calls(tree, "parse", "as_shift", "as_image_shift"):
            for given in ast.walk(ast.Module([ast.Expr(each) for each in call.args], [])):
                assert not (isinstance(given, ast.Attribute) and given.attr == "label"), (name, call.lineno)
                assert not isinstance(given, ast.JoinedStr), (name, call.lineno)


def test_every_cast_has_its_reason(modules: dict[str, ast.Module]) -> None:
    listed = Counter(name for some in CASTS.values() for name in some)
    assert not [name for name, times in listed.items() if times > 1]
    assert {name for name, tree in modules.items() if any(calls(tree, "cast"))} == set(listed)


def test_any_has_its_reason_and_does_not_spread(modules: dict[str, ast.Module]) -> None:
    found = Counter[str]()
    for name, tree in modules.items():
        found[name.partition(".")[0]] += sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree))
    assert not [name for name, times in found.items() if times > ANY.get(name, (0, ""))[0]]
