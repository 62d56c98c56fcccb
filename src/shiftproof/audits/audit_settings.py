"""What an audit is asked to do, checked once, and how much of it a budget allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from shiftproof.adapters import Method, method, with_source
from shiftproof.errors import ConfigurationError
from shiftproof.registry import unknown
from shiftproof.runs import Json
from shiftproof.shifts import Shift, catalogue
from shiftproof.shifts.base import check_severity
from shiftproof.shifts.text import TextShift
from shiftproof.shifts.text import registry as text_registry

BudgetName: TypeAlias = Literal["quick", "standard", "full"]


@dataclass(frozen=True)
class Budget:
    """How many images each measurement may use (None is all), and which methods of adaptation are tried on how many."""

    images: int | None
    methods: tuple[str, ...]
    adaptation_images: int


BUDGETS: Mapping[str, Budget] = {
    "quick": Budget(1_000, ("bn", "tent", "rdumb"), 256),
    "standard": Budget(5_000, ("bn", "tent", "eta", "eata", "rdumb", "sar", "roid"), 2_000),
    "full": Budget(
        None, ("bn", "tent", "rpl", "cpl", "slr", "eta", "eata", "rdumb", "sar", "roid", "deyo", "lame"), 10_000
    ),
}
LONG_METHODS = frozenset({"rdumb"})
"""Methods that differ from others along streams alone that are longer than a costly model can have."""
METHODS_BY_TASK: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "segmentation": {
        "quick": ("bn", "tent", "eta"),
        "standard": ("bn", "tent", "eta", "cotta"),
        "full": ("bn", "tent", "rpl", "eta", "rdumb", "cotta"),
    }
}
"""Methods that are tried by default where labels ask for more than a class for each input, by task and budget."""
SEVERITIES = (1.0, 2.0, 3.0, 4.0, 5.0)
SPARSE = 0.5
"""The share of a budget below which no image is put under all shifts."""
LEAST_IMAGES = 100
USUAL_CELLS = 75
"""Corruptions times severities that budgets are made for."""
PER_IMAGE = 4
"""Shifts that each image is put under at least, where a model is too costly to put every image under all."""
ALLOWED = {"cpu": 0.42e9, "cuda": 25e9}
"""Operations per input for which `quick` is made, by kind of device: what costs more is measured on fewer images."""


@dataclass(frozen=True)
class AuditSettings:
    """The choices that decide an audit's numbers; everything else only decides how fast they come."""

    budget: str
    sections: tuple[str, ...]
    shifts: tuple[Shift, ...]
    """What inputs are put under, each at every one of the severities."""
    fixed: tuple[Shift, ...]
    """Further shifts, each as it is."""
    severities: tuple[float, ...]
    images: int | None
    seed: int
    methods: tuple[Method, ...]
    adaptation_images: int
    scale: float = 1.0
    """The share of the budget's sizes that is used: less than 1 where the model is too costly for all."""
    minutes: float | None = None
    """How long it may take; the share follows from it where it is given."""
    precision: float | None = None
    """The half-width of the clean accuracy and of that under corruption, in points, at which measuring them ends."""
    amp: bool = False
    """Whether the model computes in bfloat16."""

    @property
    def sparse(self) -> bool:
        """Whether so little is left of the budget that shifts are thinned out too."""
        return self.scale < SPARSE

    @property
    def levels(self) -> tuple[int, ...]:
        """How many severities each kind of shift is measured at."""
        return (*(len(self.severities) for _ in self.shifts), *(1 for _ in self.fixed))

    def per_image(self, images: int) -> int | None:
        """Return how many kinds of shift each of the images is put under, at one severity each; None: all, at all."""
        if not self.sparse:
            return None
        each = int(self.scale * (BUDGETS[self.budget].images or images) * USUAL_CELLS / images)
        return None if each >= sum(self.levels) else min(len(self.levels), max(PER_IMAGE, each))

    def to_row(self) -> dict[str, Json]:
        """Return the settings as JSON values, with shifts and methods by name."""
        named = {
            "shifts": [shift.name for shift in self.shifts],
            "fixed": [shift.label for shift in self.fixed],
            "methods": [each.name for each in self.methods],
        }
        return {**asdict(replace(self, shifts=(), fixed=(), methods=())), **named}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> AuditSettings:
        """Return the settings of a row."""
        held: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
        held |= {"shifts": tuple(map(_named, row["shifts"])), "methods": tuple(map(method, row["methods"]))}
        held |= {"fixed": tuple(map(catalogue.as_shift, row["fixed"]))}
        return cls(**held)


def make_settings(
    *,
    budget: str = "quick",
    sections: Sequence[str] | None = None,
    shifts: Sequence[str | Shift] | None = None,
    severities: Sequence[float] | None = None,
    images: int | None = None,
    seed: int = 0,
    methods: Sequence[str | Method] | None = None,
    inputs: str = "images",
    task: str = "classification",
    clean: bool = True,
    minutes: float | None = None,
    precision: float | None = None,
    amp: bool = False,
    scale: float = 1.0,
    available: int | None = None,
) -> AuditSettings:
    """Check the options of an audit and fill in what the budget leaves open.

    `shifts` are corruptions or families of them by name, at every severity, and others as they are; None is the family
    `common`, or `everyday` where the `inputs` are texts. `task` is what labels ask of the model. `clean` says whether
    there are clean inputs. `scale` is the share of the budget's sizes that is used, `available` how many inputs there
    are, where that is known.
    """
    from shiftproof.audits.sections import SECTIONS, SECTIONS_BY_TASK, applicable

    if budget not in get_args(BudgetName):
        raise unknown("budget", budget, BUDGETS)
    for name in sections or ():
        if name not in SECTIONS and name not in SECTIONS_BY_TASK[task]:
            raise unknown("section", name, SECTIONS_BY_TASK[task])
    if images is not None and images < 1:
        raise ConfigurationError(
            "The number of images must be positive.", expected="--images of 1 or more", got=str(images)
        )
    for name, value in (("minutes", minutes), ("precision", precision)):
        if value is not None and not value > 0:
            raise ConfigurationError(f"{name} must be positive.", expected="a number above 0", got=f"{value:g}")
    chosen: list[str] = []
    fixed: list[Shift] = []
    for each in shifts or (("everyday",) if inputs == "texts" else ("common",)):
        if isinstance(each, str) and each in _graded(inputs):
            chosen.extend(_shifts_of_texts(each) if inputs == "texts" else _shifts_of_images(each))
        else:
            fixed.append(_fitting(each, inputs))
    fixed = list(dict.fromkeys(fixed))
    labels = [shift.label for shift in fixed]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise ConfigurationError(
            "Two shifts have the same label.", expected="a different label for each shift", got=twice
        )
    levels = tuple(sorted({float(severity) for severity in severities or SEVERITIES}))
    for severity in levels:
        check_severity("of the audit", severity)
        if severity == 0:
            raise ConfigurationError(
                "Severity 0 is the clean input.", fix="leave it out; the section `clean` measures it"
            )
    asked = applicable(inputs, sections, clean=clean, task=task)
    cells = len(set(chosen)) * len(levels) + len(fixed)
    _, *tried = with_source(methods or _usual_methods(task, budget, scale))
    return AuditSettings(
        budget=budget,
        sections=asked,
        shifts=tuple(_named(name) for name in dict.fromkeys(chosen)),
        fixed=tuple(fixed),
        severities=levels,
        images=images if images is not None else _affordable_images(BUDGETS[budget].images or available, scale, cells),
        seed=seed,
        methods=tuple(tried),
        adaptation_images=BUDGETS[budget].adaptation_images if images is None else images,
        scale=scale,
        minutes=minutes,
        precision=precision,
        amp=amp,
    )


def _usual_methods(task: str, budget: str, scale: float) -> tuple[str, ...]:
    """Return the methods that a budget tries: where it is sparse, none that only long streams tell from others."""
    usual = METHODS_BY_TASK.get(task, {}).get(budget) or BUDGETS[budget].methods
    return usual if scale >= SPARSE else tuple(name for name in usual if name not in LONG_METHODS)


def affordable(budget: str, device: str, operations: float) -> float:
    """Return the share of a budget's sizes a model can have that needs so many operations per input, in (0, 1].

    Only `quick` promises to be quick; the others measure all they say, however long it takes. The share follows from
    counted operations, never from a clock, so that the same audit has the same sizes every time.
    """
    allowed = ALLOWED.get(device.partition(":")[0], ALLOWED["cpu"])
    if budget != "quick" or operations <= allowed:
        return 1.0
    return float(f"{allowed / operations:.2g}")


def _affordable_images(images: int | None, scale: float, cells: int) -> int | None:
    """Return how many images a share of a budget buys: where it is small, each is put under a few shifts alone."""
    if images is None or scale == 1:
        return images
    bought = scale * images if scale >= SPARSE else scale * images * USUAL_CELLS / min(cells, PER_IMAGE)
    return min(images, max(LEAST_IMAGES, round(bought)))


def _named(name: str) -> Shift:
    """Return a corruption or a text shift by its registered name, at some severity."""
    return text_registry.text_shift(name, 1) if name in text_registry.SHIFTS else catalogue.corruption(name, 1)


def _graded(inputs: str) -> set[str]:
    """Return the families, and the shifts, whose severities an audit chooses."""
    if inputs == "texts":
        return {*text_registry.FAMILIES, *text_registry.SHIFTS}
    families = (*catalogue.TABLED, catalogue.PLUGINS)
    return {*families, *(name for family in families for name in catalogue.names(family))}


def _fitting(given: str | Shift, inputs: str) -> Shift:
    """Return a shift of inputs of this kind; refuse others."""
    other = "images" if inputs == "texts" else "texts"
    by_name = isinstance(given, str) and given in _graded(other)
    shift = None if by_name else catalogue.as_shift(given)
    if shift is None or isinstance(shift, TextShift) != (inputs == "texts"):
        raise ConfigurationError(
            f"The shift {given if shift is None else shift.label} applies to {other}, not to {inputs}.",
            expected=f"a shift of {inputs}",
        )
    return shift


def _shifts_of_images(name: str) -> Sequence[str]:
    """Return the corruptions of a family, or the one of this name."""
    families = (*catalogue.TABLED, catalogue.PLUGINS)
    return catalogue.names(name) if name in families else [catalogue.corruption(name, 1).name]


def _shifts_of_texts(name: str) -> Sequence[str]:
    """Return the text shifts of a family that need no model, or the one of this name."""
    if name in text_registry.FAMILIES:
        return [shift for shift in text_registry.FAMILIES[name] if shift not in text_registry.NEED_MODELS]
    return [text_registry.text_shift(name, 1).name]
