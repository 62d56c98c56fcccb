"""A name stands for one thing in the whole house. The lists of those that still stand for several can only shrink."""

import ast
from collections import defaultdict
from pathlib import Path

import shiftproof

ROOT = Path(shiftproof.__file__).parent
PLUMBING = {"__init__", "__main__"}

CLASSES = {
    "Calibration": {"estimators.calibration", "streams.calibration"},
    "Cell": {"audits.report.formatting", "runs.cell"},
    "Endurance": {"audits.endurance", "audits.sections.endurance"},
    "Job": {"certificates.certifying", "certificates.spectrum"},
    "Measurer": {"audits.bench", "certificates.spectrum"},
    "Recipe": {"shifts.corruption", "training.recipes"},
    "Record": {"audits.outcome", "training.record"},
    "Settings": {"audits.settings", "training.settings"},
    "Size": {f"audits.sections.{name}" for name in ("certified", "label_free", "spectrum", "worst_case")},
    "Spectrum": {"audits.sections.spectrum", "certificates.spectrum"},
    "Trace": {"searchers.trace", "streams.trace"},
    "Waves": {"certificates.spectrum", "shifts.bar_warp"},
}
"""Classes of one name that are still to be renamed, and the modules that define them."""

MODULES = {
    "calibration": {"estimators", "streams"},
    "certified": {"audits/sections", "measures"},
    "endurance": {"audits", "audits/sections"},
    "evaluating": {"searchers", "streams"},
    "labels": {"audits/sections", "data"},
    "orders": {"shifts", "streams"},
    "outcome": {"audits", "searchers", "training"},
    "parts": {"adapters", "models/networks"},
    "preview": {"shifts", "streams"},
    "settings": {"audits", "training"},
    "spectrum": {"audits/sections", "certificates"},
    "statistics": {"adapters", "audits/sections", "estimators", "models"},
    "trace": {"measures", "searchers", "streams"},
    "writing": {"shifts", "shifts/text"},
}
"""Modules of one name for different ideas that are still to be renamed, and the folders that have them."""

SAME_IDEA = {
    "base": "what all of a package's things derive from",
    "catalogue": "a package's things by name",
    "chain": "one shift after another, of images and of texts",
    "checks": "what a package refuses, and in which words",
    "huggingface": "what comes from Hugging Face",
    "levels": "the 256 levels of stored images",
    "loading": "the function that loads",
    "losses": "losses as plain functions",
    "pictures": "pictures that are written to files",
    "registry": "names for things",
}
"""Module names that several packages share because they mean the same in each."""


def class_homes():
    """Return every public class name with the modules that define one."""
    homes = defaultdict(set)
    for file in ROOT.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(".".join(file.relative_to(ROOT).with_suffix("").parts))
    return homes


def module_homes():
    """Return every module name with its folders; a command has its verb's name, and a kernel its corruption's."""
    homes = defaultdict(set)
    for file in ROOT.rglob("*.py"):
        if file.stem not in PLUMBING | SAME_IDEA.keys() and file.parent.name not in ("cli", "kernels"):
            homes[file.stem].add("/".join(file.parent.relative_to(ROOT).parts) or ".")
    return homes


def twice(homes):
    return {name: found for name, found in homes.items() if len(found) > 1}


def test_no_class_name_stands_for_two_things():
    assert twice(class_homes()) == CLASSES, "rename the new one; take those that are gone off the list"


def test_no_module_name_stands_for_two_things():
    assert twice(module_homes()) == MODULES, "rename the new one; take those that are gone off the list"


def test_the_lists_do_not_grow():
    assert len(CLASSES) <= 12
    assert len(MODULES) <= 14
    assert all(len({path.parent for path in ROOT.rglob(f"{name}.py")}) > 1 for name in SAME_IDEA)
