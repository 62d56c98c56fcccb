"""What a step is fed: images in the order of an epoch, framed and augmented on the device, keyed by the image.

Everything random depends on (seed, epoch, image), so that a batch is the same whatever came before it, in however many
processes it is made, and wherever a run goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shiftproof.data import Batch, ImageSet
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.keyed import Keyed, key_of
from shiftproof.prediction_tasks import task_of
from shiftproof.shifts import ImageShift, as_image_shift
from shiftproof.shifts.image_shift import Shape, check_layout
from shiftproof.shifts.levels import from_levels, quantize_, to_bytes, to_levels
from shiftproof.shifts.operations.operation import Operation, apply_in_turn_
from shiftproof.streams.ahead import ahead
from shiftproof.training.recipes import Recipe
from shiftproof.training.settings import TrainingSettings
from shiftproof.training.team import Team

HELD_BYTES = 2**32
"""Images are held on the device, as bytes, where all of them take no more than this; otherwise they stream."""

BLOCK, MEMORY_SHARE = 2**25, 1600
"""On CUDA so many values are augmented at a time, for several steps: launching kernels takes longer than running them
for one batch of small images, and holds up the steps. On large devices more of them: one for so many bytes of memory.
What an image gets does not depend on it."""

Before = Callable[[Tensor], Tensor]
"""Images [N, C, H, W] -> what a network said of them before it was trained, [N, ...]."""


@dataclass(frozen=True, eq=False)
class Views(Batch[Tensor]):
    """Images as an objective wants them: `inputs` are views [V, N, C, H, W], and labels there are.

    `before` is what the network that training began with says of the first views, where that was asked for.
    """

    labels: Tensor
    before: Tensor | None = None


class Feed:
    """Batches of a training set by step; this process's part of them where several train together."""

    def __init__(
        self,
        data: ImageSet,
        recipe: Recipe,
        settings: TrainingSettings,
        *,
        device: torch.device,
        team: Team | None = None,
        decoders: int = 0,
    ) -> None:
        self.recipe, self.settings, self.device = recipe, settings, device
        self.team = team or Team()
        self.batch = min(settings.batch_size, len(data))
        if self.batch % self.team.size:
            raise ConfigurationError(
                "The batch cannot be split evenly.",
                expected=f"a batch size that {self.team.size} processes can share",
                got=str(self.batch),
            )
        self.parts = _parts(self.batch, self.team, 1 if recipe.tuples is None else recipe.tuples.per_batch)
        self.steps_per_epoch = len(data) // self.batch
        self.block = block_of(self.steps_per_epoch, self.batch * math.prod(data.shape), _values_at_a_time(device))
        self.framing = as_image_shift(settings.framing) if settings.framing else None
        self.augment = None if recipe.augment is None else as_image_shift(recipe.augment)
        self.data = data
        self.supply = _Held(data, device) if data.nbytes <= HELD_BYTES else _Read(data, device, decoders)
        check_layout(torch.empty(0, *data.shape))

    @property
    def steps(self) -> int:
        """How many steps a run takes."""
        return self.settings.epochs * self.steps_per_epoch

    def batches(
        self, start: int, stop: int, found: Sequence[tuple[int, ...]] = (), before: Before | None = None
    ) -> Generator[Views, None, None]:
        """Yield what the steps from `start` to `stop` are fed, with the tuples found so far; on CUDA, made ahead.

        `before` answers for the network that training began with: it, too, is asked for several steps at a time.
        """
        share = self.batch // self.team.size
        for block in ahead(self._blocks(start, stop, found, before), self.device, waiting=1):
            for first in range(0, len(block.labels), share):
                some = slice(first, first + share)
                said = None if block.before is None else block.before[some]
                yield Views(block.inputs[:, some], block.labels[some], block.keys[some], before=said)

    def order(self, epoch: int) -> Tensor:
        """Return the order of the images in an epoch, [N]: a matter of the seed and their content."""
        order = self.data.order(self.settings.seed, f"train/order/{epoch}")
        return order if self.settings.sampling == "uniform" else balanced(order, labels_of(self.data))

    def _blocks(
        self, start: int, stop: int, found: Sequence[tuple[int, ...]], before: Before | None
    ) -> Iterator[Views]:
        """Yield the views of `block` steps at a time, fewer at the end of an epoch."""
        share = self.batch // self.team.size
        while start < stop:
            epoch, place = divmod(start, self.steps_per_epoch)
            count = min(stop - start, self.steps_per_epoch - place)
            order = self.order(epoch)[place * self.batch : (place + count) * self.batch]
            mine = order.view(count, self.team.size, share)[:, self.team.rank]
            for images, labels, keys in self.supply.read(mine, self.block):
                views = self._transformed(self._views(images, keys, epoch), keys, start, epoch, found)
                said = None if before is None else before(views[0])
                yield Views(views, self._labels(labels, keys, epoch), keys, before=said)
                start += len(keys) // share

    def _views(self, images: Tensor, keys: Tensor, epoch: int) -> Tensor:
        """Return the views of images, [V, N, C, H, W]: one that is augmented, or the image and augmented ones."""
        if self.framing is not None:
            images = shifted(self.framing, images, keys, self._seed(epoch, "framing"))
        if self.augment is None:
            return images.expand(self.recipe.objective.views, *images.shape)
        count = self.recipe.objective.views
        if count == 1:
            return shifted(self.augment, images, keys, self._seed(epoch, "view 0"))[None]
        made = [shifted(self.augment, images, keys, self._seed(epoch, f"view {view}")) for view in range(1, count)]
        return torch.stack([images, *made])

    def _labels(self, labels: Tensor, keys: Tensor, epoch: int) -> Tensor:
        """Return labels as they belong to the views: maps move with what the images of all views went through."""
        task = task_of(self.data)
        if self.framing is not None:
            labels = task.moved(self.framing, labels, keys, self._seed(epoch, "framing"))
        if self.augment is not None and self.recipe.objective.views == 1:
            labels = task.moved(self.augment, labels, keys, self._seed(epoch, "view 0"))
        return labels

    def _transformed(
        self, views: Tensor, keys: Tensor, step: int, epoch: int, found: Sequence[tuple[int, ...]]
    ) -> Tensor:
        """Send each part of each step of a block through the chain of operations that is its own, if any."""
        tuples = self.recipe.tuples
        if tuples is None:
            return views
        share = self.batch // self.team.size
        steps = range(step, step + len(keys) // share)
        drawn = tuples.at(steps, found, seed=self.settings.seed)
        firsts = range(0, len(drawn), tuples.per_batch)
        chains = [tuples.chain(drawn[first + part]) for first in firsts for part in self.parts]
        operations = [[each for each in chain.steps if isinstance(each, Operation)] for chain in chains]
        fills = {each.fill for some in operations for each in some}
        others = sum(len(chain.steps) for chain in chains) - sum(map(len, operations))
        if others == 0 and len(fills) <= 1:
            return from_levels(apply_in_turn_(to_levels(views[0]), operations))[None]
        seed = self._seed(epoch, "tuple")
        each = share // len(self.parts)
        parts = zip(chains, torch.split(views[0], each), torch.split(keys, each), strict=True)
        made = [shifted(chain, some, names, seed) if chain.steps else some for chain, some, names in parts]
        return torch.cat(made)[None]

    def _seed(self, epoch: int, purpose: str) -> int:
        return key_of(f"{self.settings.seed}/{epoch}/{purpose}")

    def noise(self, batch: Views, sigma: float, epoch: int) -> Tensor | None:
        """Return Gaussian noise for every view, [V, S, N, C, H, W]; None where the recipe adds none."""
        if sigma == 0.0 or self.recipe.noise == "none":
            return None
        views, count, *shape = batch.inputs.shape
        rng = Keyed(self._seed(epoch, "noise"), batch.keys, device=self.device)
        drawn = rng.fork("gaussian").normal(0.0, sigma, (views, self.recipe.objective.noises, *shape))
        if self.recipe.noise == "half":
            drawn.mul_((rng.fork("half").uniform() < 0.5).view(count, 1, 1, 1, 1, 1))
        return drawn.movedim(0, 2)


def block_of(steps: int, values: int, most: int) -> int:
    """Return how many of an epoch's steps are made at a time, each of so many values: equal parts of it, as few as fit.

    >>> block_of(97, 512 * 3072, 2**25), block_of(97, 512 * 3072, 0)
    (20, 1)
    """
    parts = -(-steps // max(1, most // values))
    return -(-steps // parts)


def _values_at_a_time(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    return max(BLOCK, torch.cuda.get_device_properties(device).total_memory // MEMORY_SHARE)


def balanced(order: Tensor, labels: Tensor) -> Tensor:
    """Return an order of as many images in which every class is equally often: those of rare ones come again.

    >>> labels = torch.tensor([0, 0, 0, 1])
    >>> labels[balanced(torch.arange(4), labels)].tolist()
    [0, 1, 0, 1]
    """
    groups = [order[labels[order] == label] for label in sorted(set(labels.tolist()))]
    rounds = -(-len(order) // len(groups))
    turns = torch.arange(rounds)
    return torch.stack([group[turns % len(group)] for group in groups], dim=1).flatten()[: len(order)]


def _parts(batch: int, team: Team, count: int) -> range:
    """Return which of the `count` equal parts of a batch this process has, all its images or a share of one part."""
    share = batch // team.size
    size = batch // count
    if batch % count or (share % size and size % share):
        raise ConfigurationError(
            "The batch cannot be cut into equal parts.",
            expected=f"a batch size that {count} tuples and {team.size} processes can share",
            got=f"{batch} images",
        )
    first = team.rank * share // size
    return range(first, first + max(1, share // size))


def shifted(shift: ImageShift, images: Tensor, keys: Tensor, seed: int) -> Tensor:
    """Apply a shift as calling it does, without its check of the values, for which the host waits for the device."""
    with torch.no_grad():
        rng = Keyed(seed, keys, device=images.device).fork(shift.name)
        return quantize_(shift.transform(images, shift.draw(rng, Shape(*images.shape[1:]))))


def labels_of(data: ImageSet) -> Tensor:
    """Return the labels that occur in a set; refuse one that nothing can be learned from."""
    if data.labels is None:
        raise DataError(
            "The images have no labels.",
            expected="labels on all that is trained or validated on",
            got=data.name,
            fix="one sub-folder per class, or --labels with a CSV (columns file, label)",
        )
    known = data.known_labels
    assert known is not None
    if not len(known) or len(data) < 2 or int(known.min()) == int(known.max()):
        raise DataError(
            "There is only one class.",
            expected="at least two classes",
            got=f"{len(data)} images of one class",
            fix="give the folder that holds one sub-folder per class",
        )
    if int(known.min()) < 0:
        raise DataError("Labels must be whole numbers from 0.", got=f"label {int(known.min())}")
    return known


class _Held:
    """All images on the device, as bytes."""

    def __init__(self, data: ImageSet, device: torch.device) -> None:
        parts = [(to_bytes(batch.inputs), batch.labels, batch.keys) for batch in data.batches(1024)]
        images, labels, keys = (torch.cat(some) for some in zip(*parts, strict=True))
        self.images, self.labels, self.keys = images.to(device), labels.to(device), keys.to(device)

    def read(self, places: Tensor, block: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield images in [0, 1], labels and keys at places [steps, share], `block` steps at a time."""
        for some in torch.split(places, block):
            rows = some.flatten().to(self.images.device, non_blocking=True)
            yield from_levels(self.images[rows]), self.labels[rows], self.keys[rows]


class _Read:
    """Images decoded as they are wanted."""

    def __init__(self, data: ImageSet, device: torch.device, decoders: int) -> None:
        self.data, self.device, self.decoders = data, device, decoders

    def read(self, places: Tensor, block: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield images in [0, 1], labels and keys at places [steps, share], `block` steps at a time."""
        some, size = self.data.subset(places.flatten()), block * places.shape[1]
        for batch in some.batches(size, workers=self.decoders, device=self.device):
            if len(batch) % places.shape[1] or batch.labels is None:
                raise DataError(
                    "Unreadable files cannot be skipped in a training set that does not fit in memory.",
                    got=", ".join(bad.file for bad in some.bad_files[:4]),
                    fix="repair or remove these files",
                )
            yield batch.inputs, batch.labels, batch.keys
