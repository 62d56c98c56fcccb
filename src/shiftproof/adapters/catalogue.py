"""Every method by name, and the verb that wraps a model in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from shiftproof.adapters.adapter import Adapter
from shiftproof.adapters.method import Method
from shiftproof.errors import ModelError
from shiftproof.registry import resolve

METHODS: Mapping[str, str] = {
    "source": "shiftproof.adapters.statistics:SOURCE",
    "bn": "shiftproof.adapters.statistics:BN",
    "tent": "shiftproof.adapters.entropy:TENT",
    "rpl": "shiftproof.adapters.entropy:RPL",
    "cpl": "shiftproof.adapters.entropy:CPL",
    "slr": "shiftproof.adapters.entropy:SLR",
    "eta": "shiftproof.adapters.entropy:ETA",
    "eata": "shiftproof.adapters.entropy:EATA",
    "rdumb": "shiftproof.adapters.entropy:RDUMB",
    "sar": "shiftproof.adapters.sharpness:SAR",
    "roid": "shiftproof.adapters.roid:ROID",
    "deyo": "shiftproof.adapters.deyo:DEYO",
    "lame": "shiftproof.adapters.lame:LAME",
}
"""Name -> lazy target."""


def method(name: str) -> Method:
    """Return a method by name."""
    found: Method = resolve(METHODS, name, "method of adaptation")
    return found


def adapt(
    model: nn.Module, name: str = "rdumb", *, preset: str | None = None, variant: str = "paper", **options: Any
) -> Adapter:
    """Wrap a model so that it adapts to the images it predicts.

    The model is copied; the one given stays as it is, as `adapted.source`. `preset` (imagenet, imagenet_vit, cifar)
    changes the defaults by kind of model, `variant="release"` follows the released code where it differs from the
    paper, and `options` set the method's own, which have the same names in all methods: `lr`, `momentum`, `optimizer`,
    `reset`, `entropy_margin`, `similarity`, ...
    """
    chosen = method(name)
    _check(model, chosen)
    return Adapter(model, chosen, chosen.options(preset, variant, options))


def _check(model: Any, chosen: Method) -> None:
    from shiftproof.adapters.parts import NORMS

    outputs_alone = ", ".join(each for each in METHODS if not method(each).needs_norm_layers)
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"Method {chosen.name!r} needs a PyTorch module.",
            expected="an nn.Module with its layers",
            came=type(model).__name__,
            instead="load the PyTorch module: file.py:build",
        )
    frozen = type(model).__module__.startswith(("torch.jit", "torch.export"))
    norms = [module for module in model.modules() if isinstance(module, (*NORMS, nn.modules.batchnorm._BatchNorm))]
    if chosen.needs_norm_layers and (frozen or not norms):
        raise ModelError(
            f"Method {chosen.name!r} finds no normalisation layers that can adapt.",
            expected="BatchNorm, GroupNorm, LayerNorm or InstanceNorm modules",
            came="a scripted or exported program" if frozen else f"{type(model).__name__} without any",
            instead=f"methods that need only outputs: {outputs_alone}",
        )
