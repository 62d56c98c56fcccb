"""The processes that train one network together, as `torchrun` starts them; most often it is one."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass
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

    @property
    def leads(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def tell(self, value: Value) -> Value:
        """Return the leader's value, in every process."""
        if self.size == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0)
        return held[0]

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of a tensor over the processes."""
        if self.size > 1:
            dist.all_reduce(value)
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
    """Join the processes that torchrun started, if it did, until this one ends."""
    if _size() == 1:
        return Team()
    if not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)  # a group that was left cannot be joined again
    return Team(dist.get_rank(), dist.get_world_size())


def _size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))
