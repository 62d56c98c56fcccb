"""A network as it is fastest to ask: batch normalisation and rectifiers as parts of convolutions, in the best layout.

Its answers are the model's own up to rounding, which is checked before it is used. What adapts, or looks at the layers,
uses the model itself.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node, symbolic_trace
from torch.nn.utils.fusion import fuse_conv_bn_eval

from shiftproof.models.behaviour import is_program
from shiftproof.models.blackbox import Model
from shiftproof.models.fusing import fuse_rectifiers
from shiftproof.models.outputs import logits

Layout: TypeAlias = Literal["channels_last", "contiguous", "fused"]
LAYOUTS: Mapping[Layout, torch.memory_format] = {
    "channels_last": torch.channels_last,
    "contiguous": torch.contiguous_format,
    "fused": torch.channels_last,
}
"""How images lie in memory; `fused` is how a GPU is asked with rectifiers as parts of convolutions, as a CPU always."""
Network = TypeVar("Network", bound=nn.Module)
AGREE = 1e-5
"""How far the scores of the same images may be apart, as a share of their range."""
ROUNDED = 2.0
"""Where a GPU rounds to fewer digits than float32 has, how far, times what that does to the model itself."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Folded(nn.Module):
    """A network for asking alone; `network` is a copy of the model that it was made of, without what was folded."""

    def __init__(self, network: nn.Module, layout: Layout) -> None:
        super().__init__()
        self.network: nn.Module = network.to(memory_format=LAYOUTS[layout])  # type: ignore[call-overload]
        self.layout, self.rounds = layout, True

    def forward(self, images: Tensor) -> object:
        """Return what the model returns."""
        images = images.to(memory_format=LAYOUTS[self.layout])
        if images.is_cuda and self.rounds:
            if (found := asked_in_larger_batch(self.network, images)) is not None:
                return found
            self.rounds = False
        return self.network(images)


def asked_in_larger_batch(network: Callable[[Tensor], object], images: Tensor) -> Tensor | None:
    """Return what a network says of images in a batch of a usual size; None where its answers cannot be cut to them."""
    more = rounded_up(len(images)) - len(images)
    out = network(torch.cat([images, images[-1:].expand(more, *images.shape[1:])]) if more else images)
    return out[: len(images)] if isinstance(out, Tensor) and len(out) == len(images) + more else None


def rounded_up(count: int) -> int:
    """Return the size of batch that so many images are asked in on CUDA: convolutions are planned anew for every size.

    >>> [rounded_up(count) for count in (0, 1, 3, 9, 25, 60, 100, 256, 257)]
    [0, 1, 3, 10, 28, 64, 112, 256, 320]
    """
    step = max(1, (1 << max(0, count - 1).bit_length()) // 8)
    return -(-count // step) * step


def folded(model: Model, images: Tensor, ask: Callable[[Model, Tensor], Tensor] = logits) -> Model:
    """Return a model with the same answers, by `ask`, that is faster to ask; the model itself where there is none.

    That is where it is a black box, has no batch normalisation behind a convolution, cannot be traced or is watched by
    hooks, and where its answers to these `images`, [N, C, H, W], together or alone, are not the same up to rounding.

    >>> network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)).eval()
    >>> [type(layer).__name__ for layer in folded(network, torch.rand(2, 3, 4, 4)).network.children()]
    ['Conv2d', 'Flatten', 'Linear']
    """
    if not isinstance(model, nn.Module) or not can_fold(model):
        return model
    made = _traced(model)
    if made is None:
        return model
    if images.device.type != "cpu":
        return _checked(Folded(made, "contiguous").eval(), model, images, ask) or model
    plain = Folded(copy.deepcopy(made), "channels_last").eval()
    fused = Folded(made, "channels_last").eval() if fuse_rectifiers(made) else plain
    return _checked(fused, model, images, ask) or _checked(plain, model, images, ask) or model


def in_channels_last(model: Model, images: Tensor, ask: Callable[[Model, Tensor], Tensor] = logits) -> Model:
    """Return a copy of a network with all its layers and channels last in memory, where convolutions are faster.

    The model itself where it has none, is no plain module, is watched by hooks, or answers otherwise, by `ask`.
    """
    if not isinstance(model, nn.Module) or is_program(model) or _watched(model):
        return model
    if not any(isinstance(layer, nn.Conv2d) for layer in model.modules()):
        return model
    try:
        made: nn.Module = copy.deepcopy(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    except Exception:  # whatever a user's module does not bear
        return model
    return _checked(made, model, images, ask) or model


def _checked(fast: Network, model: Model, images: Tensor, ask: Callable[[Model, Tensor], Tensor]) -> Network | None:
    """Return a network that is faster to ask if it answers as its model does, to images together and alone.

    A GPU may round to fewer digits than float32 has, and otherwise in other batches. There, answers must be the same in
    whole floats, and those that are rounded as near to them as the model's own.
    """
    for some in (images, images[:1]):
        try:
            own, other = ask(model, some), ask(fast, some)
            within = AGREE * max(1e-6, float(own.max() - own.min()))
            apart = _furthest(own, other)
            if apart > within and some.is_cuda:
                with _whole_floats():
                    exact, whole = ask(model, some), ask(fast, some)
                apart = _furthest(exact, whole)
                if _furthest(exact, other) > within + ROUNDED * _furthest(exact, own):
                    return None
        except Exception:  # whatever a traced network does not bear
            return None
        if apart > within:
            return None
    return fast


def _furthest(own: Tensor, other: Tensor) -> float:
    return float((own - other).abs().max())


@contextmanager
def _whole_floats() -> Iterator[None]:
    """Compute in float32 on GPUs that round to fewer digits by default."""
    allowed = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = allowed


def laid_out(model: Model, layout: Layout | None) -> Model:
    """Return a folded network in another layout, with the same weights; any other model as it is."""
    if not isinstance(model, Folded) or layout in (None, model.layout):
        return model
    network = copy.deepcopy(model.network)
    if layout == "fused" and isinstance(network, GraphModule):
        fuse_rectifiers(network)
    return Folded(network, layout).eval()


def can_fold(model: nn.Module) -> bool:
    """Return whether a network is in evaluation mode throughout, normalises images in batches, and has no hooks."""
    layers = list(model.modules())
    if _watched(model) or any(layer.training for layer in layers):
        return False
    return any(isinstance(layer, nn.BatchNorm2d) and layer.running_var is not None for layer in layers)


def _watched(model: nn.Module) -> bool:
    return any(getattr(layer, hooks) for layer in model.modules() for hooks in HOOKS)


def _traced(model: nn.Module) -> GraphModule | None:
    """Return a folded copy; None where the network is not a fixed graph of layers, or nothing in it can be folded."""
    try:
        made = symbolic_trace(copy.deepcopy(model))
    except Exception:  # tracing runs the model's own code on stand-ins for images
        return None
    layers, calls = dict(made.named_modules()), Counter(node.target for node in made.graph.nodes)
    found = 0
    for node in list(made.graph.nodes):
        before = node.args[0] if node.args else None
        if not isinstance(before, Node) or not node.op == before.op == "call_module":
            continue
        norm, linear = (layers.get(str(each.target)) for each in (node, before))
        if type(norm) is not nn.BatchNorm2d or type(linear) is not nn.Conv2d or norm.running_var is None:
            continue
        if len(before.users) > 1 or calls[before.target] > 1:  # others need what was not normalised
            continue
        made.set_submodule(str(before.target), fuse_conv_bn_eval(linear, norm))
        node.replace_all_uses_with(before)
        made.graph.erase_node(node)
        found += 1
    made.delete_all_unused_submodules()
    made.recompile()
    return made if found else None
