"""What a pipeline gates on: requirements on an audit's numbers, which hold or do not, and as JUnit XML."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING
from xml.etree import ElementTree as Xml

from shiftproof.audits.numbers import Number, find
from shiftproof.audits.sections import SECTIONS, SECTIONS_BY_TASK, section
from shiftproof.errors import UsageError
from shiftproof.prediction_tasks import CLASSES
from shiftproof.registry import unknown

if TYPE_CHECKING:
    from shiftproof.audits.conclusion import Audit
    from shiftproof.audits.sections.base import Section

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NAME = r"[A-Za-z_](?:[\w.@=+,:/~* \[\]-]*[\w\]])?"
"""Names of numbers hold labels of shifts, such as `accuracy.fog@3 + jpeg_compression@2`."""
_FORM = re.compile(rf"\s*({_NAME})\s*(<=|>=|<|>)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(%?)\s*")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Requirement:
    """A number of an audit, how it compares, and with what: `clean_accuracy > 0.8`."""

    name: str
    comparison: str
    limit: float

    def __str__(self) -> str:
        """Return the requirement as it is written."""
        return f"{self.name} {self.comparison} {self.limit:g}"


@dataclass(frozen=True)
class Check:
    """Whether a requirement holds: the value that was seen, or the reason why there is none."""

    requirement: Requirement
    section: str
    value: float | None
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether there is a value, and it is as required."""
        compare = COMPARISONS[self.requirement.comparison]
        return self.value is not None and compare(self.value, self.requirement.limit)

    def __str__(self) -> str:
        """Return what was required and what came."""
        got = f"it is {self.value:.4g}" if self.value is not None else self.reason
        return f"{self.requirement}: {got}"


def parse(text: str) -> Requirement:
    """Read a requirement: the name of a number or a section, a comparison, and a number; 40% is 0.4.

    >>> parse("worst_case > 40%")
    Requirement(name='worst_case', comparison='>', limit=0.4)
    """
    found = _FORM.fullmatch(text)
    if found is None or not math.isfinite(float(found[3])):
        raise UsageError(
            f"Cannot parse the requirement {text!r}.",
            expected="a name, one of < <= > >=, and a number, such as 'corruptions > 60%' or 'worst_case > 0.4'",
        )
    name, comparison, number, percent = found.groups()
    return Requirement(name, comparison, float(number) / (100 if percent else 1))


def parse_all(texts: Sequence[str], sections: Sequence[str], task: str = CLASSES.name) -> tuple[Requirement, ...]:
    """Read requirements before an audit, and refuse a name that no section can give, or none that will run.

    Sections of other packages that do not say what their numbers are may give any name.
    """
    requirements = tuple(map(parse, texts))
    for one in requirements:
        found = _known(one, sections, [task])
        if found is not None and found[0].name not in sections:
            raise UsageError(
                f"The requirement {str(one)!r} cannot be checked.",
                reason=f"{one.name} comes from the section {found[0].name}, which is not among the sections to run",
                fix=f"add {found[0].name} to --sections, or drop the requirement",
            )
    return requirements


def parse_known(texts: Sequence[str]) -> tuple[Requirement, ...]:
    """Read requirements on an audit that was made before, and refuse a name that no section can give."""
    requirements = tuple(map(parse, texts))
    for one in requirements:
        _known(one, list(SECTIONS), list(SECTIONS_BY_TASK))
    return requirements


def _known(requirement: Requirement, sections: Sequence[str], tasks: Sequence[str]) -> tuple[Section, Number] | None:
    """Return the number that a requirement is on; None where a section that does not say its numbers may give it."""
    known = [section(name, task=task) for task in tasks for name in SECTIONS_BY_TASK[task].own]
    others = [
        section(other, task=task)
        for task in tasks
        for other in sections
        if other in SECTIONS_BY_TASK[task] and other not in SECTIONS_BY_TASK[task].own
    ]
    name = requirement.name
    found = find(name, [*known, *others])
    if found is None and all(other.numbers for other in others):
        names = [number.name for each in known for number in each.numbers]
        error = unknown("number", name, [*names, *dict.fromkeys(each.name for each in known)])
        raise UsageError(error.headline, **error.facts)
    if found is not None and found[1].unit == "fraction" and 1 < requirement.limit <= 100:
        raise UsageError(
            f"The requirement {str(requirement)!r} compares a fraction with {requirement.limit:g}.",
            expected=f"a number from 0 to 1, or a percentage: {name} is a fraction",
            got=f"{requirement.limit:g}",
            fix=f"{name} {requirement.comparison} {requirement.limit:g}%",
        )
    return found


def check(requirements: Sequence[Requirement], audit: Audit) -> tuple[Check, ...]:
    """Compare the numbers of an audit with what is required of them; a number that is missing fails."""
    known = SECTIONS_BY_TASK[audit.task]
    ran = [section(view.section, task=audit.task) for view in audit.views if view.section in known]  # caveats are none
    return tuple(_check(one, audit, ran) for one in requirements)


def _check(requirement: Requirement, audit: Audit, ran: Sequence[Section]) -> Check:
    found = find(requirement.name, ran)
    name = found[1].name if found is not None and requirement.name == found[0].name else requirement.name
    owner = found[0].name if found is not None else ""
    value = audit.numbers.get(name)
    if value is not None:
        return Check(requirement, owner, value)
    return Check(requirement, owner, None, _reason(name, owner, audit))


def _reason(name: str, owner: str, audit: Audit) -> str:
    """Say why a number is not there."""
    if not owner:
        elsewhere = find(name, [section(each, task=audit.task) for each in SECTIONS_BY_TASK[audit.task].own])
        if elsewhere is not None:
            return f"there is no such number: the section {elsewhere[0].name} was not run"
    failed = [failure for failure in audit.failed if re.match(rf"{re.escape(owner)}[. ]", failure)] if owner else []
    if failed:
        return f"there is no such number: tasks of {owner} failed ({failed[0].splitlines()[0]})"
    if owner and audit.missing:
        return f"there is no such number: the audit is unfinished, {audit.missing:,} planned tasks have no result"
    found = find(name, [section(owner, task=audit.task)]) if owner in SECTIONS_BY_TASK[audit.task] else None
    if found is not None and found[1].given:
        return f"there is no such number: it is given {found[1].given}"
    near = get_close_matches(name, audit.numbers, n=3)
    if near:
        return f"there is no such number; did you mean {', '.join(near)}?"
    notes = [note for view in audit.views if view.section == owner and not view.numbers for note in view.notes[:1]]
    return f"there is no such number{''.join(f': {note}' for note in notes)}"


def junit(audit: Audit, name: str = "shiftproof") -> str:
    """Return the checks of an audit as JUnit XML: a test case for each requirement, and one for the measuring."""
    suite = Xml.Element("testsuite", name=name, errors="0", skipped="0")
    failing = 0
    for one in audit.checks:
        case = Xml.SubElement(
            suite, "testcase", classname=f"{name}.{one.section or 'unknown'}", name=_plain(str(one.requirement))
        )
        if not one.passed:
            failing += 1
            Xml.SubElement(case, "failure", message=_plain(str(one)), type="requirement").text = _plain(str(one))
    case = Xml.SubElement(suite, "testcase", classname=name, name="every task was measured")
    if audit.failed or audit.missing:
        failing += 1
        said = f"{len(audit.failed)} tasks failed, {audit.missing} have no result"
        told = "\n".join(filter(None, [*audit.failed, audit.unfinished]))
        Xml.SubElement(case, "failure", message=said, type="cells").text = _plain(told)
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(failing))
    root = Xml.Element("testsuites")
    root.append(suite)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _plain(text: str) -> str:
    """Return text without the characters XML cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
