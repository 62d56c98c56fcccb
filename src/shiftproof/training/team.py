"""The processes that train one network together, as `torchrun` starts them; most often it is one."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

Value = TypeVar("Value")


@dataclass(frozen=True)
class Team:
    """The place of this process among those that train together."""

    rank: int = 0
    size: int = 1
    group: dist.ProcessGroup | None = None
    """Who is told things; not the group that gradients go through, see `join`."""

    @property
    def leads(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def tell(self, value: Value) -> Value:
        """Return the leader's value, in every process."""
        if self.size == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0, group=self.group)
        return held[0]

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of a tensor over the processes."""
        if self.size > 1:
            dist.all_reduce(value, group=self.group if value.device.type == "cpu" else None)
            value = value / self.size
        return value

    def parallel(self, network: nn.Module, device: torch.device) -> nn.Module:
        """Return a network whose gradients are averaged over the processes.

        On CUDA, batch normalisation takes its statistics over all of them, as one process with the whole batch would;
        PyTorch cannot do that on CPUs, where every process normalises its own part.
        """
        if self.size == 1:
            return network
        from torch.nn.parallel import DistributedDataParallel

        if device.type == "cuda":
            network = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
            return DistributedDataParallel(network, device_ids=[device.index])
        return DistributedDataParallel(network)


def device_here(device: str) -> str:
    """Return the device of this process: `cuda` becomes the one that torchrun gave it."""
    here = os.environ.get("LOCAL_RANK")
    return f"cuda:{here}" if device == "cuda" and here is not None and _size() > 1 else device


def join(device: torch.device) -> Team:
    """Join the processes that torchrun started, if it did, until this one ends.

    What they tell each other has a group of its own. Threads of a group hold Python's tensors for a moment after all
    have been told; one that lets go of them when Python has ended aborts the process. Leaving a group waits for its
    threads, but DistributedDataParallel never lets go of the group it was given.
    """
    if _size() == 1:
        return Team()
    if not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)  # a group that was left cannot be joined again
    return Team(dist.get_rank(), dist.get_world_size(), _told())


@cache
def _told() -> dist.ProcessGroup:
    """Return the group that things are told in, one for as long as this process lives."""
    made: dist.ProcessGroup = dist.new_group(backend="gloo")
    atexit.register(_told.cache_clear)  # before the groups are left, since it is registered after that
    return made


def _size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))
