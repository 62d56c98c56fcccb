"""An executor by its name, as it stands on a command line: `inline`, `processes`, `processes:4`, `ray:16`."""

from __future__ import annotations

from dataclasses import dataclass

from shiftproof.errors import ConfigurationError
from shiftproof.registry import unknown
from shiftproof.runs.executors import Executor, Inline, Processes

EXECUTORS = ("inline", "auto", "processes", "ray")
"""The names of executors."""


@dataclass(frozen=True)
class Auto(Inline):
    """Run in this process, unless an audit on a CPU finds in a trial that processes are faster.

    Args:
        timeout: Seconds after which a task fails. Default: no limit.

    >>> choose_executor("auto")
    Auto(timeout=None)
    """


def choose_executor(
    executor: str | Executor = "inline",
    *,
    device: str = "cpu",
    address: str | None = None,
    gpus_per_worker: float | None = None,
    timeout: float | None = None,
) -> Executor:
    """Return an executor by name, with the number of workers after a colon; an `Executor` is returned unchanged.

    Args:
        executor: inline, auto, processes, processes:4, ray or ray:16; in Python also an `Executor`.
        device: Device of the tasks; without a number of workers, there is one per GPU or core.
        address: Address of a Ray cluster: auto or ray://HOST:10001. Default: RAY_ADDRESS, or this machine.
        gpus_per_worker: With ray: GPUs of each worker, such as 0.5. Default: 1.
        timeout: Seconds after which a task fails, in case a model hangs. Default: no limit.

    >>> choose_executor("processes:4", timeout=600)
    Processes(count=4, device='cpu', timeout=600)
    """
    if not isinstance(executor, str):
        return executor
    name, colon, text = executor.partition(":")
    if name not in EXECUTORS:
        raise unknown("executor", name, EXECUTORS)
    workers = int(text) if text.isdecimal() else None
    if colon and (name in ("inline", "auto") or not text.isdecimal()):
        raise ConfigurationError(
            f"There is no such executor: {executor!r}.",
            expected="inline, auto, processes, ray, or one of the last two with a number of workers, as in processes:4",
            got=executor,
        )
    if name != "ray" and (address is not None or gpus_per_worker is not None):
        raise ConfigurationError(
            "An address and a share of a GPU are for the ray executor.", got=f"the {name} executor", fix="ray"
        )
    if name in ("inline", "auto"):
        return Inline(timeout) if name == "inline" else Auto(timeout)
    if name == "processes":
        return Processes(workers, device, timeout)
    from shiftproof.runs.ray import Ray, check_installed

    check_installed()
    share = gpus_per_worker if gpus_per_worker is not None else float(device.startswith("cuda"))
    return Ray(workers, address=address, gpus_per_worker=share, timeout=timeout)
