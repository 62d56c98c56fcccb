"""How many inputs an audit's plan sends through the model, by section: of this version, and of another beside it.

    python benchmarks/passes.py --model demo --data demo
    git worktree add ../before REVISION
    python benchmarks/passes.py --model resnet50.py:build --data images/ --images 1000 --against ../before

Where two sections plan the same task, the first has it. --images and --sections are those of the audit; they make plans
of the same size of versions whose budgets have other sizes.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from shiftproof.audits.audit_settings import affordable, make_settings
from shiftproof.audits.sections import planned
from shiftproof.audits.sections.base import Scope
from shiftproof.models.arithmetic import operations
from shiftproof.subjects import Subject

KINDS = ("forward", "statistics", "adapt")
"""Kinds of units in which an input goes through the model; versions before this file do not name them."""


def main() -> None:
    """Count, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--data", default="demo")
    parser.add_argument("--budget", default="quick")
    parser.add_argument("--images", type=int, default=None)
    parser.add_argument("--sections", default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--against", type=Path, default=None, help="a checkout of another version")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    own = counted(given)
    if given.json:  # another version's plan
        print(json.dumps(own))
    else:
        tell(own, of_other(given) if given.against else {})


def counted(given: argparse.Namespace) -> dict[str, float]:
    """Return the images of an audit's plan, and the passes of each section."""
    subject = Subject.of(given.model, given.data, device=given.device)
    (one,) = subject.labelled_data.subset([0]).batches(1, device=subject.device)
    there = len(subject.labelled_data)
    sections = given.sections.split(",") if given.sections else None
    known = {"scale": affordable(given.budget, given.device, operations(subject.model, one.inputs)), "available": there}
    known = {name: value for name, value in known.items() if name in inspect.signature(make_settings).parameters}
    settings = make_settings(budget=given.budget, sections=sections, images=given.images, **known)  # type: ignore[arg-type]
    scope = scope_of(settings, min(settings.images or there, there), subject)
    seen, found = set[Any](), defaultdict[str, float](float)
    for name in settings.sections:
        for task in planned(name, scope):
            if task not in seen:
                seen.add(task)
                found[name] += sum(count for unit, count in task.work() if unit.kind in KINDS)
    return {"images": float(scope.images), **found}


def scope_of(settings: Any, images: int, subject: Subject) -> Scope:
    """Return the scope of an audit, as this version or an earlier one makes it."""
    try:
        from shiftproof.audits import planning
    except ImportError:
        data = subject.labelled_data
        return Scope(settings, images, data.side, data.kind)
    return planning.scope_of(settings, images, subject)


def of_other(given: argparse.Namespace) -> dict[str, float]:
    """Return what another version counts."""
    asked = [f"--{name}={value}" for name, value in vars(given).items() if name not in ("against", "json") and value]
    home = {**os.environ, "PYTHONPATH": str(given.against.resolve() / "src")}
    command = [sys.executable, __file__, "--json", *asked]
    done = subprocess.run(command, check=False, env=home, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def tell(own: dict[str, float], other: dict[str, float]) -> None:
    """Print the passes by section, and those of the other version."""
    print(f"{'planned passes':<14}{'now':>10}" + (f"{'before':>10}{'times':>8}" if other else ""))
    rows = [(name, own.get(name, 0.0), other.get(name, 0.0)) for name in dict.fromkeys([*own, *other])]
    sums = [("all", rows[1:])]
    if other:
        sums.append(("in both", [row for row in rows[1:] if row[0] in own and row[0] in other]))
    for name, some in sums:
        rows.append((name, sum(count for _, count, _ in some), sum(before for _, _, before in some)))
    for name, count, before in rows:
        times = f"{before:10,.0f}{before / count if count else float('nan'):8.2f}" if other else ""
        print(f"{name:<14}{count:10,.0f}{times}")


if __name__ == "__main__":
    main()
