"""A name stands for one thing in the whole house."""

import ast
from collections import defaultdict
from pathlib import Path

import shiftproof

ROOT = Path(shiftproof.__file__).parent
PLUMBING = {"__init__", "__main__"}

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
    "specs": "what a loader would be told, kept until it is needed",
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
    assert twice(class_homes()) == {}


def test_no_module_name_stands_for_two_things():
    assert twice(module_homes()) == {}


def test_shared_module_names_are_shared():
    assert all(len({path.parent for path in ROOT.rglob(f"{name}.py")}) > 1 for name in SAME_IDEA)
