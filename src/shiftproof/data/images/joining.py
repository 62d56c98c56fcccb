"""Several sets of images as one, which knows where each image is from: folders, or the parts of a published suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import torch
from torch import Tensor

from shiftproof.data.base import BadFile
from shiftproof.data.images.imageset import ImageSet
from shiftproof.data.images.maskset import MaskSet
from shiftproof.data.images.published_suites import StoredSuite
from shiftproof.data.images.source import ImageSource, Pixels, sizes_differ
from shiftproof.errors import DataError
from shiftproof.registry import unknown

_NUMBERS = {"index", "numerals"}


class JoinedSet(ImageSet):
    """Images of several domains: `domain` [N] says which of `domains` each is from.

    `ordered` says that the domains have an order of their own; otherwise a stream draws one.
    """

    domains: tuple[str, ...]
    domain: Tensor
    ordered: bool

    def subset(self, indices: Sequence[int] | Tensor) -> Self:
        """Return the images at some places, in the order given."""
        made = super().subset(indices)
        made.domain = self.domain[torch.as_tensor(indices, dtype=torch.int64)]
        return made


class JoinedMaskSet(JoinedSet, MaskSet):
    """Images with label maps, of several domains."""


class JoinedSource(ImageSource):
    """The rows of several sources, one after the other; `rows` are those of each that are used."""

    def __init__(self, sources: Mapping[str, ImageSource], rows: Sequence[Tensor]) -> None:
        self.sources = tuple(sources.items())
        self.rows = [some.tolist() for some in rows]
        first = self.sources[0][1]
        self.shape, self.value_bytes, self.size = first.shape, first.value_bytes, first.size
        self.decoding = "\0".join(source.decoding for _, source in self.sources)
        self.places = [(part, row) for part, some in enumerate(self.rows) for row in some]

    def __len__(self) -> int:
        return len(self.places)

    def file(self, row: int) -> str:
        """Return the name of an image within its domain, with the domain's before it."""
        part, own = self.places[row]
        name, source = self.sources[part]
        return f"{name.rstrip('/')}/{source.file(own) or own}"

    def read(self, rows: Sequence[int]) -> Pixels:
        """Return the images of some rows, each source asked once."""
        asked: dict[int, list[int]] = {}
        for position, row in enumerate(rows):
            asked.setdefault(self.places[row][0], []).append(position)
        images: dict[int, Tensor] = {}
        bad: list[BadFile] = []
        for part, positions in asked.items():
            name, source = self.sources[part]
            found = source.read([self.places[rows[position]][1] for position in positions])
            images |= {positions[place]: image for place, image in zip(found.kept, found.images, strict=True)}
            bad += [BadFile(f"{name.rstrip('/')}/{file}", reason) for file, reason in found.bad]
        kept = sorted(images)
        stacked = torch.stack([images[place] for place in kept]) if kept else torch.empty(0, *self.shape)
        return Pixels(stacked, kept, bad)

    def make_contents(self) -> Tensor:
        """Return the digests of the rows."""
        return torch.cat([source.contents[rows] for (_, source), rows in zip(self.sources, self.rows, strict=True)])


def join(sets: Mapping[str, ImageSet], *, name: str, ordered: bool = True) -> JoinedSet:
    """Return sets as one; classes are matched by name, images must be alike in size, and labelled in the same way."""
    parts = list(sets.values())
    first = parts[0]
    for (one, each), (other, next_one) in zip(list(sets.items())[:-1], list(sets.items())[1:], strict=True):
        if each.shape != next_one.shape:
            raise sizes_differ((one, each.shape[:0:-1]), (other, next_one.shape[:0:-1]))
        if each.source.value_bytes != next_one.source.value_bytes or each.shape[0] != next_one.shape[0]:
            raise DataError("These sets do not fit together.", expected="images of one depth", got=f"{one} and {other}")
    _check_labels(sets)
    labels, classes = _joined_labels(sets)
    source = JoinedSource({each: part.source for each, part in sets.items()}, [part._rows for part in parts])
    made = (JoinedMaskSet if isinstance(first, MaskSet) else JoinedSet)(
        source,
        name=name,
        labels=labels,
        classes=classes,
        numbering="index" if {part.numbering for part in parts} == _NUMBERS else first.numbering,
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        on_bad_file=first.on_bad_file,
        bad_files=[bad for part in parts for bad in part.bad_files],
    )
    made.domains, made.ordered = tuple(sets), ordered
    made.domain = torch.cat([torch.full((len(part),), number) for number, part in enumerate(parts)])
    return made


def _check_labels(sets: Mapping[str, ImageSet]) -> None:
    """Refuse sets with labels beside sets without, and label maps beside a label for each image."""
    if len({part.labels is None for part in sets.values()}) > 1:
        without = next(each for each, part in sets.items() if part.labels is None)
        raise DataError(
            "Some of these sets have labels, and some have none.",
            expected="labels for all of them, or for none",
            got=f"none for {without}",
        )
    if len({part.task for part in sets.values()}) > 1:
        raise DataError(
            "Some of these sets have label maps, and some have a label for each image.",
            expected="sets for one task",
            got=", ".join(f"{each}: {part.task}" for each, part in sets.items()),
        )


def choose_parts(suite: StoredSuite, split: str | None) -> list[str]:
    """Return parts of a suite: those named (`fog@3,snow@3`), those of a severity (`3`), or each at its highest."""
    if split is not None and not split.replace(".", "").isdigit():
        found = {text: suite.find(text.strip()) for text in split.split(",")}
        for text, part in found.items():
            if part is None:
                raise unknown("part of the suite", text, suite.parts)
        return [part.label for part in found.values() if part is not None]
    highest: dict[str, float] = {}
    for part in suite.parts.values():
        if split is None or part.severity == float(split):
            highest[part.name] = max(part.severity, highest.get(part.name, 0.0))
    if not highest:
        known = sorted({f"{part.severity:g}" for part in suite.parts.values()})
        raise unknown("severity of the suite", split, known)
    return [part.label for part in suite.parts.values() if part.severity == highest.get(part.name)]


def _joined_labels(sets: Mapping[str, ImageSet]) -> tuple[Tensor | None, tuple[str, ...]]:
    """Return the labels of all images and their classes: those that have names by name, others as they are."""
    parts = list(sets.values())
    known = [part.labels for part in parts if part.labels is not None]
    if not known:
        return None, ()
    kinds = {part.numbering for part in parts}
    if len(kinds) > 1 and kinds != _NUMBERS:
        raise DataError(
            "These sets do not all label their classes in the same way.",
            expected="names for all of them, or numbers for all of them",
            got=", ".join(f"{each}: {part.numbering}" for each, part in sets.items()),
        )
    if parts[0].numbering != "names":
        longest = max((part.classes for part in parts), key=len)
        if any(part.classes != longest[: len(part.classes)] for part in parts):
            raise DataError("These sets have different classes.", expected=", ".join(longest[:10]))
        return torch.cat(known), longest
    classes = tuple(sorted({name for part in parts for name in part.classes}))
    place_of = {name: place for place, name in enumerate(classes)}
    tables = [torch.tensor([place_of[name] for name in part.classes]) for part in parts]
    return torch.cat([table[labels] for table, labels in zip(tables, known, strict=True)]), classes
