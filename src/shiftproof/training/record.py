"""The log of a run: JSON lines as it goes, and TensorBoard events where tensorboard is installed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shiftproof.runs import Row, write_atomically
from shiftproof.runs.files import cannot_write, not_through_a_link

FILE = "log.jsonl"
_SHOWN = ("loss", "lr", "accuracy", "noisy_accuracy", "clean_accuracy")


class TrainingLog:
    """Appends rows to `log.jsonl`; one that goes on begins with the rows that led to its checkpoint.

    What a killed run logged after its last checkpoint is dropped: the same steps are logged again.
    """

    def __init__(self, folder: Path, before: Iterable[Row] = ()) -> None:
        self.path = folder / FILE
        rows = list(before)
        write_atomically(self.path, "".join(json.dumps(row) + "\n" for row in rows))
        step = int(str(rows[-1]["step"])) if rows else 0
        self._events = _events(folder, step)

    def add(self, row: Row) -> None:
        """Write one row, at once."""
        try:
            with open(self.path, "a", opener=not_through_a_link) as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise cannot_write(self.path, error) from error
        if self._events is not None:
            for name in _SHOWN:
                if name in row:
                    self._events.add_scalar(name, row[name], row["step"])
            self._events.flush()

    def close(self) -> None:
        """Close the events."""
        if self._events is not None:
            self._events.close()


def _events(folder: Path, step: int) -> Any:
    """Return a writer of TensorBoard events that replaces those after `step`; None without tensorboard."""
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=step + 1)
