"""The settings of the loop, checked where they are owned."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from shiftproof.options import BelowOne, Count, NotNegative, Options, Positive
from shiftproof.training.schedules import ScheduleName

GoalName = Literal["accuracy", "corruptions", "certified", "worst_case"]


class TrainingSettings(Options):
    """How a network is optimised; the defaults are those of He et al. 2016, which the papers use on CIFAR.

    >>> TrainingSettings(epochs=10, lr=0.05).optimizer
    'sgd'
    """

    epochs: Annotated[Count, "Passes over the data; a larger number continues a finished run."] = 200
    batch_size: Annotated[Count, "Images of one step, over all processes."] = 256
    accumulate: Annotated[Count, "Parts that a batch is split into, with accumulated gradients."] = 1
    lr: Annotated[Positive, "The learning rate."] = 0.1
    optimizer: Annotated[Literal["sgd", "adam", "adamw"], "The optimiser."] = "sgd"
    momentum: Annotated[BelowOne, "The momentum of SGD."] = 0.9
    weight_decay: Annotated[NotNegative, "The weight decay."] = 1e-4
    schedule: Annotated[ScheduleName, "How the learning rate falls."] = "step"
    warmup: Annotated[float, Ge(0), "Epochs over which the learning rate rises; fewer than all."] = 0.0
    clip: Annotated[Positive | None, "The largest norm of the gradient; None: no limit."] = None
    ema: Annotated[BelowOne, "The decay of an average of the weights, which is then what is saved; 0: none."] = 0.0
    precision: Annotated[Literal["auto", "float32", "bf16", "fp16"], "Auto is bf16 on CUDA and float32 elsewhere."] = (
        "auto"
    )
    head: Annotated[Literal["keep", "new"], "New: an untrained last layer for the classes of the data."] = "keep"
    freeze: Annotated[str, "Layers that stay as they are, by the beginning of their names: conv1,layer1."] = ""
    layer_decay: Annotated[float, Gt(0), Le(1), "The learning rate of each stage as a share of the next stage's."] = 1.0
    label_smoothing: Annotated[BelowOne, "The share of the target that is spread evenly over all classes."] = 0.0
    mix: Annotated[Literal["none", "mixup", "cutmix"], "How images of a batch and their labels are mixed."] = "none"
    mix_alpha: Annotated[Positive, "Both parameters of the Beta distribution of a mixture's shares."] = 1.0
    class_weights: Annotated[Literal["none", "balanced"], "Balanced: the loss of rare classes counts more."] = "none"
    sampling: Annotated[Literal["uniform", "balanced"], "Balanced: every class occurs equally often in an epoch."] = (
        "uniform"
    )
    goal: Annotated[
        GoalName | None,
        "Keep the weights of the checkpoint that is best on --validation: by accuracy; under the four hold-out "
        "corruptions, which no audit uses by default; by certified radius; or under the worst of random chains. "
        "Default: the last weights.",
    ] = None
    patience: Annotated[Count | None, "Stop after this many checkpoints without a better one; with --goal."] = None
    recalibrate: Annotated[bool, "Recompute the statistics of batch normalisation for the kept weights."] = False
    framing: Annotated[str, "A shift, in text form, that is applied to every image first; empty: none."] = "pad_crop"
    seed: Annotated[int, "The seed of every random draw."] = 0
    log_every: Annotated[Count, "Steps between two lines of the log."] = 50
    checkpoint_every: Annotated[Count | None, "Steps between two checkpoints; None: an epoch."] = None

    def check(self) -> None:
        """Refuse a run that is all warm-up, and an end without a goal."""
        self.require(self.warmup < self.epochs, "a warmup of 0 epochs or more, fewer than all")
        self.require(self.patience is None or self.goal is not None, "a goal with patience: by what is it better?")

    @property
    def frozen(self) -> tuple[str, ...]:
        """What the names of layers begin with that stay as they are."""
        return tuple(part.strip() for part in self.freeze.split(",") if part.strip())

    def to_texts(self) -> dict[str, str]:
        """Return what decides the weights, as texts: a run directory is about these, whatever the number of epochs."""
        return {name: str(value) for name, value in self.to_dict().items() if name != "epochs"}
