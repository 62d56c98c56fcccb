"""A method is a composition of parts, with the facts that tables, errors and the report need on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from shiftproof.adapters import losses
from shiftproof.adapters.method_options import MethodOptions
from shiftproof.adapters.norms import BatchStatistics, NormPolicy
from shiftproof.errors import ConfigurationError
from shiftproof.models.identity import digest
from shiftproof.options import simple
from shiftproof.registry import unknown

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

Named: TypeAlias = Mapping[str, nn.Parameter]
Memory: TypeAlias = dict[str, Tensor]


@dataclass
class Step:
    """One batch on its way through a method: what its parts read, and which images are kept, with what weights.

    `entropy` is what `measure` says of every image. `memory` holds what a method remembers between batches, as tensors
    by name; it is saved, loaded and reset with the adapter. Of a segmenter, every pixel is what an image is here.

    Args:
        images: The batch, [N, C, H, W].
        logits: What the model says of it, [N, K].
        memory: What the method remembers between batches, by name.
        measure: How uncertain an image is; by default the entropy of its prediction.
    """

    images: Tensor
    logits: Tensor
    memory: Memory
    measure: Callable[[Tensor], Tensor] = losses.entropy
    kept: Tensor = field(init=False)
    entropy: Tensor = field(init=False)
    weights: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.kept = torch.arange(len(self.logits), device=self.images.device)
        self.entropy = self.measure(self.logits)
        self.weights = torch.ones_like(self.entropy, requires_grad=False)

    @property
    def probabilities(self) -> Tensor:
        """Predicted probabilities of all images, without gradients, [N, C]."""
        return self.logits.detach().softmax(1)

    @property
    def per_pixel(self) -> bool:
        """Whether there is a row of logits for each pixel."""
        return len(self.logits) != len(self.images)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.logits.shape[1]

    def keep(self, mask: Tensor) -> None:
        """Drop kept images where the mask over them, [kept], is false."""
        self.kept = self.kept[mask]


Loss: TypeAlias = Callable[[Step], Tensor]
Filter: TypeAlias = Callable[[Step, "Adapter"], None]
Weight: TypeAlias = Callable[[Step], Tensor]


@dataclass(frozen=True)
class Parts:
    """What a method is made of.

    Args:
        norm: The statistics batch normalisation uses.
        trains: The parameters that learn, by name.
        keep: Filters that narrow `step.kept`, in order.
        entropy: How uncertain each image is, for filters, weights and losses.
        loss: One number per kept image, or for the whole batch.
        weigh: Factors of the kept images' losses, without gradients.
        divide_by: What the sum of weighted losses is divided by (by default the number of kept images).
        regularise: A term added to the loss.
        optimizer: Makes the optimiser of the parameters.
        start: What is done once, when the model is wrapped; a reset goes back to after it.
        learn: The whole step, where it is not the common one; it returns the logits.
        predict: How images are answered without learning, where it is not by the adapted copy alone.
        after: What happens after an update.
        answer: The logits returned (by default those computed before the update).

    >>> from shiftproof.adapters.losses import entropy
    >>> Parts(loss=lambda step, adapter: entropy(step.logits)).keep
    ()
    """

    norm: NormPolicy = field(default_factory=BatchStatistics)
    trains: Callable[[nn.Module], Named] | None = None
    keep: tuple[Filter, ...] = ()
    entropy: Callable[[Tensor], Tensor] = losses.entropy
    loss: Loss | None = None
    weigh: Weight | None = None
    divide_by: Callable[[Step], float] | None = None
    regularise: Callable[[Step, Adapter], Tensor] | None = None
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None
    start: Callable[[Adapter], None] | None = None
    learn: Callable[[Adapter, Tensor], Tensor] | None = None
    predict: Callable[[Adapter, Tensor], Tensor] | None = None
    after: tuple[Callable[[Step, Adapter], None], ...] = ()
    answer: Callable[[Step, Adapter], Tensor] | None = None


@dataclass(frozen=True)
class Method:
    """A named method: how its parts are made from its options, its defaults, and what is known of it.

    `defaults` are options of the method's own class, a `MethodOptions`, which says their types and ranges; a mapping of
    names to values is taken, too, and their types are those of the values. `presets` are changes of the defaults by
    kind of model; `release` those of the released code where it differs from the paper, chosen by
    `variant="release"`. `min_batch` is the
    smallest batch that batch statistics are of use with; `own_memory` says that the method keeps earlier images itself
    or needs none, so that a window of them is refused. `passes` counts, for a batch, how often its images go forward
    and backward through the network, at most; `recovers` says that the method goes back to its start by itself,
    whatever its reset policy. `per_pixel` says that it can learn from single pixels, of a segmenter. `shell` makes the
    adapter where it is of a kind of its own.

    Args:
        name: What it is called by.
        paper: Where it was published.
        parts: From options to the parts.
        defaults: Its options with their defaults.
        presets: Changes of the defaults, by the name of a preset.
        release: Changes of the defaults that follow the released code.
        needs_gradients: Whether it needs an `nn.Module` to differentiate.
        needs_norm_layers: Whether it needs normalisation layers.
        needs_batch_norm: Whether it needs batch normalisation.
        needs_features: Whether it needs the input of the last layer.
        min_batch: The smallest batch that it is useful with.
        own_memory: Whether it keeps earlier images itself, or needs none.
        passes: Forward and backward passes that an image takes at most.
        recovers: Whether it goes back to its start by itself.
        per_pixel: Whether it can learn from the pixels of a segmenter.
        shell: Makes the adapter, where it is of a kind of its own.
        departures: Where it differs from the paper or its code.

    >>> from shiftproof.adapters import Parts, adapt
    >>> mine = Method(name="mine", paper="none", parts=lambda options: Parts(), needs_gradients=False)
    >>> mine.name  # adapt(model, mine) normalises with the statistics of each batch
    'mine'
    """

    name: str
    paper: str
    parts: Callable[[Any], Parts]
    defaults: MethodOptions = field(default_factory=MethodOptions)
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    release: Mapping[str, Any] = field(default_factory=dict)
    needs_gradients: bool = True
    needs_norm_layers: bool = True
    needs_batch_norm: bool = False
    needs_features: bool = False
    min_batch: int = 1
    own_memory: bool = False
    passes: tuple[float, float] | None = None
    recovers: bool = False
    per_pixel: bool = False
    shell: Callable[..., Adapter] | None = None
    departures: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.defaults, Mapping):
            object.__setattr__(self, "defaults", simple(MethodOptions, self.defaults))

    def __str__(self) -> str:
        return self.name

    def content_digest(self) -> str:
        """Return a digest of all that the method does: its parts, their code, and its options."""
        return digest(self)

    def decides_outputs(self) -> object:
        """Return what distinguishes methods: everything but what is only said of them."""
        return {name: held for name, held in vars(self).items() if name not in ("paper", "departures")}

    @property
    def cost(self) -> float:
        """What a batch costs, in forward passes: a way back through the network is about two."""
        forward, backward = self.passes or (1, int(self.needs_gradients))
        return forward + 2 * backward

    @property
    def needs(self) -> tuple[str, ...]:
        """What the method needs of a model and its stream, in words for tables and errors; nothing: outputs alone."""
        said = {
            "gradients": self.needs_gradients,
            "normalisation layers": self.needs_norm_layers and not self.needs_batch_norm,
            "BatchNorm layers": self.needs_batch_norm,
            "features before a last linear layer": self.needs_features,
            f"batches of {self.min_batch} or a window, with BatchNorm": self.min_batch > 1,
        }
        return tuple(need for need, needed in said.items() if needed)

    def takes(self, option: str) -> bool:
        """Whether the method has an option; a window of recent images only where they are of use to it."""
        return hasattr(self.defaults, option) and not (option == "window" and self.own_memory)

    def options(self, preset: str | None, variant: str, given: Mapping[str, Any]) -> MethodOptions:
        """Return the defaults with the preset's, the variant's and the given values over them."""
        if preset is not None and preset not in PRESETS:
            raise unknown("preset", preset, PRESETS)
        if variant not in ("paper", "release"):
            raise unknown("variant", variant, ("paper", "release"))
        changes: dict[str, Any] = {}
        for kind in PRESETS.get(preset or "", ()):
            changes |= self.presets.get(kind, {})
        if variant == "release":
            changes |= self.release
        options = self.defaults.changed({**changes, **given}, self.name)
        if options.window and self.own_memory:
            raise ConfigurationError(
                f"Method {self.name!r} takes no window: recent images are of no use to it, or it keeps its own."
            )
        return options


PRESETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "imagenet": ("imagenet",),
        "imagenet_vit": ("imagenet_vit",),
        "cifar_vit": ("imagenet_vit", "cifar_vit"),
        "cifar": ("cifar",),
        "cifar100": ("cifar", "cifar100"),
    }
)
"""Preset -> the entries of a method's `presets` that it takes, the later over the earlier."""
