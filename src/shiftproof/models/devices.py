"""The device that models and images are on."""

from __future__ import annotations

from shiftproof.errors import ConfigurationError


def choose_device(device: str) -> str:
    """Return the device to use; `auto` is CUDA where there is one."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(
            f"The device {device!r} cannot be used.",
            expected="auto, cpu, cuda or cuda:1, as far as this machine has them",
            reason=str(error).splitlines()[0],
        ) from error
    return device
