"""Help while training: one loop, and every recipe of the papers as augmentation, noise and loss.

trained = train("resnet110", "cifar-10-batches-py", split="train", recipe="fouriermix+hcr", sigma=0.25, out="run")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shiftproof.registry import resolve

if TYPE_CHECKING:
    from shiftproof.training.recipes import RECIPES, Recipe, recipe
    from shiftproof.training.settings import TrainingSettings
    from shiftproof.training.trained import Trained
    from shiftproof.training.training import train

_TARGETS = {
    "RECIPES": "shiftproof.training.recipes:RECIPES",
    "Recipe": "shiftproof.training.recipes:Recipe",
    "TrainingSettings": "shiftproof.training.settings:TrainingSettings",
    "Trained": "shiftproof.training.trained:Trained",
    "recipe": "shiftproof.training.recipes:recipe",
    "train": "shiftproof.training.training:train",
}

__all__ = ["RECIPES", "Recipe", "Trained", "TrainingSettings", "recipe", "train"]


def __getattr__(name: str) -> Any:
    if name in _TARGETS:
        return resolve(_TARGETS, name, "name")
    raise AttributeError(f"module 'shiftproof.training' has no attribute {name!r}")
