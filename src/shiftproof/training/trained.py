"""What training leaves: a network, its log, and files that `load_model` reads."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from shiftproof.errors import ShiftproofError
from shiftproof.models.carried_source import carry
from shiftproof.models.class_names import class_names
from shiftproof.models.networks import NETWORKS
from shiftproof.models.python_file import is_python_file, load_python_file, split_python_file
from shiftproof.models.trained_folder import TRAINED, TRAINED_WEIGHTS, is_named
from shiftproof.runs import Json, Row, write_atomically
from shiftproof.training.card import CARD, card


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network and its training log.

    `log` has a row for every `log_every` steps. If a goal selected the weights of the step `kept`, accuracies are those
    of that step.

    Args:
        model: The network, in evaluation mode.
        recipe: Name of the recipe.
        sigma: Standard deviation of the training noise.
        log: Rows of the training log.
        tuples: Chains of transformations that rsda and esda found during training, as text.
        folder: The run directory, which `load_model` accepts; None without one.
        kept: The step whose weights were kept; None without a goal.
    """

    model: nn.Module
    recipe: str
    sigma: float
    log: tuple[Row, ...]
    tuples: tuple[str, ...] = ()
    folder: Path | None = None
    kept: int | None = None

    @property
    def loss(self) -> float:
        """Mean loss over the last logged steps."""
        return float(str(self.log[-1]["loss"]))

    @property
    def accuracy(self) -> float | None:
        """Final accuracy on the validation set, under noise of `sigma` if any; None without a validation set.

        One draw of noise per image: this is the accuracy of the network, not of the smoothed classifier.
        """
        return self._last("noisy_accuracy" if self.sigma else "accuracy")

    @property
    def clean_accuracy(self) -> float | None:
        """Final accuracy on the validation set, without noise."""
        return self._last("clean_accuracy" if self.sigma else "accuracy")

    def _last(self, name: str) -> float | None:
        found = self.row.get(name)
        return None if found is None else float(str(found))

    @property
    def row(self) -> Row:
        """The row of the log for the kept weights."""
        return next((row for row in self.log if row["step"] == self.kept), self.log[-1])

    def losses(self) -> list[float]:
        """Return the loss of every row of the log."""
        return [float(str(row["loss"])) for row in self.log]

    def to_row(self) -> dict[str, Json]:
        """Return the numbers of the run."""
        last = self.log[-1]
        return {
            "recipe": self.recipe,
            "sigma": self.sigma,
            "steps": last["step"],
            "epochs": last["epoch"],
            "kept": self.kept,
            "loss": self.loss,
            "accuracy": self.accuracy,
            "clean_accuracy": self.clean_accuracy,
            "tuples": list(self.tuples),
        }


def architecture(spec: object) -> str | None:
    """Return the text by which `load_model` builds a network again; None for one that was given as an object."""
    text = str(spec) if isinstance(spec, str | Path) else None
    if text is None or text in NETWORKS:
        return text
    if text == "demo":
        return "resnet20"
    if is_python_file(text):
        path, function = split_python_file(text)
        return f"{path.resolve()}:{function}"
    trained = Path(text) / TRAINED
    if trained.is_file():
        built: str | None = json.loads(trained.read_text())["model"]
        if built is None or not is_python_file(built):
            return built
        path, function = split_python_file(built)
        return f"{(trained.parent / path).resolve()}:{function}"
    return text if is_named(text) else None  # a file may come with the folder, so none is loaded by its name


def write_model(trained: Trained, facts: Mapping[str, Json], settings: Mapping[str, str]) -> None:
    """Write the weights, what `load_model` needs to know of them, the user's file that builds it, and a card."""
    from safetensors.torch import save

    if trained.folder is None:
        raise RuntimeError("there is no folder for the model")
    folder, classes = trained.folder, class_names(trained.model) or ()
    tensors = {name: value.cpu().contiguous() for name, value in trained.model.state_dict().items()}
    write_atomically(folder / TRAINED_WEIGHTS, save(tensors))
    spec = facts["model"]
    if isinstance(spec, str) and is_python_file(spec):
        spec = _carried(spec, folder)
    facts = {**facts, "model": spec, "settings": dict(settings), "classes": list(classes), "last": dict(trained.row)}
    write_atomically(folder / TRAINED, json.dumps(facts, indent=1) + "\n")
    write_atomically(folder / CARD, card(facts, classes, trained.row, settings))


def _carried(spec: str, folder: Path) -> str:
    """Copy a user's file into the folder; where it does not build a network from there, its whole path is kept."""
    here = carry(spec, folder)
    try:
        load_python_file(str(folder / here))
    except ShiftproofError as error:  # it reads a file beside it, by a path of its own
        warnings.warn(
            f"The folder {str(folder)!r} cannot be moved to another machine: the copy of the model file in it does not "
            f"build a network ({error.facts.get('got', error.headline)}).",
            stacklevel=2,
        )
        return spec
    return here
