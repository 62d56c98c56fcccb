"""The settings of the loop, checked where they are owned."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Literal

from shiftproof.errors import ConfigurationError
from shiftproof.registry import unknown
from shiftproof.training.schedules import SCHEDULES

OptimizerName = Literal["sgd", "adam"]
Precision = Literal["auto", "float32", "bf16"]


@dataclass(frozen=True)
class Settings:
    """How a network is optimised; the defaults are those of He et al. 2016, which the papers use on CIFAR.

    `batch_size` counts the images of one step over all processes. `warmup` is in epochs. `clip` bounds the norm of the
    gradient. `ema` is the decay of an exponential moving average of the weights, which is then what is saved; 0 is
    none. `precision` auto is bf16 on CUDA and float32 elsewhere. `framing` is the text form of a shift that every image
    goes through first, or empty.
    """

    epochs: int = 200
    batch_size: int = 256
    lr: float = 0.1
    optimizer: OptimizerName = "sgd"
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str = "step"
    warmup: float = 0.0
    clip: float | None = None
    ema: float = 0.0
    precision: Precision = "auto"
    framing: str = "pad_crop"
    seed: int = 0
    log_every: int = 50
    checkpoint_every: int | None = None

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise unknown("schedule", self.schedule, SCHEDULES)
        if self.optimizer not in ("sgd", "adam"):
            raise unknown("optimizer", self.optimizer, ("sgd", "adam"))
        if self.precision not in ("auto", "float32", "bf16"):
            raise unknown("precision", self.precision, ("auto", "float32", "bf16"))
        whole = {"epochs": self.epochs, "batch_size": self.batch_size, "log_every": self.log_every}
        for name, value in {**whole, "checkpoint_every": self.checkpoint_every or 1}.items():
            self._require(value >= 1, name, "1 or more", value)
        self._require(0 < self.lr < math.inf, "lr", "more than 0", self.lr)
        self._require(0 <= self.ema < 1, "ema", "0 (none) to under 1, such as 0.999", self.ema)
        self._require(0 <= self.warmup < self.epochs, "warmup", "0 epochs or more, fewer than all", self.warmup)
        self._require(self.clip is None or self.clip > 0, "clip", "more than 0", self.clip)
        self._require(0 <= self.momentum < 1, "momentum", "0 to under 1", self.momentum)
        self._require(self.weight_decay >= 0, "weight_decay", "0 or more", self.weight_decay)

    def _require(self, holds: bool, name: str, expected: str, came: object) -> None:
        if not holds:
            raise ConfigurationError(f"{name} cannot have this value.", expected=expected, came=str(came))

    def told(self) -> dict[str, str]:
        """Return what decides the weights, as texts: a run directory is about these."""
        return {name: str(value) for name, value in asdict(self).items()}
