"""The device that models and images are on."""

from __future__ import annotations

from shiftproof.errors import ConfigurationError


def choose_device(device: object, model: object = None) -> str:
    """Return the device to use; `auto` is the module's own device if not the CPU, else CUDA if available.

    Args:
        device: `auto`, or the name of a device.
        model: A module, whose own device `auto` prefers.

    >>> choose_device("cpu")
    'cpu'
    """
    import torch

    from shiftproof.models.layers import is_of

    model = getattr(model, "given", model)  # of a spec
    if device == "auto":
        module = model if isinstance(model, torch.nn.Module) else torch.nn.Identity()
        where = next((tensor.device for tensor in module.parameters()), None)
        exported = any(is_of(part, "torch.export") for part in module.modules())  # which checks where inputs are
        if where is not None and (where.type != "cpu" or exported):
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
