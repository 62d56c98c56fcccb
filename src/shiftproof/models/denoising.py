"""Denoisers in front of a classifier: those that come with the package, those that training left, and one's own."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

import torch
from torch import nn

from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models.networks.denoiser import Denoiser
from shiftproof.models.weights import read_weights
from shiftproof.runs import Json, write_atomically

DenoiserLike: TypeAlias = str | Path | nn.Module

FOLDER = files("shiftproof.models") / "denoisers"
DENOISER = "denoiser.safetensors"
"""What training leaves in its folder."""
FORMAT = "shiftproof-denoiser/1"


def denoiser_names() -> tuple[str, ...]:
    """Return the names of the denoisers that come with the package."""
    found = FOLDER.iterdir() if FOLDER.is_dir() else ()
    return tuple(sorted(each.name.removesuffix(".safetensors") for each in found if each.name.endswith(".safetensors")))


def denoiser_card(name: str) -> dict[str, Json]:
    """Return what is known of a denoiser that comes with the package.

    `shape` is that of its images, `classifier` the fingerprint of the model it was trained through, or null.
    """
    card: dict[str, Json] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return card


def fitting_denoiser(model: str, shape: Sequence[int], sigma: float) -> str | None:
    """Return the denoiser that comes with the package for a model, by its fingerprint, and images of a shape.

    One that was trained through this model goes before one for all; None where none fits.
    """
    found = {name: denoiser_card(name) for name in denoiser_names()}
    fit = [name for name, card in found.items() if card["shape"] == list(shape) and _covers(name, sigma)]
    own = [name for name in fit if found[name]["classifier"] == model]
    return next(iter([*own, *(name for name in fit if found[name]["classifier"] is None)]), None)


def _covers(name: str, sigma: float) -> bool:
    loaded = load_denoiser(name)
    return isinstance(loaded, Denoiser) and loaded.range[0] <= sigma <= loaded.range[1]


def load_denoiser(given: DenoiserLike, device: torch.device | str = "cpu") -> nn.Module:
    """Return a copy of a denoiser, in evaluation mode and float32: by name, from a file or a folder, or a module."""
    if isinstance(given, nn.Module):
        return copy.deepcopy(given).eval().to(device)
    path = Path(given)
    if str(given) in denoiser_names():
        path = Path(str(FOLDER / f"{given}.safetensors"))
    elif path.is_dir():
        path = path / DENOISER
    if not path.is_file():
        names = [f"one of {', '.join(denoiser_names())}"] if denoiser_names() else []
        raise ModelError(
            f"There is no denoiser {str(given)!r}.",
            expected=" or ".join([*names, f"a folder with {DENOISER}, or such a file"]),
            fix="shiftproof train --recipe denoiser --out FOLDER makes one",
        )
    held = read_weights(path)
    if held.metadata.get("format") != FORMAT:
        raise ModelError(
            f"{str(path)!r} is not a denoiser.",
            expected=f"what `shiftproof train --recipe denoiser` wrote ({FORMAT})",
            got=held.metadata.get("format", "no format"),
        )
    weights = {name: value.float() if value.dtype == torch.half else value for name, value in held.tensors.items()}
    try:
        made = Denoiser(channels=len(weights["end.weight"]))
        made.load_state_dict(weights)
    except (RuntimeError, KeyError) as error:
        raise ModelError(
            f"The denoiser in {str(path)!r} has other layers.", reason=str(error).splitlines()[0]
        ) from error
    return made.eval().to(device)


def save_denoiser(path: Path, denoiser: Denoiser, facts: Mapping[str, Json]) -> None:
    """Write a denoiser's weights, those of convolutions in half precision, with notes in the header."""
    from safetensors.torch import save

    tensors = {
        name: (value.half() if value.ndim == 4 else value).detach().cpu().contiguous()
        for name, value in denoiser.state_dict().items()
    }
    write_atomically(path, save(tensors, {"format": FORMAT, "facts": json.dumps(facts)}))


def check_noise(denoiser: nn.Module, sigma: float) -> None:
    """Refuse noise that a denoiser was not trained for."""
    if isinstance(denoiser, Denoiser):
        low, high = denoiser.range
        if not low - 1e-6 <= sigma <= high + 1e-6:
            raise ConfigurationError(
                "The denoiser was trained for other noise.",
                expected=f"sigma from {low:g} to {high:g}",
                got=f"sigma={sigma:g}",
            )
