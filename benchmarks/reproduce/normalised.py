"""ResNet-20 with group normalisation (Wu & He 2018) beside one with batch normalisation, trained alike on CIFAR-10."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

import shiftproof
from benchmarks.reproduce.record import device_name
from shiftproof.models import build_network, load_weights
from shiftproof.models.trained_folder import TRAINED_WEIGHTS
from shiftproof.runs import write_atomically

GROUP, BATCH = "resnet20-group", "resnet20-batch"
TRAINED = (BATCH, GROUP)
"""Networks that are trained for the table; all other things are equal."""
GROUPS = 8
NOTES = "training.json"
TRAINING: dict[str, Any] = {"batch_size": 128, "lr": 0.1, "weight_decay": 5e-4, "warmup": 0.5, "schedule": "cosine"}


def build(part: str) -> nn.Module:
    """Return an untrained ResNet-20 with the normalisation of a part."""
    network = build_network("resnet20")
    return network if part == BATCH else with_groups(network)


def with_groups(network: nn.Module) -> nn.Module:
    """Put group normalisation in the place of batch normalisation, everywhere in a network."""
    for name, module in list(network.named_children()):
        if isinstance(module, nn.BatchNorm2d):
            setattr(network, name, nn.GroupNorm(GROUPS, module.num_features))
        else:
            with_groups(module)
    return network


def train(part: str, data: Path, out: Path, size: Mapping[str, Any], *, device: str, seed: int) -> dict[str, Any]:
    """Train the network of a part, unless its folder has it, and return how it was trained."""
    notes = out / NOTES
    if not notes.is_file():
        torch.manual_seed(seed)
        trained = shiftproof.train(
            build(part),
            str(data),
            images=size["train"],
            epochs=size["epochs"],
            device=device,
            seed=seed,
            out=out,
            **TRAINING,
        )
        told = {"images": size["train"], "epochs": size["epochs"], "loss": trained.loss, "seed": seed}
        seconds = sum(cast(float, row["seconds"]) for row in trained.log)
        spent = {"seconds": round(seconds, 1), "device": device_name(device)}
        write_atomically(notes, json.dumps({**told, **spent}, indent=1) + "\n")
    found: dict[str, Any] = json.loads(notes.read_text())
    return found


def load_trained(part: str, folder: Path, device: str) -> nn.Module:
    """Return the network that training left in a folder."""
    network = build(part)
    load_weights(network, folder / TRAINED_WEIGHTS)
    return network.to(device).eval()
