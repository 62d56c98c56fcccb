"""Vision transformers for small images: tokens made by convolutions, layer normalisation, attention pooling.

Hassani et al. 2021, "Escaping the Big Data Paradigm with Compact Transformers": a CCT learns from tens of thousands of
images what a transformer on bare patches needs millions for. There is no batch normalisation in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.models.networks.blocks import he_initialise
from shiftproof.models.normalize import Normalize

GRID = 8
"""Tokens a side at the size it is trained at, 32 pixels."""


class AttentionBlock(nn.Module):
    """Self-attention and two linear layers, each behind a layer normalisation and added to what came in."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, tokens, width]."""
        count, tokens, width = x.shape
        query, key, value = (
            self.qkv(self.norm1(x)).view(count, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        )
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(count, tokens, width)
        x = x + self.project(mixed)
        out: Tensor = x + self.contract(F.gelu(self.expand(self.norm2(x))))
        return out


class CompactTransformer(nn.Module):
    """A compact convolutional transformer from [0, 1] images to logits; a quarter as many tokens a side as pixels."""

    def __init__(
        self, depth: int, width: int, heads: int, *, classes: int, mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.normalize = Normalize(mean, std)
        self.conv1 = nn.Conv2d(len(mean), width // 2, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width // 2, width, 3, padding=1, bias=False)
        self.places = nn.Parameter(0.02 * torch.randn(1, width, GRID, GRID))
        self.blocks = nn.Sequential(*(AttentionBlock(width, heads, 2 * width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.pool = nn.Linear(width, 1)
        self.linear = nn.Linear(width, classes)
        he_initialise(self)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, classes] of images [N, C, H, W]."""
        x = self.norm(self.blocks(self.tokens(images)))
        weight = self.pool(x).softmax(1)
        logits: Tensor = self.linear((weight * x).sum(1))
        return logits

    def tokens(self, images: Tensor) -> Tensor:
        """Return what the first block is given, [N, tokens, width]."""
        x = F.max_pool2d(F.relu(self.conv1(self.normalize(images))), 3, 2, 1)
        x = F.max_pool2d(F.relu(self.conv2(x)), 3, 2, 1)
        places: Tensor = self.places
        if x.shape[2:] != places.shape[2:]:
            places = F.interpolate(places, size=x.shape[2:], mode="bilinear", align_corners=False)
        return (x + places).flatten(2).transpose(1, 2)


def cct6(*, classes: int, mean: Sequence[float], std: Sequence[float]) -> CompactTransformer:
    """Return a CCT-6/3x2 of 128 channels and 4 heads."""
    return CompactTransformer(6, 128, 4, classes=classes, mean=mean, std=std)
