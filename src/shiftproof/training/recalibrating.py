"""Batch normalisation's statistics taken anew: averages of weights have none of their own."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def recalibrate(network: nn.Module, images: Iterable[Tensor]) -> None:
    """Set the running means and variances to those over batches of images [N, C, H, W], all batches alike.

    Layers without running statistics, and those whose weights are frozen, stay as they are.
    """
    layers = [
        layer
        for layer in network.modules()
        if isinstance(layer, _BatchNorm)
        and layer.track_running_stats
        and (layer.weight is None or layer.weight.requires_grad)
    ]
    if not layers:
        return
    moments = {layer: layer.momentum for layer in layers}
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a plain mean over batches
        layer.train()
    try:
        with torch.no_grad():
            for batch in images:
                network(batch)
    finally:
        for layer, momentum in moments.items():
            layer.momentum = momentum
            layer.eval()
