"""What a certification or a spectrum is made of, loaded once per process, and the driving of its tasks."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from shiftproof.certificates.checks import check_fixed, check_function
from shiftproof.data import ImageSet, load_images, matched
from shiftproof.errors import DataError
from shiftproof.models import Model, device_of, fingerprint, load_model
from shiftproof.models.answers import check_behaviour
from shiftproof.runs import AnyTask, Executor, Plan, Result, Setup, Store, Watch, drive
from shiftproof.version import __version__


@dataclass(frozen=True)
class Material:
    """A model and images as the user gave them: text that is loaded, or the objects themselves; `take` chooses some."""

    model: Any
    model_options: dict[str, Any]
    data: Any
    data_options: dict[str, Any]
    take: int | None
    seed: int

    @cached_property
    def loaded(self) -> tuple[Model, ImageSet, Tensor]:
        """The model, the chosen images, and their places in the data."""
        model = load_model(self.model, **self.model_options)
        data = matched(load_images(self.data, **self.data_options), model)
        places = data.draw(self.take, seed=self.seed)
        return model, data.subset(places), places

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what was loaded: another process loads its own."""
        return {name: value for name, value in self.__dict__.items() if name not in ("loaded", "subject")}

    @property
    def name(self) -> str:
        """What to call the model: the text it was given as, its own name, or its class."""
        model = self.loaded[0]
        return str(self.model) if isinstance(self.model, str | Path) else getattr(model, "name", type(model).__name__)

    @cached_property
    def subject(self) -> dict[str, str]:
        """What a run directory is about; the model is looked at before it is first run."""
        model, data, _ = self.loaded
        return {"version": __version__, "model": fingerprint(model), "data": data.fingerprint}

    def check(self) -> None:
        """Put a few images to the model before any long work, and see that labels are classes of its own."""
        model, data, _ = self.loaded
        check_fixed(model)
        _ = self.subject
        batch = next(iter(data.subset(range(min(4, len(data)))).batches(4, device=device_of(model))))
        classes = check_function(model, batch.images)
        if data.labels is not None and not 0 <= int(data.labels.min()) <= int(data.labels.max()) < classes:
            raise DataError(
                "Labels and model outputs do not fit.",
                expected=f"labels from 0 to {classes - 1}: the model has {classes} outputs",
                came=f"labels from {int(data.labels.min())} to {int(data.labels.max())}",
            )

    def run(
        self,
        tasks: tuple[AnyTask, ...],
        setup: Setup,
        *,
        out: str | Path | None,
        executor: Executor,
        watch: Watch | None,
    ) -> list[Result]:
        """Measure the tasks that the run directory lacks, or all of them without one.

        The first cell that fails ends it: a gap would make the numbers wrong.
        """
        plan = Plan(tasks, self.subject)
        with ExitStack() as stack:
            folder = Path(out) if out is not None else Path(stack.enter_context(TemporaryDirectory()))
            store = stack.enter_context(Store(folder, plan.fingerprints))
            model, data, _ = self.loaded
            check_behaviour(store, model, data)
            return drive(plan, store, setup, executor=executor, watch=watch, essential="A measurement")
