"""What a task is, it is by content: any other field is another task, and the same content is the same everywhere."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from shiftproof import shifts
from shiftproof.adapters import METHODS, Method, method
from shiftproof.audits.audit_settings import AuditSettings, make_settings
from shiftproof.audits.sections import SECTIONS, section
from shiftproof.audits.sections.base import Scope
from shiftproof.certificates.rules import RULES, make_rule
from shiftproof.runs import AnyTask, Plan, Result, Row, Store, Task, drive
from shiftproof.runs.content import digest
from shiftproof.searchers import make_space
from shiftproof.searchers.space import spaces
from shiftproof.shifts import catalogue, parametric
from shiftproof.shifts.operations import operation
from shiftproof.shifts.text import registry as text_registry
from shiftproof.training.recipes import RECIPES

PRINTS = {"model": "m", "data": "d"}
IGNORED = {shifts.Shift: ("device", "cache"), Method: ("paper", "departures")}
"""Fields that say where or how fast something works, or are only said of it: nothing of what it does."""


@dataclass(frozen=True)
class Holding(Task[object]):
    """A task that holds something."""

    kind = "holding"
    what: Any
    number: int = 0

    def measure(self, subject: object) -> Row:
        """Return the number of its field."""
        return {"number": self.number}


def every_shift() -> Iterator[shifts.Shift]:
    for family in catalogue.TABLED:
        yield from (shifts.corruption(name, 2.5) for name in shifts.names(family))
    yield shifts.corruption("fog", 2.5, preset="cifar")
    for name, kind in operation.KINDS.items():
        level = None if kind.takes is None else min(max(kind.low, 1.0), kind.high)
        yield operation.Operation(name, 1.0, level if level is None or not kind.whole else int(level))
    needed = {"power_law": "[eps=8,center=4,alpha=1]", "fourier_basis": "[i=1,j=2]"}
    yield from (shifts.parse(f"{name}{needed.get(name, '')}") for name in parametric.FORMS)
    plain = (name for name in text_registry.SHIFTS if name not in text_registry.NEED_MODELS)
    yield from (text_registry.text_shift(name, 2.5) for name in plain)
    yield shifts.ImageChain(steps=[shifts.corruption("fog", 3), shifts.corruption("contrast", 2)])


def every_task() -> Iterator[AnyTask]:
    """One task of each type that the sections plan."""
    options: dict[str, Any] = {"shifts": ["fog", "contrast"], "methods": ["bn"]}
    scope = Scope(make_settings(budget="standard", **options), images=400, side=32)
    found = {type(task): task for name in SECTIONS.own for task in section(name).plan(scope)}
    yield from found.values()


@cache
def everything() -> dict[str, Any]:
    """Everything that a task can hold, by a name of its own."""
    rules = {name: make_rule(name, sigma=0.25, n=100, alpha=0.01, radius=0.1 if name == "radius" else None)
             for name in RULES}  # fmt: skip
    return {
        **{f"shift {shift.label}": shift for shift in every_shift()},
        **{f"method {name}": method(name) for name in METHODS.own},
        **{f"rule {name}": rule for name, rule in rules.items()},
        **{f"space {name}": make_space(name) for name in spaces()},
        **{f"recipe {name}": recipe for name, recipe in RECIPES.items()},
    }


def other(value: Any) -> Any:  # noqa: PLR0911  (a case per kind of value)
    """Return another value of about the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 0.125 if isinstance(value, float) else value + 1
        case str():
            return f"{value}x"
        case tuple():
            return value[:-1] or (("x", "y"),)
        case Mapping():
            return {**value, "x": 1}
        case shifts.Shift():
            return shifts.corruption("speckle_noise", 0.5)
        case FunctionType():
            return other
        case _:
            return "x" if value is None else None


def changed(thing: Any, name: str) -> Any:
    """Return a copy with another value in one field, whether or not the value makes sense."""
    made = copy.copy(thing)
    for computed in set(vars(made)) - {each.name for each in fields(thing)}:
        del made.__dict__[computed]  # what was worked out from the fields before
    object.__setattr__(made, name, other(getattr(thing, name)))
    return made


@pytest.mark.parametrize("name", list(everything()))
def test_any_other_field_is_another_task(name):
    thing = everything()[name]
    ignored = [field for kind, some in IGNORED.items() if isinstance(thing, kind) for field in some]
    seen = {Holding(thing).identity(PRINTS): "itself"}
    for each in fields(thing):
        made = Holding(changed(thing, each.name)).identity(PRINTS)
        if each.name in ignored:
            assert seen.get(made) == "itself", f"another {each.name} is another task"
        else:
            assert made not in seen, f"another {each.name} has the identity of {seen.get(made)}"
            seen[made] = each.name


@pytest.mark.parametrize("task", list(every_task()), ids=lambda task: task.kind)
def test_any_other_field_of_a_task_is_another_task(task):
    seen = {task.identity(PRINTS), task.identity({**PRINTS, "model": "n"})}
    for each in fields(task):
        made = changed(task, each.name)
        assert made != task
        seen.add(made.identity(PRINTS))
    assert len(seen) == 2 + len(fields(task))
    sent = pickle.loads(pickle.dumps(task))
    assert sent == task
    assert hash(sent) == hash(task)
    assert sent.identity(PRINTS) == task.identity(PRINTS)
    json.dumps(task.describe(), allow_nan=False)


def test_kinds_are_unique_and_things_have_identities_of_their_own():
    kinds = [task.kind for task in every_task()]
    assert len(kinds) == len(set(kinds)) > 10
    found = everything()
    assert len({digest(thing) for thing in found.values()}) == len(found)


def identities() -> dict[str, str]:
    return {
        **{name: Holding(thing).identity(PRINTS) for name, thing in everything().items()},
        **{task.kind: task.identity(PRINTS) for task in every_task()},
    }


def test_equal_content_is_the_same_task_in_another_process():
    """Also with other hashes of texts, which would order sets in another way."""
    script = "import json; from tests.runs.test_task import identities; print(json.dumps(identities()))"
    folder = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    command = [sys.executable, "-W", "ignore", "-c", script]
    found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=folder).stdout
    assert json.loads(found) == identities()


def test_settings_come_back_from_their_row_with_the_same_plan():
    settings = make_settings(shifts=["fog", "ripple"], severities=[1, 2.5], methods=["bn", "rdumb"])
    again = AuditSettings.from_row(json.loads(json.dumps(settings.to_row())))
    assert again == settings
    plans = [[task for name in SECTIONS.own for task in section(name).plan(Scope(one, 200, 32))]
             for one in (settings, again)]  # fmt: skip
    assert [task.identity(PRINTS) for task in plans[0]] == [task.identity(PRINTS) for task in plans[1]]


def test_shifts_of_one_label_do_not_share_a_result(tmp_path):
    class Counting:
        def measure(self, task):
            return task.measure(None)

    @dataclass(frozen=True)
    class Alike(shifts.Corruption):
        label = "fog@3"

    tasks = (Holding(shifts.corruption("fog", 3), 1), Holding(Alike("fog", 3.0, preset="cifar"), 1))
    assert str(tasks[0]) == str(tasks[1])
    with Store(tmp_path, PRINTS) as store:
        results = drive(Plan(tasks, PRINTS), store, Counting)
    assert [result.task for result in results] == list(tasks)
    assert len(results) == 2


def test_what_is_described_is_what_is_not_usual_and_is_read_back_as_a_cell(tmp_path):
    task = Holding([shifts.corruption("fog", 3), {"a": (1, None)}])
    assert task.describe() == {"task": "holding", "what": ["fog@3", {"a": [1, None]}]}
    assert Holding(0, 5).describe() == {"task": "holding", "what": 0, "number": 5}
    with Store(tmp_path, PRINTS) as store:
        store.save(task.identity(PRINTS), Result(task, {"a": 1}, None, 0.1))
        (found,) = store
    assert found.task.describe() == task.describe()


class Colour(Enum):
    RED = 1


def test_plain_data_and_what_has_no_digest():
    plain = [None, True, 1, 1.0, "1", b"1", Path("1"), range(1), [1], {1}, {1: 1}, Colour.RED, [[1]], [1, [1]], [], {}]
    assert len({digest(value) for value in plain}) == len(plain)
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest([1, (2,)]) == digest((1, [2]))
    with pytest.raises(TypeError, match=r"object has no digest.*content_digest"):
        Holding(object()).identity({})
