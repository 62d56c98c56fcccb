"""The device that models and images are on."""

from __future__ import annotations

from shiftproof.errors import ConfigurationError


def choose_device(device: object, model: object = None) -> str:
    """Return the device to use; `auto` is where a module already is if that is no CPU, else CUDA where there is one.

    >>> choose_device("cpu")
    'cpu'
    """
    import torch

    model = getattr(model, "given", model)  # of a spec
    if device == "auto":
        where = (
            next((tensor.device for tensor in model.parameters()), None) if isinstance(model, torch.nn.Module) else None
        )
        if where is not None and (where.type != "cpu" or _is_exported(model)):
            return str(where)
        return "cuda" if torch.cuda.is_available() else "cpu"
    device = str(device)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(
            f"The device {device!r} cannot be used.",
            expected="auto, cpu, cuda or cuda:1, as far as this machine has them",
            reason=str(error).splitlines()[0],
        ) from error
    return device


def _is_exported(model: object) -> bool:
    """Whether a module is, or holds, a `torch.export` program, which checks that inputs are where it was exported."""
    from torch import nn

    modules = model.modules() if isinstance(model, nn.Module) else ()
    return any(kind.__module__.startswith("torch.export") for module in modules for kind in type(module).__mro__)
