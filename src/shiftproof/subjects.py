"""The front door of every verb: one model on one data set on one device.

What a user gives is loaded, matched by class name, mixed and fingerprinted here and nowhere else. A subject can be sent
to another process, which loads its own and must find the same.
"""

from __future__ import annotations

import copy
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from shiftproof.data import DataLike, Dataset, DataSpec, ImageSet, load_data, load_images
from shiftproof.data.images.source import DIFFERENT_SIZES
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.models import (
    BatchFitter,
    InputSize,
    Model,
    ModelLike,
    ModelSpec,
    choose_device,
    fingerprint,
    input_size,
    load_model,
)
from shiftproof.models.answers import check_behaviour
from shiftproof.models.folding import Layout, in_channels_last, laid_out
from shiftproof.models.precision import Reduced, reduced
from shiftproof.prediction_tasks import CLASSES, PredictionTask, check_task, task_of
from shiftproof.runs import Row, Store, Task
from shiftproof.version import __version__

HELD_BYTES = 2**26
"""Images are decoded once: up to so many bytes they are kept in memory, and more in a file, where the disk has room."""
GPU_BYTES, GPU_SHARE = 2**33, 8
"""A GPU holds images of up to so many bytes, where no more than one in so many of its free ones: they need not be read
and sent to it again for every shift."""
BATCH_SIZES = {"cpu": 64, "cuda": 256}
"""Images per forward pass, by kind of device: enough to fill it, few enough to stay in a CPU's cache."""
LOADED = {
    *("loaded_model", "model", "fast_model", "inner_model", "model_fingerprint"),
    *("loaded_data", "sized_data", "labelled_data", "places", "unmatched_places", "data", "fingerprints"),
}
"""What a subject leaves behind when it is sent to another process."""
LARGE_SIDE, LARGE_BATCH = 96, 8
"""On a CPU, images with more pixels a side than this stay in the cache only in such batches."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and data as the user gave them, and, from the first time they are asked for, as they are loaded.

    `given_model` and `given_data` are text, specs, or the objects themselves; `images` are drawn in proportion to the
    classes, None is all, in one keyed order (`Dataset.take`). Made by `Subject.of`.
    """

    DRAWN: ClassVar[frozenset[str]] = frozenset()
    """What else a kind of subject has that follows from the chosen inputs."""

    given_model: ModelLike
    given_data: DataLike
    images: int | None = None
    seed: int = 0
    device: str = "cpu"
    given_batch: int | None = None
    amp: bool = False
    texts: bool = False
    tasks: tuple[str, ...] = (CLASSES.name,)
    layout: Layout | None = None
    """How a folded network holds images in memory, where somebody found out which is faster."""
    expected: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: ModelLike,
        data: DataLike,
        *,
        images: int | None = None,
        seed: int = 0,
        device: str = "auto",
        batch_size: int | None = None,
        amp: bool = False,
        texts: bool = False,
        tasks: tuple[str, ...] = (CLASSES.name,),
    ) -> Self:
        """Check the choices and the device; nothing is loaded yet.

        `model` and `data` are what `load_model` and `load_data` take, or returned. `batch_size` is by default what
        suits the device and the size of images. With `amp` the model computes in bfloat16 where PyTorch considers it
        safe. `texts` says that a set of texts will do too, `tasks` which tasks of prediction will: data for others is
        refused.
        """
        if batch_size is not None and batch_size < 1:
            raise ConfigurationError("The batch size must be positive.", expected="1 or more", got=str(batch_size))
        where = choose_device(device, model)
        return cls(model, data, images, seed, where, batch_size, amp, texts, tasks)

    def __eq__(self, other: object) -> bool:
        """Whether the same loaded things are measured in the same batches."""
        return isinstance(other, Subject) and self._loaded == other._loaded

    def __hash__(self) -> int:
        return hash(self._loaded)

    @property
    def _loaded(self) -> tuple[int, int, int]:
        return id(self.model), id(self.data), self.batch_size

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what was loaded: another process loads its own, and must find the same."""
        kept = {name: value for name, value in self.__dict__.items() if name not in LOADED | self.DRAWN}
        return {**kept, "expected": self.__dict__.get("fingerprints", self.expected)}

    @cached_property
    def loaded_model(self) -> Model:
        """The model on its device, in its precision, as it was loaded."""
        loaded = load_model(self.given_model, device=self.device)
        return reduced(loaded) if self.amp else loaded

    @cached_property
    def model(self) -> Model:
        """The model that gives logits: what it returns for two inputs decides whether they have to be made of it."""
        _ = self.model_fingerprint  # before it is first run: a model may count its calls
        batch = next(iter(self.sized_data.subset(range(min(2, len(self.sized_data)))).batches(2)), None)
        return self.loaded_model if batch is None else self.task.answering(self.loaded_model, batch.inputs)

    @cached_property
    def fast_model(self) -> Model:
        """The model for asking alone: its answers are the same up to rounding, and come sooner."""
        batch = next(iter(self.sized_data.subset(range(min(4, len(self.sized_data)))).batches(4)), None)
        if batch is None or not isinstance(batch.inputs, Tensor):
            return self.model
        return laid_out(self.task.fast(self.model, batch.inputs.to(self.device)), self.layout)

    @cached_property
    def inner_model(self) -> Model:
        """The model for what looks at its layers: itself, in the layout that its convolutions are fastest in."""
        large = (self.sized_data.side or 0) > LARGE_SIDE
        last = large if self.device == "cpu" else self.layout in ("channels_last", "fused")
        batch = next(iter(self.sized_data.subset(range(min(4, len(self.sized_data)))).batches(4)), None)
        if not last or batch is None or not isinstance(batch.inputs, Tensor):
            return self.model
        return in_channels_last(self.model, batch.inputs.to(self.device), self.task.scores)

    @property
    def adapted_model(self) -> Model:
        """The model that methods of adaptation begin with: itself, on a GPU in the layout that was found to be faster.

        On a CPU batch statistics of images with channels last are summed to fewer digits (`models.moments`).
        """
        return self.model if self.device == "cpu" else self.inner_model

    @property
    def task(self) -> PredictionTask:
        """What the labels ask of the model."""
        return task_of(self.loaded_data)

    @cached_property
    def loaded_data(self) -> Dataset:
        """All inputs, in the order of the data, with labels as they were found there."""
        try:
            loaded = self._load_data()
            check_task(loaded, self.tasks, "this works on a class for each input")
            return loaded
        except DataError as error:
            wanted = self._input_size if error.headline == DIFFERENT_SIZES else None
            if wanted is None or self._made:
                raise
            return self._load_data(wanted)

    @cached_property
    def sized_data(self) -> Dataset:
        """The loaded data at the size of images that the model was made for, where it says one and the user did not."""
        data, wanted = self.loaded_data, self._input_size
        if not isinstance(data, ImageSet) or wanted is None or data.shape[1:] == (wanted.crop, wanted.crop):
            return data
        if wanted.firm and not self._made:
            return self._load_data(wanted)
        return data if data.source.size is not None else data.noted(_own_size(data, wanted))

    @property
    def _input_size(self) -> InputSize | None:
        """The size of images that the model was made for; None where the user chose it."""
        chosen = isinstance(self.given_data, DataSpec) and self.given_data.options.get("size") is not None
        return None if chosen else input_size(self.loaded_model)

    @property
    def _made(self) -> bool:
        """Whether the user made the set, whose images are as they are."""
        given = self.given_data.given if isinstance(self.given_data, DataSpec) else self.given_data
        return isinstance(given, Dataset)

    def _load_data(self, size: InputSize | None = None) -> Dataset:
        load = load_data if self.texts else load_images
        if size is None:
            return load(self.given_data)
        return load(DataSpec(self.given_data, size=size.size)).noted(
            f"Images were resized to the size that the model was made for: the short side to {size.size[0]} pixels, of"
            f" which the central {size.crop} x {size.crop} were taken."
            + (" Its own processor stretches images to a square." if size.stretched else "")
        )

    @cached_property
    def labelled_data(self) -> Dataset:
        """All inputs, in the order of the data, with labels that are outputs of the model."""
        return self.task.matched(self.sized_data, self.model)

    @cached_property
    def places(self) -> Tensor:
        """Where the chosen inputs are in the data, in the order they are used, [N]."""
        return self.labelled_data.draw(self.images, seed=self.seed)

    @cached_property
    def unmatched_places(self) -> Tensor:
        """Where the chosen inputs are in the data, of data whose labels are not matched to the model's outputs, [N]."""
        return self.sized_data.draw(self.images, seed=self.seed)

    @property
    def unmatched_data(self) -> Dataset:
        """The chosen inputs, in their keyed order, with labels as they were found: for measures of one's own."""
        return self.sized_data.subset(self.unmatched_places)

    @cached_property
    def data(self) -> Dataset:
        """The chosen inputs, in their keyed order: any first part of them is a sample."""
        chosen = self.labelled_data.subset(self.places)
        if chosen.nbytes <= _room(self.device):
            return chosen.in_memory(device=self.device)
        return chosen.in_memory() if chosen.nbytes <= HELD_BYTES else chosen.on_disk()

    @property
    def batch_size(self) -> int:
        """Inputs per forward pass."""
        if self.given_batch is not None:
            return self.given_batch
        kind = self.device.partition(":")[0]
        large = kind == "cpu" and (self.sized_data.side or 0) > LARGE_SIDE
        return LARGE_BATCH if large else BATCH_SIZES.get(kind, 64)

    @property
    def name(self) -> str:
        """What to call the model: the text it was given as, its own name, or its class."""
        given = self.given_model.given if isinstance(self.given_model, ModelSpec) else self.given_model
        if isinstance(given, str | Path):
            return str(given)
        named = given if isinstance(self.loaded_model, Reduced) else self.loaded_model
        return str(getattr(self.loaded_model, "name", type(named).__name__))

    @cached_property
    def model_fingerprint(self) -> str:
        """The fingerprint of the model as it was loaded."""
        return fingerprint(self.loaded_model)

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """What results are kept under: the version, the model, all of the data, and the inputs chosen of it.

        Of data that file names and their order do not decide. Elsewhere they must be those of the driver: a path can
        lead to other files on another machine.
        """
        found = {"version": __version__, "model": self.model_fingerprint, **self.data_fingerprints()}
        for name in ("model", "sample"):
            if self.expected.get(name, found[name]) != found[name]:
                raise DataError(
                    f"A worker loads another {'model' if name == 'model' else 'set of inputs'} than the driver.",
                    expected=f"fingerprint {self.expected[name]}",
                    got=f"fingerprint {found[name]} on {platform.node()}",
                    fix="give all machines the same files under the same path",
                )
        return found

    def data_fingerprints(self) -> dict[str, str]:
        """Return the fingerprints of all of the data, and of the inputs chosen of it."""
        return {"data": self.labelled_data.take().fingerprint, "sample": self.data.fingerprint}

    @property
    def identity(self) -> dict[str, str]:
        """What a run directory is about: a larger sample of the same data may go on with it."""
        return {name: value for name, value in self.fingerprints.items() if name != "sample"}

    def check_answers(self, store: Store) -> None:
        """Refuse to go on with a run whose model answered otherwise, though nothing that can be seen of it changed."""
        check_behaviour(store, self.model, self.labelled_data.take())

    def at_batch_size(self, size: int) -> Self:
        """Return the same subject, loaded as it is, in other batches."""
        return self._changed(given_batch=size)

    def asked(self, batch_size: int, layout: Layout | None) -> Self:
        """Return the same subject, in other batches, its folded network in another layout."""
        made = self._changed(given_batch=batch_size, layout=layout)
        made.__dict__["fast_model"] = laid_out(self.fast_model, layout)
        if made.layout != self.layout:
            made.__dict__.pop("inner_model", None)
        return made

    def in_own_precision(self) -> Self:
        """Return the same subject with its model as it was before it was to compute in fewer digits."""
        if not isinstance(self.loaded_model, Reduced):
            return self
        made = self._changed(amp=False, loaded_model=self.loaded_model.model)
        for name in ("model", "fast_model", "inner_model", "model_fingerprint", "fingerprints"):
            made.__dict__.pop(name, None)
        return made

    def taking(self, images: int | None) -> Self:
        """Return the same model on other images of the same data."""
        made = self._changed(images=images)
        for name in ("places", "unmatched_places", "data", "fingerprints", *self.DRAWN):
            made.__dict__.pop(name, None)
        return made

    def _changed(self, **fields: Any) -> Self:
        made = copy.copy(self)
        made.__dict__.update(self.__dict__, **fields)
        return made


def _own_size(data: ImageSet, wanted: InputSize) -> str:
    """Return what a report should say of images that are not of the size that a model was made for."""
    _, height, width = data.shape
    return (
        f"Images were measured at their own size, {width} x {height} pixels. The model's architecture is usually given "
        f"{wanted.crop} x {wanted.crop}: if its weights were trained on that size, load the images with --size "
        f"{wanted.crop} (size={wanted.crop} or {wanted.size} of load_data)."
    )


def _room(device: str) -> int:
    """Return how many bytes of images a device of its own memory may hold."""
    if not device.startswith("cuda"):
        return 0
    return min(GPU_BYTES, torch.cuda.mem_get_info(device)[0] // GPU_SHARE)


class Measurer:
    """A worker of `runs` over one subject, in batches that fit into memory."""

    def __init__(self, subject: Subject) -> None:
        _ = subject.fingerprints, subject.fast_model  # loads it, and sees that it is what the driver has
        self.subject = subject
        self.fit = BatchFitter(subject.batch_size)

    def measure(self, task: Task[Subject]) -> Row:
        """Let a task measure the subject."""
        return self.fit(lambda size: task.measure(self._at(size)))

    def _at(self, size: int) -> Subject:
        """Return the subject in batches of a size: the same for all tasks, so that what one of them loads is kept."""
        if self.subject.batch_size != size:
            self.subject = self.subject.at_batch_size(size)
        return self.subject
