"""The settings of the loop, checked where they are owned."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge

from shiftproof.options import BelowOne, Count, NotNegative, Options, Positive
from shiftproof.training.schedules import ScheduleName


class TrainingSettings(Options):
    """How a network is optimised; the defaults are those of He et al. 2016, which the papers use on CIFAR."""

    epochs: Annotated[Count, "Passes over the data."] = 200
    batch_size: Annotated[Count, "Images of one step, over all processes."] = 256
    lr: Annotated[Positive, "The learning rate."] = 0.1
    optimizer: Annotated[Literal["sgd", "adam"], "What takes the steps."] = "sgd"
    momentum: Annotated[BelowOne, "The momentum of SGD."] = 0.9
    weight_decay: Annotated[NotNegative, "The weight decay."] = 1e-4
    schedule: Annotated[ScheduleName, "How the learning rate falls."] = "step"
    warmup: Annotated[float, Ge(0), "Epochs over which the learning rate rises; fewer than all."] = 0.0
    clip: Annotated[Positive | None, "The largest norm of the gradient; None: no limit."] = None
    ema: Annotated[BelowOne, "The decay of an average of the weights, which is then what is saved; 0: none."] = 0.0
    precision: Annotated[Literal["auto", "float32", "bf16"], "Auto is bf16 on CUDA and float32 elsewhere."] = "auto"
    framing: Annotated[str, "The text form of a shift that every image goes through first; empty: none."] = "pad_crop"
    seed: Annotated[int, "The seed of everything that is drawn."] = 0
    log_every: Annotated[Count, "Steps between two lines of the log."] = 50
    checkpoint_every: Annotated[Count | None, "Steps between two checkpoints; None: an epoch."] = None

    def check(self) -> None:
        """Refuse a run that is all warm-up."""
        self.require(self.warmup < self.epochs, "a warmup of 0 epochs or more, fewer than all")

    def to_texts(self) -> dict[str, str]:
        """Return what decides the weights, as texts: a run directory is about these."""
        return {name: str(value) for name, value in self.to_dict().items()}
