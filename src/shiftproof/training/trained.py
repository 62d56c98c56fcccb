"""What training leaves: a network, its log, and files that `load_model` reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from shiftproof.models.networks import NETWORKS
from shiftproof.models.python_file import is_python_file
from shiftproof.models.trained_folder import TRAINED, TRAINED_WEIGHTS, is_named
from shiftproof.runs import Json, Row, write_atomically


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network with the record of how it came about.

    `model` is in evaluation mode. `log` has a row for every `log_every` steps. `tuples` are those that rsda and esda
    found, in their order, as texts. `folder` is the run directory, which `load_model` and `--model` take, or None.
    """

    model: nn.Module
    recipe: str
    sigma: float
    log: tuple[Row, ...]
    tuples: tuple[str, ...] = ()
    folder: Path | None = None

    @property
    def loss(self) -> float:
        """The mean loss over the last steps that were logged."""
        return float(str(self.log[-1]["loss"]))

    @property
    def accuracy(self) -> float | None:
        """The accuracy on the validation set at the end, where there was one: under noise of `sigma`, where it has any.

        The noise is one draw per image: it is that of the network alone, not of the smoothed classifier.
        """
        return self._last("noisy_accuracy" if self.sigma else "accuracy")

    @property
    def clean_accuracy(self) -> float | None:
        """The accuracy on the validation set at the end, without noise."""
        return self._last("clean_accuracy" if self.sigma else "accuracy")

    def _last(self, name: str) -> float | None:
        found = self.log[-1].get(name)
        return None if found is None else float(str(found))

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
        path, colon, function = text.rpartition(":") if not text.endswith(".py") else (text, "", "")
        return f"{Path(path).resolve()}{colon}{function}"
    trained = Path(text) / TRAINED
    if trained.is_file():
        built: str | None = json.loads(trained.read_text())["model"]
        return built
    return text if is_named(text) else None  # a file may come with the folder, so none is loaded by its name


def write_model(folder: Path, weights: dict[str, Tensor], facts: dict[str, Json]) -> None:
    """Write the weights, and what `load_model` needs to know of them."""
    from safetensors.torch import save

    tensors = {name: value.cpu().contiguous() for name, value in weights.items()}
    write_atomically(folder / TRAINED_WEIGHTS, save(tensors))
    write_atomically(folder / TRAINED, json.dumps(facts, indent=1) + "\n")
