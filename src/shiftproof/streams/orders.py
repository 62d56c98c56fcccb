"""Streams that need no calibration: shifts one after another, mixed, with correlated labels, or slowly up and down."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from shiftproof import shifts as catalogue
from shiftproof.data import Dataset
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.keyed import Keyed
from shiftproof.models.identity import digest
from shiftproof.prediction_tasks import task_of
from shiftproof.runs import Json
from shiftproof.shifts import Shift
from shiftproof.shifts.catalogue import TABLED, check_name
from shiftproof.streams.stream import Shifted, Stream

SLOTS = 10
"""A Dirichlet order divides a pass into so many parts, each with its own shares of the classes."""


def corruptions(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return corruptions by name, where a family stands for all of its own; None is the family `common`."""
    found: list[str] = []
    for name in names or ("common",):
        check_name(name)
        found.extend(catalogue.names(name) if name in TABLED else [catalogue.corruption(name, 1).name])
    return tuple(dict.fromkeys(found))


def shifts_of(given: Sequence[str | Shift] | None, severities: Sequence[float]) -> dict[str, tuple[Shift, ...]]:
    """Return corruptions by name, each at some severities, and shifts by label, as they are."""
    found: dict[str, tuple[Shift, ...]] = {}
    for one in given or ("common",):
        if isinstance(one, Shift):
            found[f"{one.label} {digest(one)}"] = (one,)
        else:
            for name in corruptions([one]):
                found[name] = tuple(catalogue.corruption(name, severity) for severity in severities)
    return found


class Staged(Stream):
    """A stream in stages of `speed` images, each under one shift."""

    def __init__(self, data: Dataset, *, speed: int, **options: Any) -> None:
        if speed < 1:
            raise ConfigurationError("The speed must be positive.", expected="a speed of 1 or more", got=str(speed))
        self.speed = speed
        super().__init__(data, **options)

    @abstractmethod
    def stage(self, number: int) -> Shift:
        """Return the shift of a stage."""

    def shifts_at(self, positions: Tensor) -> Shifted:
        """Return the shifts of the stages the positions are in."""
        stages = positions // self.speed
        first = int(stages[0])
        found = tuple(self.stage(number) for number in range(first, int(stages[-1]) + 1))
        return Shifted(found, stages - first)


class Concatenated(Staged):
    """Shifts of one severity, one after another over all images (CIN-C; Wang et al. 2022): every seed is another order.

    `shifts` are names of corruptions or families, or shifts, which have severities of their own.
    Where the stream is longer than one round of all shifts, the next round has an order of its own; where it is shorter
    and no `speed` is given, every shift has an equal share of it.

    Args:
        data: The set of images.
        shifts: Names of corruptions or families, or shifts; by default the fifteen of ImageNet-C.
        severity: The severity of shifts that are given by name.
        length: Number of images; by default all images under each shift.
        speed: Images under each shift.
        options: Those of `Stream`.

    >>> from shiftproof import load_data
    >>> stream = Concatenated(load_data("demo"), shifts=["fog", "contrast"], length=128)
    >>> sorted(batch.shift for batch in stream)
    ['contrast@5', 'fog@5']
    """

    kind: ClassVar[str] = "concatenated"

    def __init__(
        self,
        data: Dataset,
        *,
        shifts: Sequence[str | Shift] | None = None,
        severity: float = 5.0,
        length: int | None = None,
        speed: int | None = None,
        **options: Any,
    ) -> None:
        found = shifts_of(shifts, (severity,))
        self.names, self.shifts = tuple(found), tuple(shift for (shift,) in found.values())
        self.severity = severity
        each = speed or (len(data) if length is None else min(len(data), max(1, length // len(self.shifts))))
        super().__init__(data, length=length or each * len(self.shifts), speed=each, **options)

    def stage(self, number: int) -> Shift:
        """Return the shift whose turn it is in this round."""
        round_, turn = divmod(number, len(self.shifts))
        order = Keyed(self.seed, [round_]).fork("rounds").permutation(len(self.shifts))[0]
        return self.shifts[int(order[turn])]

    @property
    def shift_names(self) -> tuple[str, ...]:
        """The shifts of the first round, as far as the stream goes."""
        stages = min(len(self.shifts), -(-self.length // self.speed))
        return tuple(self.stage(number).label for number in range(stages))

    @property
    def notes(self) -> tuple[str, ...]:
        """Whether shifts have fewer images than there are, and which share of the shifts the stream reaches."""
        said, count = [], len(self.shifts)
        if self.speed < len(self.data):
            said.append(f"Each of {count} corruptions has {self.speed:,} of the {len(self.data):,} images.")
        if (reached := -(-self.length // self.speed)) < count:
            said.append(
                f"The stream reaches {reached} of {count} corruptions: all of them take {count * self.speed:,} images."
            )
        return tuple(said)

    def describe(self) -> dict[str, Json]:
        """Return the shifts and their severity."""
        return {"shifts": list(self.names), "severity": self.severity, "speed": self.speed}


class Mixed(Stream):
    """Every image under a random shift and severity of its own; shifts with a severity keep it.

    Args:
        data: The set of images.
        shifts: Names of corruptions or families, or shifts; by default the fifteen of ImageNet-C.
        severities: The severities to draw from.
        length: Number of images; by default all images under as many shifts as there are.
        options: Those of `Stream`.

    >>> from shiftproof import load_data
    >>> next(iter(Mixed(load_data("demo"), shifts=["contrast"], length=8))).inputs.shape
    torch.Size([8, 3, 32, 32])
    """

    kind: ClassVar[str] = "mixed"

    def __init__(
        self,
        data: Dataset,
        *,
        shifts: Sequence[str | Shift] | None = None,
        severities: Sequence[float] = (1.0, 2.0, 3.0, 4.0, 5.0),
        length: int | None = None,
        **options: Any,
    ) -> None:
        found = shifts_of(shifts, severities)
        self.names, self.severities = tuple(found), tuple(severities)
        self.shifts = tuple(shift for some in found.values() for shift in some)
        super().__init__(data, length=length or len(data) * len(self.names), **options)

    @property
    def shift_names(self) -> tuple[str, ...]:
        """All of them."""
        return self.names

    def shifts_at(self, positions: Tensor) -> Shifted:
        """Draw a shift per position."""
        return Shifted(self.shifts, Keyed(self.seed, positions).fork("mixed").integers(0, len(self.shifts)))

    def describe(self) -> dict[str, Json]:
        """Return the shifts and severities."""
        return {"shifts": list(self.names), "severities": list(self.severities)}


class Correlated(Concatenated):
    """Shifts one after another, with temporally correlated labels: images of a class come together.

    With a `concentration`, each class divides itself over ten parts of a pass by shares from a symmetric Dirichlet
    distribution (the smaller, the more unequal), and each part goes class by class; 0 sorts a pass by label.

    Args:
        data: A labelled set of images.
        concentration: Of the Dirichlet distribution: the smaller, the more correlated; 0 sorts by label.
        options: Those of `Concatenated`.

    >>> from shiftproof import load_data
    >>> stream = Correlated(load_data("demo"), concentration=0, shifts=["contrast"], length=40, batch_size=20)
    >>> len(set(next(iter(stream)).labels.tolist()))  # sorted by label
    1
    """

    kind: ClassVar[str] = "correlated"

    def __init__(self, data: Dataset, *, concentration: float = 0.1, **options: Any) -> None:
        if data.labels is None or task_of(data).per_pixel:
            raise DataError(
                "A stream with correlated labels needs labels: a class for each image.",
                expected="a folder with one sub-folder per class, a CSV of labels, or an .npz with labels",
                fix="the stream `concatenated`, which needs none",
            )
        if concentration < 0:
            raise ConfigurationError(
                "The Dirichlet concentration must not be negative.",
                expected="0, which sorts, or more",
                got=f"{concentration:g}",
            )
        self.concentration = concentration
        super().__init__(data, **options)

    def order(self, number: int) -> Tensor:
        """Return the rows of a pass, class after class within each part; classes come in an order of their own."""
        if self.class_labels is None:
            raise DataError("A stream with correlated labels needs labels: a class for each image.")
        shuffled = super().order(number)
        labels = self.class_labels[shuffled]
        classes = int(labels.max()) + 1
        rank = Keyed(self.seed, [number]).fork("classes").permutation(classes)[0].argsort()
        if self.concentration == 0:
            return shuffled[rank[labels].argsort(stable=True)]
        part = torch.empty_like(labels)
        for label, shares in enumerate(self._shares(number, classes)):
            here = (labels == label).nonzero()[:, 0]
            edges = np.floor(np.cumsum(shares) * len(here) + 0.5)
            part[here] = torch.from_numpy(np.searchsorted(edges, np.arange(len(here)), side="right")).clamp_(
                max=SLOTS - 1
            )
        return shuffled[(part * classes + rank[labels]).argsort(stable=True)]

    def _shares(self, number: int, classes: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Draw each class's shares of the parts of a pass, [classes, SLOTS]: gamma variables, divided by their sum."""
        from scipy.stats import gamma

        uniform = Keyed(self.seed, [number]).fork("shares").uniform(shape=(classes, SLOTS))[0].double().numpy()
        drawn = gamma.ppf((uniform * 2**24 + 0.5) / 2**24, self.concentration)
        return np.asarray(drawn / drawn.sum(1, keepdims=True))

    def describe(self) -> dict[str, Json]:
        """Return the shifts and how labels are ordered."""
        return {**super().describe(), "concentration": self.concentration}


class Recurring(Correlated):
    """The same shifts in the same order, visited repeatedly, with correlated labels (PeTTA; Hoang et al. 2024).

    Args:
        data: A labelled set of images.
        visits: How often all shifts are visited.
        length: Number of images; by default that of all visits.
        options: Those of `Correlated`.

    >>> from shiftproof import load_data
    >>> len(Recurring(load_data("demo"), shifts=["contrast"], visits=2, length=100))
    100
    """

    kind: ClassVar[str] = "recurring"

    def __init__(self, data: Dataset, *, visits: int = 20, length: int | None = None, **options: Any) -> None:
        if visits < 1:
            raise ConfigurationError(
                "The number of visits must be positive.", expected="1 visit or more", got=str(visits)
            )
        super().__init__(data, length=length, **options)
        self.visits = visits
        if length is None:
            self.length *= visits

    def stage(self, number: int) -> Shift:
        """Return the shift whose turn it is, in every visit the same."""
        return super().stage(number % len(self.shifts))


class Gradual(Staged):
    """One shift after another, each rising to its highest severity and falling again, `speed` images a step.

    Args:
        data: The set of images.
        shifts: Names of corruptions or families; by default the fifteen of ImageNet-C.
        severities: The severities, rising; they fall again in the opposite order.
        speed: Images at each severity.
        length: Number of images; by default one round of all shifts.
        options: Those of `Stream`.

    >>> from shiftproof import load_data
    >>> len(Gradual(load_data("demo"), shifts=["fog"], severities=[1, 3, 5], speed=100))  # 1, 3, 5, 3, 1
    500
    """

    kind: ClassVar[str] = "gradual"

    def __init__(
        self,
        data: Dataset,
        *,
        shifts: Sequence[str] | None = None,
        severities: Sequence[float] = (1.0, 2.0, 3.0, 4.0, 5.0),
        speed: int = 1000,
        length: int | None = None,
        **options: Any,
    ) -> None:
        self.names = corruptions(shifts)
        rise = tuple(sorted(set(severities)))
        self.severities = (*rise, *rise[-2::-1])
        self.turns = tuple(catalogue.corruption(name, level) for name in self.names for level in self.severities)
        super().__init__(data, length=length or speed * len(self.turns), speed=speed, **options)

    def stage(self, number: int) -> Shift:
        """Return the severity whose turn it is, of the shift whose turn it is."""
        round_, turn = divmod(number, len(self.turns))
        name, level = divmod(turn, len(self.severities))
        order = Keyed(self.seed, [round_]).fork("rounds").permutation(len(self.names))[0]
        return self.turns[int(order[name]) * len(self.severities) + level]

    @property
    def shift_names(self) -> tuple[str, ...]:
        """The shifts of the first round, as far as the stream goes."""
        stages = min(len(self.turns), -(-self.length // self.speed))
        return tuple(dict.fromkeys(self.stage(number).name for number in range(stages)))

    @property
    def notes(self) -> tuple[str, ...]:
        """Which share of a round the stream is, where it is shorter than one."""
        stages, whole = -(-self.length // self.speed), len(self.turns)
        if stages >= whole:
            return ()
        return (
            f"The stream makes {stages} of {whole} steps and reaches {len(self.shift_names)} of {len(self.names)} "
            f"corruptions: one round takes {whole * self.speed:,} images.",
        )

    def describe(self) -> dict[str, Json]:
        """Return the shifts, the severities up and down, and the speed."""
        return {"shifts": list(self.names), "severities": list(self.severities), "speed": self.speed}
