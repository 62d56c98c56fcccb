"""A model held to some of its classes: the other outputs are left out, as ImageNet-R and ImageNet-A are evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from shiftproof.errors import ModelError
from shiftproof.models import imagenet
from shiftproof.models.blackbox import BlackBox, Model
from shiftproof.models.class_names import (
    are_places,
    class_names,
    plain_numbers,
    read_class_names,
    told_names,
    with_class_names,
)
from shiftproof.models.naming import places
from shiftproof.runs.files import is_hidden


class Restricted(nn.Module):
    """A model with some of its outputs, in their order; `label_numbers` are their places among all of them."""

    kept: Tensor

    def __init__(self, model: Model, kept: Sequence[int]) -> None:
        super().__init__()
        self.model = model
        self.label_numbers = tuple(kept)
        self.register_buffer("kept", torch.tensor(self.label_numbers), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits [N, K] of the K outputs that are kept."""
        scores: Tensor = self.model(inputs)
        if int(max(self.label_numbers)) >= scores.shape[1]:
            raise ModelError(
                "The model cannot be restricted to these classes.",
                expected=f"classes among its {scores.shape[1]} outputs",
                got=f"output {max(self.label_numbers)}",
            )
        return scores[:, self.kept.to(scores.device)]


def restricted(model: Model, only: str | Path | Sequence[str | int]) -> Model:
    """Return a model with the outputs of some classes alone.

    `only` lists them by name, WordNet id or number; a file lists one per line, and a folder has a sub-folder for each.
    """
    if isinstance(only, str | Path) and Path(only).is_dir():
        only = sorted(entry.name for entry in Path(only).iterdir() if entry.is_dir() and not is_hidden(entry.name))
    wanted = read_class_names([str(name) for name in only] if not isinstance(only, str | Path) else only)
    known = class_names(model)
    called, numbers = plain_numbers(told_names(model) or ()), plain_numbers(wanted)
    if set(numbers) <= set(called) and not are_places(called):  # 0, 1, 10, 11, 2, ...: numbers are names
        found = places(numbers, called)
    elif all(name.isascii() and name.isdigit() for name in wanted):
        found = [[int(name)] if known is None or int(name) < len(known) else [] for name in wanted]
    else:
        found = places(wanted, imagenet.wordnet_ids() if known is None else known)
    strange = [name for name, some in zip(wanted, found, strict=True) if len(some) != 1]
    if strange or len(wanted) < 2:
        raise ModelError(
            "The model cannot be restricted to these classes.",
            expected="two or more of the model's classes"
            + (", which it does not name: numbers, or WordNet ids" if known is None else f": {', '.join(known[:10])}"),
            got=", ".join((strange or list(wanted))[:10]),
        )
    kept = sorted({some[0] for some in found})
    made = Restricted(model, kept)
    names = [known[place] if known else wanted[found.index([place])] for place in kept]
    if isinstance(model, BlackBox):
        return with_class_names(BlackBox(made, name=model.name, device=model.device), names)
    return with_class_names(made.train(model.training), names)
