"""The options that methods share: one name, one meaning and one range each, whatever the method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from annotated_types import Ge
from pydantic import AllowInfNan, BeforeValidator

from shiftproof.adapters.resets import POLICIES, Reset, never, parse
from shiftproof.options import BelowOne, Count, NotNegative, Options, Positive, Share, Words

BY_CLASSES = Words("a number, 0 or more, or auto: by the number of classes")

Augmentation = Annotated[
    str | Callable[..., Any],
    Words("jitter, a shift by its name, or what is called with images and keys"),
    "What makes views of images: jitter, the text form of a shift such as augmix, or a function.",
]
EntropyMargin = Annotated[NotNegative, "Learn from images whose entropy is below this share of ln C."]
KeepWeights = Annotated[
    Share,
    "How much of the slow weights an update keeps; the rest is new: the student's (cotta, rotta), the source's (roid) "
    "or the filter's (cmf).",
]
RunningShare = Annotated[Share, "How much of running statistics a batch replaces."]
Temperature = Annotated[Positive, "What goes into the exponential is divided by this: the larger, the flatter."]
Views = Annotated[Count, "How many views of an image are made."]
Prior = Annotated[
    Annotated[float, Ge(0), AllowInfNan(True)] | Literal["auto"],
    Words("a number of images, 0 or more, inf for the source alone, or (bn) auto"),
    "How many images the source's statistics count for; auto is the best for the first batch.",
]


class MethodOptions(Options):
    """What every method can be told.

    >>> MethodOptions(reset="100").reset
    Every(steps=100)
    """

    reset: Annotated[
        Reset,
        BeforeValidator(parse),
        Words(POLICIES),
        "When to go back to the start; a number is an interval in steps.",
    ] = never
    amp: Annotated[Literal["bfloat16"] | None, "Reduced precision; float16 would need its gradients scaled."] = None
    graph: Annotated[
        bool,
        Words("graph=True or False", "Passes are recorded or not."),
        "Record the network's passes on a CUDA device at the first batch, and replay them.",
    ] = False
    window: Annotated[
        int, Ge(0), Words("0 or more", "A window is a number of images."), "How many recent images join a small batch."
    ] = 0
    seed: Annotated[int, "The seed of every random draw."] = 0


class GradientOptions(MethodOptions):
    """What methods that learn by gradients can be told.

    >>> GradientOptions(lr="1e-4").lr  # text is read, as from a command line
    0.0001
    """

    optimizer: Annotated[Literal["sgd", "adam", "adamw"], "The optimiser."] = "sgd"
    lr: Annotated[NotNegative, "The learning rate."] = 2.5e-4
    momentum: Annotated[BelowOne, "The momentum of SGD; of Adam, how much of the mean gradient is kept."] = 0.9
