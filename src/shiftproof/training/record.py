"""The log of a run: JSON lines as it goes, and the same for TensorBoard, Weights & Biases and MLflow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from shiftproof.errors import ConfigurationError
from shiftproof.registry import unknown
from shiftproof.runs import Row, write_atomically
from shiftproof.runs.files import cannot_write, not_through_a_link

FILE = "log.jsonl"
_SHOWN = ("loss", "lr", "train_accuracy", "accuracy", "noisy_accuracy", "clean_accuracy", "goal")


class Tracker(Protocol):
    """Something that follows a run: numbers by name, of a step."""

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Take the numbers of a step."""

    def close(self) -> None:
        """Be done."""


class TrainingLog:
    """Appends rows to `log.jsonl`; one that goes on begins with the rows that led to its checkpoint.

    What a killed run logged after its last checkpoint is dropped: the same steps are logged again.
    """

    def __init__(self, folder: Path, before: Iterable[Row] = (), tracked: Sequence[str] | None = None) -> None:
        self.path = folder / FILE
        rows = list(before)
        write_atomically(self.path, "".join(json.dumps(row) + "\n" for row in rows))
        step = int(str(rows[-1]["step"])) if rows else 0
        names = trackers(None) if tracked is None else tracked
        self._trackers = [TRACKERS[name](folder, step) for name in names]

    def add(self, row: Row) -> None:
        """Write one row, at once."""
        try:
            with open(self.path, "a", opener=not_through_a_link) as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise cannot_write(self.path, error) from error
        shown = {name: float(str(row[name])) for name in _SHOWN if name in row}
        for each in self._trackers:
            each.add(int(str(row["step"])), shown)

    def close(self) -> None:
        """Close what follows the run."""
        for each in self._trackers:
            each.close()


def trackers(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return what follows a run, by name: TensorBoard where it is installed, or what was asked for, which must be.

    >>> trackers(["none"])
    ()
    """
    if names is None:
        return ("tensorboard",) if find_spec("tensorboard") is not None else ()
    for name in names:
        if name not in (*TRACKERS, "none"):
            raise unknown("tracker", name, (*TRACKERS, "none"))
        if name != "none" and find_spec(name) is None:
            raise ConfigurationError(
                f"{name} is not installed.", expected=f"the package {name}", fix=f"pip install {name}, or leave it out"
            )
    return tuple(name for name in names if name != "none")


class _TensorBoard:
    """Events in the run directory; those after the checkpoint are replaced."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    """A run of Weights & Biases, named after the folder; one that goes on is the same run."""

    def __init__(self, folder: Path, step: int) -> None:
        import wandb

        name = folder.resolve().name
        self._run = wandb.init(project="shiftproof", name=name, id=name, dir=str(folder), resume="allow")

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


class _MLflow:
    """A run of MLflow, named after the folder; one that goes on is a new run from its checkpoint on."""

    def __init__(self, folder: Path, step: int) -> None:
        import mlflow

        self._mlflow = mlflow
        mlflow.start_run(run_name=folder.resolve().name)

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(numbers), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


TRACKERS: Mapping[str, Callable[[Path, int], Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": _Wandb,
    "mlflow": _MLflow,
}
"""Name of a package that follows runs -> what writes to it."""
