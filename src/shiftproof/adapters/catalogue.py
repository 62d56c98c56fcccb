"""Every method by name, and the verb that wraps a model in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from shiftproof.adapters.adapter import Adapter
from shiftproof.adapters.checks import check_model
from shiftproof.adapters.method import Method
from shiftproof.adapters.method_options import MethodOptions
from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models.allocation import keep_freed_memory
from shiftproof.models.blackbox import BlackBox
from shiftproof.registry import Registry

_OWN = {
    "source": "shiftproof.adapters.batch_statistics:SOURCE",
    "bn": "shiftproof.adapters.batch_statistics:BN",
    "tent": "shiftproof.adapters.entropy:TENT",
    "rpl": "shiftproof.adapters.entropy:RPL",
    "cpl": "shiftproof.adapters.entropy:CPL",
    "slr": "shiftproof.adapters.entropy:SLR",
    "eta": "shiftproof.adapters.entropy:ETA",
    "eata": "shiftproof.adapters.entropy:EATA",
    "rdumb": "shiftproof.adapters.entropy:RDUMB",
    "guard": "shiftproof.adapters.entropy:GUARD",
    "rdumbpp": "shiftproof.adapters.drifting:RDUMBPP",
    "asr": "shiftproof.adapters.selective:ASR",
    "petta": "shiftproof.adapters.persistent:PETTA",
    "safe": "shiftproof.adapters.safe:SAFE",
    "sar": "shiftproof.adapters.sharpness:SAR",
    "roid": "shiftproof.adapters.roid:ROID",
    "cmf": "shiftproof.adapters.roid:CMF",
    "deyo": "shiftproof.adapters.deyo:DEYO",
    "cotta": "shiftproof.adapters.cotta:COTTA",
    "rotta": "shiftproof.adapters.rotta:ROTTA",
    "note": "shiftproof.adapters.note:NOTE",
    "memo": "shiftproof.adapters.memo:MEMO",
    "lame": "shiftproof.adapters.lame:LAME",
    "prior": "shiftproof.adapters.outputs_only:PRIOR",
    "lame_outputs": "shiftproof.adapters.outputs_only:LAME_OUTPUTS",
    "t3a": "shiftproof.adapters.t3a:T3A",
    "foa": "shiftproof.adapters.forward_only:FOA",
}
METHODS: Registry[Method] = Registry(
    "method of adaptation",
    "shiftproof.adapters",
    _OWN,
    lambda found: isinstance(found, Method),
    "an adapters.Method",
)
"""Name -> method; others add theirs."""


def method(name: str | Method) -> Method:
    """Return a method by name; a `Method` is returned unchanged.

    Args:
        name: Name of a method, or a `Method`.
    """
    if isinstance(name, Method):
        return name
    if not isinstance(name, str):
        raise ConfigurationError(
            "Invalid adaptation method.",
            expected="a name such as 'rdumb', or a Method of your own",
            got=f"a {type(name).__name__}",
        )
    return METHODS.load(name)


def with_source(methods: Sequence[str | Method]) -> tuple[Method, ...]:
    """Return the methods to compare, the source model first; unknown and duplicate names are errors.

    Args:
        methods: Names of methods, or `Method` objects.
    """
    found: dict[str, Method] = {}
    for each in ("source", *methods):
        made = method(each)
        if found.setdefault(made.name, made) != made:
            raise ConfigurationError(
                "Two methods have the same name.", expected="a different name for each method", got=made.name
            )
    return tuple(found.values())


def adapt(
    model: nn.Module | BlackBox,
    name: str | Method = "rdumb",
    *,
    preset: str | None = None,
    variant: str = "paper",
    **options: Any,
) -> Adapter:
    """Wrap a model so that it adapts to the images it predicts.

    The model is copied; the original is unchanged and available as `adapted.source`. A black box can use the methods
    that need only outputs. Options have the same names in all methods: `lr`, `momentum`, `optimizer`, `reset`,
    `entropy_margin`, `similarity`, ...

    Args:
        model: A PyTorch module, or a black box for methods that need only outputs.
        name: Name of a method (`shiftproof list adapters`), or a `Method` of your own.
        preset: Defaults for a kind of model: `imagenet`, `imagenet_vit`, `cifar`, `cifar100` or `cifar_vit`. Default:
            the method's own.
        variant: `paper`, or `release` to follow the released code where it differs from the paper.
        options: Options of the method, such as `lr` or `reset`.

    >>> import torch
    >>> from shiftproof.models import load_model
    >>> adapted = adapt(load_model("demo"), "tent", lr=1e-4)
    >>> adapted(torch.rand(8, 3, 32, 32)).shape, adapted.updates
    (torch.Size([8, 10]), 1)
    """
    chosen = method(name)
    return _adapter(model, chosen, preset, variant, options)


def make_adapter(
    model: nn.Module | BlackBox,
    chosen: str | Method,
    *,
    preset: str | None,
    lr_scale: float = 1.0,
    given: Mapping[str, object] | None = None,
) -> Adapter:
    """Return a fresh adapter for a comparison; options that the method does not have are ignored.

    `lr_scale` multiplies all learning rates, including those of the candidates of `safe`. A black box can use the
    methods that need only outputs. `variant` may be among the options, as in `adapt`.

    Args:
        model: A module, or a black box.
        chosen: Name of a method, or a `Method`.
        preset: Defaults for a kind of model; None for the method's own.
        lr_scale: Factor applied to all learning rates.
        given: Options by name.
    """
    found = method(chosen)
    if isinstance(model, BlackBox) and found.needs:
        raise ModelError("The model is a black box: it has no layers that can adapt.")
    variant = str((given or {}).get("variant", "paper"))
    own = {name: value for name, value in (given or {}).items() if found.takes(name)}
    if lr_scale != 1.0:
        known = found.options(preset, variant, own).to_dict()
        own |= {name: known[name] * lr_scale for name in ("lr", "lr_scale") if known.get(name) is not None}
    return _adapter(model, found, preset, variant, own)


def _adapter(
    model: nn.Module | BlackBox, chosen: Method, preset: str | None, variant: str, given: Mapping[str, object]
) -> Adapter:
    module = _module_of(model, chosen)
    keep_freed_memory()
    return (chosen.shell or Adapter)(module, chosen, chosen.options(preset, variant, given))


def _module_of(model: nn.Module | BlackBox, chosen: Method) -> nn.Module:
    """Return a model that the method can adapt, a black box as a module of its outputs; refuse others."""
    if isinstance(model, BlackBox) and not chosen.needs:
        from shiftproof.adapters.outputs_only import Outputs

        return Outputs(model)
    return check_model(model, chosen, [each for _, each in METHODS.load_all()])


class Facts(NamedTuple):
    """Facts about a method, as text for a table.

    Args:
        name: The name of the method.
        needs: Requirements on the model.
        paper: Reference.
        defaults: Its options, with their defaults.
        departures: Differences from the paper or its code.
    """

    name: str
    needs: str
    paper: str
    defaults: str
    departures: str


def facts() -> list[Facts]:
    """Return one row per method: what it needs, its paper, its defaults and its departures from the paper."""
    return [
        Facts(
            each.name,
            ", ".join(each.needs) or "outputs alone",
            each.paper,
            ", ".join(f"{name}={_written(value)}" for name, value in _own_defaults(each).items()),
            each.departures,
        )
        for _, each in METHODS.load_all()
    ]


def _own_defaults(chosen: Method) -> dict[str, Any]:
    """Return the options that only some methods have, and of the others those that this method changes."""
    common, known = MethodOptions().to_dict(), chosen.defaults.to_dict()
    own = {name: value for name, value in known.items() if name not in common}
    return own | {name: known[name] for name in common if known[name] != common[name]}


def _written(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
