"""The public names, and a Sphinx directive that documents all of a package's, so that the reference leaves none out.

```{public-names} adapters
```

A name is public where `__all__` of a package has it; `MODULES` has those of modules that are public as a whole.
Parameters are described in `Args:`, in a docstring below a field, or, for options, in the annotation of a field.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils.nodes import Node
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import shiftproof
from shiftproof.options import Options, describe

PACKAGES = (
    "audits",
    "comparisons",
    "diagnoses",
    "hardening",
    "models",
    "data",
    "shifts",
    "streams",
    "adapters",
    "certificates",
    "searchers",
    "estimators",
    "slices",
    "training",
    "exports",
    "measures",
    "runs",
)
"""Every package with an `__all__`."""

MODULES = {"keyed": ("Keyed", "key_of"), "registry": ("Registry", "register")}
"""Modules that are public, with their names; all names of `errors` and of `reports.view` are."""

RETURNED = {
    "adapters": "Adapter Counts Facts PriorChoice Reset SafeAdapter Step",
    "audits": "Audit",
    "certificates": "Certificate Certification CertifiedSuite Rule Spectrum Transformation",
    "comparisons": "Comparison MethodComparison ProtocolResult StreamComparison",
    "data": "BadFile Dataset ImageSet TextSet",
    "diagnoses": "Diagnosis Failures",
    "errors": "ConfigurationError DataError Interrupted ModelError RunError UsageError",
    "estimators": "Calibration ClassEstimate Estimate Invariance Status",
    "exports": "Written",
    "hardening": "Hardened",
    "measures": "MeanRadius ShiftMap",
    "models": "Adaptive InputSize",
    "runs": "Executor Result Worker WorkerPool",
    "searchers": "Direct Evaluation Evaluator Fitness Search SemanticExamples",
    "shifts": "Chain ImageShift Shift",
    "slices": "Attribute DataQuality LabelError WeakSlice WeakSlices",
    "streams": "Stream StreamCalibration Trace",
    "training": "Trained",
}
"""Classes that nobody instantiates by hand: results, and what one derives from. All others need an example."""

PASSED_ON = {"args", "kwargs", "options", "given"}
"""Parameters that stand for others: what they may be is said in prose."""


@dataclasses.dataclass(frozen=True)
class PublicName:
    """A public name, and what it stands for."""

    package: str
    name: str
    value: Any

    @property
    def path(self) -> str:
        """Where it is imported from."""
        return f"shiftproof.{self.package}.{self.name}"

    @property
    def kind(self) -> str:
        """Return what autodoc calls it."""
        if inspect.isclass(self.value):
            return "class"
        return "function" if inspect.isroutine(self.value) else "data"

    @property
    def text(self) -> str:
        """What is said of it: its docstring, or of data the one below it."""
        return data_docstring(self.package, self.name) if self.kind == "data" else inspect.getdoc(self.value) or ""

    def undescribed(self) -> list[str]:
        """Return parameters that nothing describes."""
        if self.kind == "data":
            return []
        described = set(parameters(self.value))
        return [name for name in signature(self.value) if name not in described | PASSED_ON]


def public_names(package: str | None = None) -> list[PublicName]:
    """Return the public names of a package, or of all."""
    found = []
    for each in [package] if package else [*PACKAGES, *MODULES, "errors"]:
        module = import_module(f"shiftproof.{each}")
        names = MODULES.get(each) or getattr(module, "__all__", None) or list(own_names(module))
        found += [PublicName(each, name, getattr(module, name)) for name in names]
    return found


def own_names(module: ModuleType) -> Iterator[str]:
    """Yield classes and functions that a module defines itself, in order."""
    for name, value in vars(module).items():
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__:
            yield name


def signature(value: Any) -> list[str]:
    """Return the names of parameters, without those of variable number; none of exceptions and protocols."""
    if inspect.isclass(value) and (issubclass(value, BaseException) or getattr(value, "_is_protocol", False)):
        return []
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each.name for each in found if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]


def parameters(value: Any) -> dict[str, str]:
    """Return what is said of parameters, by name: of a class, also by its bases."""
    found: dict[str, str] = {}
    for each in reversed(value.__mro__) if inspect.isclass(value) else [value]:
        if each.__module__.startswith("shiftproof") or each is value:
            found |= annotated(each) | below_fields(each) | arguments(each.__doc__ or "")
    return found


def arguments(docstring: str) -> dict[str, str]:
    """Return the entries of the section `Args:` of a docstring."""
    section = re.search(r"^(?P<margin> *)Args:\n(?P<lines>(?:(?P=margin) +.*\n|\n)+)", docstring + "\n", re.M)
    if not section:
        return {}
    lines = textwrap.dedent(section["lines"])
    entries = re.findall(r"^\*{0,2}(\w[\w, ]*):\s*(.+(?:\n .+)*)", lines, re.M)
    return {name.strip(): text for names, text in entries for name in names.split(",")}


def annotated(value: Any) -> dict[str, str]:
    """Return the help of an options class's fields, with the numbers that they take."""
    if not (inspect.isclass(value) and issubclass(value, Options) and value is not Options):
        return {}
    return {each.name: f"{each.help}{_bounds(each.values)}" for each in describe(value) if each.help}


def _bounds(values: str) -> str:
    return f" {values[0].upper()}{values[1:]}." if re.search(r"\d", values) else ""


@cache
def below_fields(value: Any) -> dict[str, str]:
    """Return the docstrings below the fields of a class."""
    if not (inspect.isclass(value) and dataclasses.is_dataclass(value)):
        return {}
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    except (OSError, TypeError):
        return {}
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for one, after in pairwise(tree.body):
        said = getattr(getattr(after, "value", None), "value", None) if isinstance(after, ast.Expr) else None
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(said, str):
            found[one.target.id] = said
    return found


@cache
def data_docstring(package: str, name: str) -> str:
    """Return the docstring below the assignment of a name, wherever in a package it is; nothing where there is none."""
    source = Path(shiftproof.__path__[0]) / package
    for path in sorted(source.rglob("*.py")) if source.is_dir() else [source.with_suffix(".py")]:
        body = ast.parse(path.read_text()).body
        for one, after in pairwise(body):
            targets = one.targets if isinstance(one, ast.Assign) else [getattr(one, "target", None)]
            said = getattr(getattr(after, "value", None), "value", None) if isinstance(after, ast.Expr) else None
            if isinstance(said, str) and any(isinstance(each, ast.Name) and each.id == name for each in targets):
                return inspect.cleandoc(said)
    return ""


class PublicNames(SphinxDirective):
    """All public names of a package: functions first, then classes with their methods, then data."""

    required_arguments = 1

    def run(self) -> list[Node]:
        """Parse the directives of autodoc."""
        return self.parse_text_to_nodes("```{eval-rst}\n" + "\n".join(self.lines()) + "\n```")

    def lines(self) -> Iterator[str]:
        """Yield a directive for each name."""
        order = {"function": 0, "class": 1, "data": 2}
        for each in sorted(public_names(self.arguments[0]), key=lambda one: order[one.kind]):
            if each.kind == "data":
                yield from (f".. py:data:: {each.path}", "", *textwrap.indent(each.text, "   ").splitlines())
            else:
                yield f".. auto{each.kind}:: {each.path}"
            if each.kind == "class":
                yield from ("   :members:", "   :exclude-members: loader")
                if "__call__" in vars(each.value):
                    yield "   :special-members: __call__"
            yield ""


def add_parameters(app: Sphinx, what: str, name: str, value: Any, options: object, lines: list[str]) -> None:
    """Give the docstring of a class the parameters that are described elsewhere, before Napoleon reads it."""
    if what != "class" or not inspect.isclass(value):
        return
    told, wanted = arguments("\n".join(lines)), signature(value)
    missing = {name: text for name, text in parameters(value).items() if name in wanted and name not in told}
    if missing and not told:
        lines += ["", "Args:", *(f"    {name}: {' '.join(text.split())}" for name, text in missing.items()), ""]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("public-names", PublicNames)
    app.connect("autodoc-process-docstring", add_parameters, priority=400)
    return {"parallel_read_safe": True}
