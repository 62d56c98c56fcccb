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
    batch_size: Annotated[Count, "Images per step, over all processes."] = 256
    accumulate: Annotated[Count, "Number of parts to split a batch into, accumulating gradients."] = 1
    lr: Annotated[Positive, "The learning rate."] = 0.1
    optimizer: Annotated[Literal["sgd", "adam", "adamw"], "The optimiser."] = "sgd"
    momentum: Annotated[BelowOne, "The momentum of SGD."] = 0.9
    weight_decay: Annotated[NotNegative, "The weight decay."] = 1e-4
    schedule: Annotated[ScheduleName, "Learning-rate schedule."] = "step"
    warmup: Annotated[float, Ge(0), "Epochs of learning-rate warm-up; fewer than all epochs."] = 0.0
    clip: Annotated[Positive | None, "Largest gradient norm, for clipping; None: no clipping."] = None
    ema: Annotated[
        BelowOne, "Decay of an exponential moving average of the weights, which is then saved instead; 0: none."
    ] = 0.0
    precision: Annotated[
        Literal["auto", "float32", "bf16", "fp16"], "Precision of training; auto is bf16 on CUDA and float32 elsewhere."
    ] = "auto"
    head: Annotated[
        Literal["keep", "new"], "Use new to replace the last layer by an untrained one for the classes of the data."
    ] = "keep"
    freeze: Annotated[str, "Prefixes of the names of layers to freeze, such as conv1,layer1."] = ""
    layer_decay: Annotated[float, Gt(0), Le(1), "Learning rate of each stage as a fraction of the next stage's."] = 1.0
    label_smoothing: Annotated[BelowOne, "Label smoothing: share of the target spread evenly over all classes."] = 0.0
    mix: Annotated[
        Literal["none", "mixup", "cutmix"], "Mix images of a batch and their labels: none, mixup or cutmix."
    ] = "none"
    mix_alpha: Annotated[Positive, "Parameter of the Beta(a, a) distribution of the mixing weights."] = 1.0
    class_weights: Annotated[Literal["none", "balanced"], "Balanced weights the loss of rare classes more."] = "none"
    sampling: Annotated[Literal["uniform", "balanced"], "Balanced draws every class equally often in an epoch."] = (
        "uniform"
    )
    goal: Annotated[
        GoalName | None,
        "Keep the weights of the checkpoint that is best on --validation: by accuracy; under the four hold-out "
        "corruptions, which no audit uses by default; by certified radius; or under the worst of random chains. "
        "Default: the last weights.",
    ] = None
    patience: Annotated[Count | None, "With a goal, stop after this many checkpoints without improvement."] = None
    recalibrate: Annotated[bool, "Recompute batch-norm statistics for the weights that are kept."] = False
    framing: Annotated[
        str, "Text form of a shift applied to every image first, such as a random crop; empty: none."
    ] = "pad_crop"
    seed: Annotated[int, "The seed of every random draw."] = 0
    log_every: Annotated[Count, "Steps between two rows of the log."] = 50
    checkpoint_every: Annotated[Count | None, "Steps between two checkpoints; None: one epoch."] = None

    def check(self) -> None:
        """Check that the warm-up is shorter than the run, and that patience comes with a goal."""
        self.require(self.warmup < self.epochs, "a warmup of 0 epochs or more, fewer than all")
        self.require(self.patience is None or self.goal is not None, "a goal with patience: by what is it better?")

    @property
    def frozen(self) -> tuple[str, ...]:
        """Prefixes of the names of frozen layers."""
        return tuple(part.strip() for part in self.freeze.split(",") if part.strip())

    def to_texts(self) -> dict[str, str]:
        """Return the settings that determine the weights, as text; `epochs`, which may grow, is not among them."""
        return {name: str(value) for name, value in self.to_dict().items() if name != "epochs"}
