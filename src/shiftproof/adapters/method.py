"""A method is a composition of parts, with the facts that tables, errors and the report need on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from shiftproof.adapters import losses
from shiftproof.adapters.norms import BatchStatistics, NormPolicy
from shiftproof.adapters.ranges import RANGES, Range, check_values
from shiftproof.errors import ConfigurationError
from shiftproof.models.identity import digest
from shiftproof.registry import unknown

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

Named: TypeAlias = Mapping[str, nn.Parameter]
Memory: TypeAlias = dict[str, Tensor]


@dataclass
class Step:
    """One batch on its way through a method: what its parts read, and which images are kept, with what weights.

    `memory` holds what a method remembers between batches, as tensors by name; it is saved, loaded and reset with the
    adapter.
    """

    images: Tensor
    logits: Tensor
    memory: Memory
    kept: Tensor = field(init=False)
    entropy: Tensor = field(init=False)
    weights: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.kept = torch.arange(len(self.images), device=self.images.device)
        self.entropy = losses.entropy(self.logits)
        self.weights = torch.ones_like(self.entropy, requires_grad=False)

    @property
    def probabilities(self) -> Tensor:
        """Predicted probabilities of all images, without gradients, [N, C]."""
        return self.logits.detach().softmax(1)

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

    norm        the statistics batch normalisation uses
    trains      the parameters that learn, by name
    keep        filters that narrow `step.kept`, in order
    loss        one number per kept image, or for the whole batch
    weigh       factors of the kept images' losses, without gradients
    divide_by   what the sum of weighted losses is divided by (by default the number of kept images)
    regularise  a term added to the loss
    optimizer   makes the optimiser of the parameters
    start       what is done once, when the model is wrapped; a reset goes back to after it
    learn       the whole step, where it is not the common one; it returns the logits
    predict     how images are answered without learning, where it is not by the adapted copy alone
    after       what happens after an update
    answer      the logits returned (by default those computed before the update)
    """

    norm: NormPolicy = field(default_factory=BatchStatistics)
    trains: Callable[[nn.Module], Named] | None = None
    keep: tuple[Filter, ...] = ()
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

    Options have the same names in every method. `presets` are changes of the defaults by kind of model; `release`
    those of the released code where it differs from the paper, chosen by `variant="release"`. `min_batch` is the
    smallest batch that batch statistics are of use with; `own_memory` says that the method keeps earlier images itself
    or needs none, so that a window of them is refused. `passes` counts, for a batch, how often its images go forward
    and backward through the network, at most; `recovers` says that the method goes back to its start by itself,
    whatever its reset policy. `ranges` are the values that options can have;
    without them, those that our own parts can read, where the parts are ours.
    """

    name: str
    paper: str
    parts: Callable[[Options], Parts]
    defaults: Mapping[str, Any] = field(default_factory=dict)
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
    departures: str = ""
    ranges: Mapping[str, Range] | None = None

    def __str__(self) -> str:
        return self.name

    def content_digest(self) -> str:
        """Return a digest of all that the method does: its parts, their code, and its options."""
        return digest(self)

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

    def options(self, preset: str | None, variant: str, given: Mapping[str, Any]) -> Options:
        """Return the defaults with the preset's, the variant's and the given values over them."""
        if preset is not None and preset not in PRESETS:
            raise unknown("preset", preset, PRESETS)
        if variant not in ("paper", "release"):
            raise unknown("variant", variant, ("paper", "release"))
        chosen = {**COMMON, **self.defaults}
        for kind in PRESETS.get(preset or "", ()):
            chosen |= self.presets.get(kind, {})
        if variant == "release":
            chosen |= self.release
        for name in given:
            if name not in chosen:
                raise unknown(f"option of {self.name!r}", name, chosen)
        options = Options({**chosen, **given})
        self._check_common(options)
        check_values(self.name, options, RANGES if self.ranges is None and _is_ours(self.parts) else self.ranges or {})
        return options

    def _check_common(self, o: Options) -> None:
        if o.amp not in (None, "bfloat16"):
            # float16 would need its gradients scaled
            raise ConfigurationError("There is no such precision.", expected="None or bfloat16", came=repr(o.amp))
        if not isinstance(o.graph, bool):
            raise ConfigurationError("Passes are recorded or not.", expected="graph=True or False", came=repr(o.graph))
        if not isinstance(o.window, int) or isinstance(o.window, bool) or o.window < 0:
            raise ConfigurationError("A window is a number of images.", expected="0 or more", came=repr(o.window))
        if o.window and self.own_memory:
            raise ConfigurationError(
                f"Method {self.name!r} takes no window: recent images are of no use to it, or it keeps its own."
            )


PRESETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "imagenet": ("imagenet",),
        "imagenet_vit": ("imagenet_vit",),
        "cifar": ("cifar",),
        "cifar100": ("cifar", "cifar100"),
    }
)
"""Preset -> the entries of a method's `presets` that it takes, the later over the earlier."""
COMMON: Mapping[str, Any] = MappingProxyType({"reset": "never", "amp": None, "graph": False, "window": 0, "seed": 0})
"""Options every method has: when to go back, reduced precision, whether a CUDA device records the network's passes and
replays them, how many recent images join a small batch, the seed."""


def _is_ours(parts: Callable[..., Any]) -> bool:
    return str(getattr(parts, "__module__", "")).partition(".")[0] == "shiftproof"


class Options(dict[str, Any]):
    """The options of a method, read as attributes: `o.lr`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no option {name!r}; there are: {', '.join(self)}") from None
