"""Where the worst case is looked for: operations at levels, and tuples of them.

A tuple of a space is held as *genes*: places in `Space.steps`, one per step. The same tuple is applied to every image.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, product
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.models.identity import digest
from shiftproof.registry import unknown
from shiftproof.runs import write_atomically
from shiftproof.runs.files import expand, read_json
from shiftproof.shifts import ImageChain, ImageShift, Operation, as_image_shift, names
from shiftproof.shifts.forms import plain
from shiftproof.shifts.operations.operation import operation_set, operation_sets

Genes: TypeAlias = tuple[int, ...]
Drawing: TypeAlias = Literal["step", "operation"]

CORRUPTIONS = "corruptions"
SEVERITIES = (1.0, 2.0, 3.0)
"""Of the space of corruptions: five strong ones in turn would leave nothing to recognise."""
SMALL_GEOMETRIC = "small_geometric"
MOVES = {"rotate": 16.0, "translate_x": 0.1, "translate_y": 0.1, "shear_x": 0.15, "shear_y": 0.15}
"""Of the space of small moves: how far each goes to either side. Two rotations are at most 32 degrees."""
SCALES = (0.85, 0.9, 0.95, 1.05, 1.1, 1.15)
OCCLUSION = "occlusion"
CENTRES, SHADES, PATCH = (0.2, 0.4, 0.6, 0.8), (0.0, 0.5, 1.0), 0.25
"""Of the space of occlusions: squares of a sixteenth of the area."""


@dataclass(frozen=True)
class Space:
    """A search space of operations with levels; a chain of length N is N (operation, level) steps, with repetition.

    An operation is written as in the text form of shifts, less its level: `contrast`, `rotate[fill=reflect]`, and
    `fog@`, whose levels are severities. One without levels, such as `grayscale`, is a single step.

    Args:
        name: What the space is called.
        operations: Pairs of an operation and its levels.

    >>> space = Space("mine", (("contrast", (0.6, 1.4)), ("grayscale", ()), ("fog@", (1.0, 2.0))))
    >>> len(space), space.size(3), space.label((0, 2, 4))
    (5, 125, 'contrast=0.6 + grayscale + fog@2')
    """

    name: str
    operations: tuple[tuple[str, tuple[float, ...]], ...]

    def __post_init__(self) -> None:
        if not self.operations:
            raise ConfigurationError(
                "The space has no operations.",
                expected="operations with levels, such as [('contrast', [0.8, 1.2]), 'grayscale']",
                fix=f"one of the spaces that come with it: {', '.join(spaces())}",
            )
        _ = self.steps  # what cannot be read is told now

    def __str__(self) -> str:
        return self.name

    def content_digest(self) -> str:
        """Return a digest of the name and of every step, which may be a shift of another package."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return digest([self.name, self.operations, self.steps])

    @cached_property
    def steps(self) -> tuple[ImageShift, ...]:
        """Every operation at every level, in order."""
        return tuple(as_image_shift(text) for name, levels in self.operations for text in _texts(name, levels))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many levels each operation has; one for an operation without levels."""
        return tuple(max(1, len(levels)) for _, levels in self.operations)

    def __len__(self) -> int:
        return sum(self.counts)

    def size(self, length: int) -> int:
        """Return the number of tuples of a length."""
        return int(len(self) ** length)

    def chain(self, genes: Genes) -> ImageChain:
        """Return a tuple as a shift, which applies its steps in turn."""
        return ImageChain(steps=[self.steps[gene] for gene in genes])

    def label(self, genes: Genes) -> str:
        """Return a tuple as text, which `shifts.parse` reads."""
        return self.chain(genes).label

    def words(self, genes: Genes) -> str:
        """Return a tuple for people to read: levels to three digits, names without underscores."""
        if not genes:
            return "no change"
        return ", ".join(
            f"{step.name.replace('_', ' ')} {step.level:.3g}"
            if isinstance(step, Operation) and step.level is not None
            else _spoken(step.label)
            for step in (self.steps[gene] for gene in genes)
        )

    def draw(self, rng: Keyed, length: int, by: Drawing = "step") -> NDArray[np.int64]:
        """Draw tuples, one per key of the generator, [keys, length].

        Uniform over the steps, or first over the operations and then over the levels of the one drawn.
        """
        if by == "step":
            steps: NDArray[np.int64] = rng.integers(0, len(self), (length,)).numpy()
            return steps
        counts = np.array(self.counts)
        starts = np.array([0, *accumulate(self.counts)][:-1])
        which = rng.integers(0, len(counts), (length,)).numpy()
        level = np.floor(rng.uniform(shape=(length,)).numpy().astype(np.float64) * counts[which])
        made: NDArray[np.int64] = starts[which] + level.astype(np.int64)
        return made

    def to_json(self) -> dict[str, Any]:
        """Return the space as JSON values."""
        return {"name": self.name, "operations": {name: list(levels) for name, levels in self.operations}}

    def save(self, path: str | Path) -> None:
        """Write the space to a JSON file, which `make_space` reads."""
        write_atomically(Path(path), json.dumps(self.to_json(), indent=1) + "\n")


SpaceLike: TypeAlias = Space | str | Path | Sequence[str | tuple[str, Sequence[float]]]
"""A space in any form that `make_space` takes."""


def spaces() -> tuple[str, ...]:
    """Return the names of the spaces that come with the library."""
    return (*operation_sets(), SMALL_GEOMETRIC, OCCLUSION, CORRUPTIONS)


def make_space(space: SpaceLike) -> Space:
    """Return a space from its name, a JSON file, or a list of operations with their levels.

    Args:
        space: A name of `spaces()`, a JSON file, or operations with their levels.

    >>> len(make_space("cifar"))
    190
    >>> make_space([("contrast", [0.8, 1.2]), "grayscale"]).label((1, 2))
    'contrast=1.2 + grayscale'
    """
    if isinstance(space, Space):
        return space
    if isinstance(space, str | Path):
        return _read(expand(space)) if str(space).endswith(".json") else _named(str(space))
    return Space("own", _pairs(space))


def check_length(length: int) -> None:
    """Refuse tuples without steps."""
    if length < 1:
        raise ConfigurationError(
            "A chain needs at least one transformation.", expected="a length of 1 or more", got=str(length)
        )


@cache
def _named(name: str) -> Space:
    if name in operation_sets():
        levels: dict[str, list[float]] = {}
        for step in operation_set(name):
            levels.setdefault(step.name, []).extend([] if step.level is None else [float(step.level)])
        return Space(name, tuple((each, tuple(some)) for each, some in levels.items()))
    if name == CORRUPTIONS:
        return Space(name, tuple((f"{each}@", SEVERITIES) for each in names("common")))
    if name == SMALL_GEOMETRIC:
        shares = (-1.0, -0.75, -0.5, -0.25, 0.25, 0.5, 0.75, 1.0)
        moves = [(f"{each}[fill=reflect]", tuple(far * share for share in shares)) for each, far in MOVES.items()]
        return Space(name, (*moves, ("scale[fill=reflect]", SCALES)))
    if name == OCCLUSION:
        patches = product(CENTRES, CENTRES, SHADES)
        return Space(name, tuple((f"occlude[x={x:g},y={y:g},size={PATCH:g},shade={w:g}]", ()) for y, x, w in patches))
    raise unknown("space", name, spaces(), fix="a JSON file of your own, written by Space.save")


def _read(path: Path) -> Space:
    try:
        content = read_json(path)
        operations = content["operations"]
        return Space(str(content.get("name", path.stem)), _pairs(operations.items()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"Cannot read the space {str(path)!r}.",
            expected='a JSON file such as {"name": "mine", "operations": {"contrast": [0.8, 1.2], "grayscale": []}}',
            reason=f"{type(error).__name__}: {error}",
        ) from error


def _pairs(operations: Iterable[str | tuple[str, Sequence[float]]]) -> tuple[tuple[str, tuple[float, ...]], ...]:
    pairs = [(each, ()) if isinstance(each, str) else each for each in operations]
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise ConfigurationError(
                "A space is a list of operations with their levels.",
                expected="pairs of a name and levels, such as ('contrast', [0.8, 1.2]), or names alone",
                got=repr(pair),
            )
    return tuple((name.strip(), tuple(float(level) for level in levels)) for name, levels in pairs)


def _spoken(label: str) -> str:
    """Return the text form of a shift for people to read.

    >>> _spoken("occlude[x=0.6,y=0.2,shade=1]"), _spoken("defocus_blur@2")
    ('occlude (x 0.6, y 0.2, shade 1)', 'defocus blur 2')
    """
    for sign, spoken in (("_", " "), ("@", " "), ("[", " ("), ("]", ")"), (",", ", "), ("=", " ")):
        label = label.replace(sign, spoken)
    return label


def _texts(operation: str, levels: Sequence[float]) -> list[str]:
    """Return the text forms of an operation at its levels."""
    name, bracket, options = operation.partition("[")
    joint = "" if name.endswith("@") else "="
    return [f"{name}{joint}{plain(level)}{bracket}{options}" for level in levels] or [operation]


def from_mapping(name: str, operations: Mapping[str, Sequence[float]]) -> Space:
    """Return a space from operations by name, as its JSON file holds them."""
    return Space(name, _pairs(operations.items()))
