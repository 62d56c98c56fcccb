"""Everything a run needs to go on, in one file per checkpoint; and the moving average of the weights."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.errors import ModelError, RunError
from shiftproof.models.weights import read_tensors
from shiftproof.runs import write_atomically


class Average:
    """An exponential moving average of a network's weights and statistics.

    Early on, when there is little to average, the decay is (1 + t) / (10 + t) after t steps.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        now = network.state_dict()  # the network's own memory, which training changes in place
        self.values = {name: value.clone() for name, value in now.items()}
        pairs: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
        for name, value in now.items():
            pairs.setdefault(value.dtype, []).append((self.values[name], value))
        self._pairs = {dtype: tuple(zip(*some, strict=True)) for dtype, some in pairs.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Move towards the network; what cannot be averaged, such as a counter, is copied."""
        weight = 1.0 - min(self.decay, (1 + self.steps) / (10 + self.steps))
        self.steps += 1
        for dtype, (mine, its) in self._pairs.items():
            if dtype.is_floating_point:
                torch._foreach_lerp_(mine, its, weight)
            else:
                torch._foreach_copy_(mine, its)

    def state_dict(self) -> dict[str, Any]:
        """Return the average and its age."""
        return {"values": self.values, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from an average."""
        self.steps = int(state["steps"])
        for name, value in state["values"].items():
            self.values[name].copy_(value)


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state so that a kill leaves it whole or absent."""
    content = io.BytesIO()
    torch.save(dict(state), content)
    write_atomically(path, content.getvalue())


def load_state(path: Path, device: torch.device) -> dict[str, Any]:
    """Read a state; a file with anything but tensors and plain values in it is refused."""
    try:
        state: dict[str, Any] = read_tensors(path, device=device)
    except ModelError as error:
        raise RunError(
            f"The checkpoint {path.name!r} is gone or cannot be read.",
            reason=error.facts["got"],
            fix=f"remove the folder {str(path.parent)!r}; the same command then starts again",
        ) from error
    return state
