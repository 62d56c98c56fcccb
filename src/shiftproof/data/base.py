"""What every data set is: labelled inputs of one kind that stream in batches; images and texts are its two kinds.

Labels are in memory, inputs only where they are wanted. Order, draws, names of inputs and fingerprints are made here,
from digests of content; what an input is, and how a batch of them is made, is a kind's own.
"""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from typing_extensions import TypeVar

from shiftproof.data.contents import digests, numbered, occurrences
from shiftproof.data.labels import Numbering
from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed

OnBadFile = Literal["fail", "skip"]

Inputs = TypeVar("Inputs", bound=Sized, default=Any)
"""What a batch holds: a tensor of images, or a list of texts. Unsaid, it is either: a user's data decides."""


class Noun(NamedTuple):
    """What inputs are called in sentences: one of them, and several."""

    one: str
    many: str


NOUNS: Mapping[str, Noun] = {"images": Noun("image", "images"), "texts": Noun("text", "texts")}
"""The kinds of inputs, by what several are called."""


class BadFile(NamedTuple):
    """A file that cannot be decoded, and why.

    Args:
        file: Its path.
        reason: Why it cannot be decoded.
    """

    file: str
    reason: str


@dataclass(frozen=True, eq=False)
class Batch(Generic[Inputs]):
    """A batch of inputs with labels and keys, all on one device, and the shift applied to them.

    Images are float32, labels and keys int64. In label maps, one value may stand for no label.

    Args:
        inputs: Images [N, C, H, W] in [0, 1], or a list of N texts.
        labels: Classes [N] or label maps [N, H, W]; None if unknown.
        keys: Integers [N] that identify the inputs and determine their random draws.
        shift: Label of the shift applied to the inputs.

    >>> import torch
    >>> Batch(torch.rand(2, 3, 8, 8), None, torch.arange(2)).shift
    'clean'
    """

    inputs: Inputs
    labels: Tensor | None
    keys: Tensor
    shift: str = "clean"

    def __len__(self) -> int:
        return len(self.inputs)


class Source(ABC):
    """Where the inputs of a set are, by row."""

    decoding: str = ""
    """How stored bytes become inputs, where that is a choice: a set's fingerprint changes with it."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many rows there are."""

    @cached_property
    def contents(self) -> Tensor:
        """A digest of the stored bytes of every row, [N] int64."""
        return self.make_contents()

    @abstractmethod
    def make_contents(self) -> Tensor:
        """Return the digests; they are asked for once."""


class Repeats:
    """Which of its equals each row of a source is: counted over the whole set, when first asked for."""

    def __init__(self, source: Source, labels: Tensor | None) -> None:
        self._source, self._labels = source, labels

    @cached_property
    def numbers(self) -> Tensor:
        """Occurrence numbers from 0, one for each row."""
        return occurrences(self._source.contents, _by_row(self._labels))

    def of(self, rows: Tensor, source: Source) -> Repeats:
        """Return the numbers of some rows, which are all rows of another source."""
        made = Repeats(source, None)
        made.numbers = self.numbers[rows]
        return made


class Dataset(ABC, Generic[Inputs]):
    """A data set: inputs of one kind with a name and, if known, labels and class names.

    Labels are int64 class indices from 0; `numbering` says where they come from, which decides how `matching.match`
    maps them to a model's outputs. If files cannot be decoded, `on_bad_file="fail"` raises an error that names the
    first, and `"skip"` leaves them out and lists them in `bad_files`.

    Args:
        source: Source that the inputs are read from.
        name: Name in reports.
        labels: Classes [N] or label maps [N, H, W]; None if unknown.
        classes: Class names, in the order of the class indices.
        numbering: Origin of the class indices.
        notes: Caveats on the set, for reports.
        on_bad_file: `fail` or `skip`, for files that cannot be decoded.
        bad_files: Files already known to be unreadable.
    """

    kind: ClassVar[str]
    """The kind of its inputs: `images` or `texts`."""
    task: ClassVar[str] = "classification"
    """What its labels ask of a model, the name of a `PredictionTask`: a class for each input, or for each pixel."""

    def __init__(
        self,
        source: Source,
        *,
        name: str,
        labels: Tensor | None = None,
        classes: Sequence[str] = (),
        numbering: Numbering = "index",
        notes: Sequence[str] = (),
        on_bad_file: OnBadFile = "fail",
        bad_files: Iterable[BadFile] = (),
    ) -> None:
        if on_bad_file not in ("fail", "skip"):
            raise ConfigurationError(f"Invalid on_bad_file={on_bad_file!r}.", expected="on_bad_file: 'fail' or 'skip'")
        self.source = source
        self.name = name
        self.labels = labels
        self.classes = tuple(classes)
        self.numbering: Numbering = numbering
        self.on_bad_file = on_bad_file
        self._notes = tuple(notes)
        self._rows = torch.arange(len(source))
        self._repeats = Repeats(source, labels)  # shared with subsets
        self._bad = dict.fromkeys(bad_files)  # in the order found; shared with subsets

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {len(self)} {self.noun.many}, {len(self.classes)} classes)"

    @property
    def noun(self) -> Noun:
        """What its inputs are called."""
        return NOUNS[self.kind]

    @property
    def known_labels(self) -> Tensor | None:
        """The labels that occur, without the ignored value; None if unknown."""
        return self.labels

    @property
    def side(self) -> int | None:
        """Image side in pixels; None for texts."""
        return None

    @property
    def nbytes(self) -> int:
        """Bytes that `in_memory` needs; 0 if the inputs are in memory already."""
        return 0

    def in_memory(self, *, workers: int = 0, device: torch.device | str = "cpu") -> Self:
        """Return the same set with its inputs in memory, images in a device's, without those that cannot be decoded."""
        return self

    def on_disk(self, *, workers: int = 0) -> Self:
        """Return the same set with its inputs decoded in a file, without those that cannot be decoded."""
        return self

    @property
    def keys_known(self) -> bool:
        """Whether its keys are known without reading it."""
        return True

    @property
    def bad_files(self) -> tuple[BadFile, ...]:
        """Files found so far that cannot be decoded."""
        return tuple(self._bad)

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats on this set, for reports."""
        if not self._bad:
            return self._notes
        named = ", ".join(bad.file for bad in self.bad_files[:5]) + (", ..." if len(self._bad) > 5 else "")
        count = "1 file that cannot be read was" if len(self._bad) == 1 else f"{len(self._bad)} unreadable files were"
        return (*self._notes, f"{count} left out: {named}.")

    @property
    def contents(self) -> Tensor:
        """Digests of the inputs as they are stored, [N] int64: equal for copies, whatever their labels."""
        return self.source.contents[self._rows]

    @property
    def draw_keys(self) -> Tensor:
        """Whole numbers that draws and orders are keyed by, [N]: digests of stored bytes, and which of its equals."""
        return numbered(self.contents, self._repeats.numbers[self._rows])

    @property
    def keys(self) -> Tensor:
        """Whole numbers that name the inputs for `keyed` randomness, [N]: digests, and which of its equals."""
        return self.draw_keys

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any input, label or class name, their order, and the decoding."""
        blake = hashlib.blake2b(self.source.decoding.encode(), digest_size=8)
        for numbers in (self.draw_keys, self.labels):
            blake.update(b"none" if numbers is None else numbers.numpy().tobytes())
        blake.update("\0".join(self.classes).encode("utf-8", "backslashreplace"))
        return blake.hexdigest()

    def batches(self, size: int, *, workers: int = 0, device: torch.device | str = "cpu") -> Iterator[Batch[Inputs]]:
        """Return batches of `size` inputs in order, decoded in `workers` processes (0: in this process).

        A batch is smaller if files cannot be decoded. With workers, a script needs the usual `if __name__ ==
        "__main__":` around its work.
        """
        if size < 1 or workers < 0:
            raise ConfigurationError(
                "Invalid batch settings.", expected="a size of 1 or more, 0 or more workers", got=f"{size}, {workers}"
            )
        return self._batches(size, workers, torch.device(device))

    @abstractmethod
    def _batches(self, size: int, workers: int, device: torch.device) -> Iterator[Batch[Inputs]]:
        """Yield the batches."""

    def subset(self, indices: Sequence[int] | Tensor) -> Self:
        """Return the inputs at some indices, in the order given."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        made = self._changed()
        made.labels = None if self.labels is None else self.labels[chosen]
        made._rows = self._rows[chosen]
        return made

    def renumbered(self, labels: Tensor, classes: Sequence[str], *notes: str) -> Self:
        """Return the set with labels that are output indices of a model, and a note for reports."""
        made = self._changed()
        made.labels, made.classes, made.numbering = labels, tuple(classes), "index"
        made._notes = (*self._notes, *notes)
        return made

    def _changed(self) -> Self:
        made = copy.copy(self)
        made.__dict__.pop("fingerprint", None)  # the cached one is of this set
        return made

    def named(self, name: str) -> Self:
        """Return the set under another name."""
        made = copy.copy(self)
        made.name = name
        return made

    def noted(self, *notes: str) -> Self:
        """Return the set with a further note for reports."""
        made = copy.copy(self)
        made._notes = (*self._notes, *notes)
        return made

    def take(self, n: int | None = None, *, seed: int = 0) -> Self:
        """Return a random sample of n inputs in proportion to the classes; all if n is None or larger than the set.

        Any first part is a sample of the set. The sample depends only on the seed, the content of the files and the
        labels, not on the names or the order of files; a larger n includes the inputs of a smaller one. The order is
        uniform: batches balanced by label would leak label information to an adaptive model.
        """
        return self.subset(self.draw(n, seed=seed))

    def draw(self, n: int | None = None, *, seed: int = 0) -> Tensor:
        """Return the indices of the inputs that `take` returns, in its order."""
        if n is not None and n < 1:
            raise ConfigurationError(
                f"The number of {self.noun.many} must be positive.", expected="1 or more", got=str(n)
            )
        mixed = self.order(seed, "order")
        if n is None or n >= len(self):
            return mixed
        chosen = torch.zeros(len(self), dtype=torch.bool)
        classes = None if self.labels is None or self.labels.ndim > 1 else self.labels
        chosen[in_shares(self.order(seed, "take"), classes)[:n]] = True
        return mixed[chosen[mixed]]

    def order(self, seed: int, purpose: str) -> Tensor:
        """Return a random order of the inputs, [N]: a matter of the seed, the purpose, their content and labels."""
        keys = self.draw_keys
        drawn = Keyed(seed, keys).fork(purpose).uniform()
        labels = _by_row(self.labels)
        ties = [] if labels is None else [labels.numpy()]
        return torch.from_numpy(np.lexsort((*ties, keys.numpy(), drawn.numpy())))


def _by_row(labels: Tensor | None) -> Tensor | None:
    """Return one number for each label, [N]: a class as it is, and of a map a digest."""
    return labels if labels is None or labels.ndim == 1 else digests(row.numpy().tobytes() for row in labels)


def in_shares(order: Tensor, labels: Tensor | None) -> Tensor:
    """Return an order in which every first part has the classes in the shares of the whole, as nearly as can be.

    The k-th input of a class with m inputs comes when (k - 1/2)/m of the set is due: Sainte-Lague's rule for seats.
    """
    if labels is None:
        return order
    own = labels[order]
    sizes = torch.bincount(own)
    grouped = own.argsort(stable=True)
    rank = torch.empty_like(order)  # how many of the same class came before
    rank[grouped] = torch.arange(len(order)) - (sizes.cumsum(0) - sizes)[own[grouped]]
    return order[((rank + 0.5).double() / sizes[own]).argsort(stable=True)]
