"""Small classifiers of every kind of normalisation, streams for them, and adapters of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.adapters import METHODS, Adapter, Guard, adapt

SIDE = 16


class Flat(nn.Module):
    """Channels averaged over all positions."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).mean(2)


def convolutional(norm: Callable[[int], nn.Module] = nn.BatchNorm2d, classes: int = 5) -> nn.Sequential:
    """Two convolutions, each normalised, dropout, and a linear classifier; running statistics are not the trivial."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        norm(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1),
        norm(8),
        nn.ReLU(),
        nn.Dropout(0.5),
        Flat(),
        nn.Linear(8, classes),
    )
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.uniform_(-0.2, 0.2)
            assert module.running_var is not None
            module.running_var.uniform_(0.05, 0.3)
    return net.eval()


class VisionTransformer(nn.Module):
    """One block of a vision transformer with layer normalisation."""

    def __init__(self, classes: int = 5, width: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, width))
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.mlp(self.norm2(x))
        logits: Tensor = self.head(self.norm3(x).mean(1))
        return logits


def transformer(classes: int = 5) -> VisionTransformer:
    torch.manual_seed(0)
    return VisionTransformer(classes).eval()


def stream(batches: int = 4, size: int = 8, seed: int = 0, shape: tuple[int, ...] = (3, SIDE, SIDE)) -> list[Tensor]:
    """Batches of images whose brightness and contrast drift."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(batches, size, *shape, generator=generator)
    return [batch * (0.5 + 0.4 * place / batches) for place, batch in enumerate(images)]


SMALL: dict[str, dict[str, Any]] = {
    "cotta": {"views": 2, "confidence": 0.9},
    "memo": {"views": 2},
    "rotta": {"update_every": 8, "capacity": 12},
    "note": {"update_every": 8, "capacity": 12},
    "eata": {"entropy_margin": 2.0, "similarity": 1.0},
    "eta": {"entropy_margin": 2.0, "similarity": 1.0},
    "rdumb": {"entropy_margin": 2.0, "similarity": 1.0, "reset": 3},
    "guard": {"entropy_margin": 2.0, "similarity": 1.0, "reset": Guard(interval=1)},
    "rdumbpp": {"entropy_margin": 2.0, "similarity": 1.0, "warm_up": 1, "cool_down": 2, "deviations": 0.1},
    "asr": {"entropy_margin": 2.0, "similarity": 1.0, "level_share": 0.9},
    "petta": {"update_every": 8, "capacity": 12},
    "sar": {"entropy_margin": 2.0},
    "deyo": {"entropy_margin": 2.0, "drop": -1.0},
}
"""Options with which every method learns from these networks' unsure answers, cheaply."""


LEARNING = [
    name for name in METHODS if name not in ("source", "bn", "lame", "t3a", "safe", "prior", "lame_outputs", "foa")
]


def small(name: str, model: nn.Module | None = None, **options: Any) -> Adapter:
    return adapt(model or convolutional(), name, **{**SMALL.get(name, {}), **options})


def everything(adapter: Adapter) -> dict[str, Any]:
    """Return the whole state, flat."""
    found: dict[str, Any] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{name}/{key}", inner)
        elif isinstance(value, list | tuple):
            walk(name, dict(enumerate(value)))
        else:
            found[name] = value

    walk("", dict(adapter.state_dict()))
    return found


def assert_same(first: dict[str, Any], second: dict[str, Any], *, but: tuple[str, ...] = ()) -> None:
    first, second = (
        {name: value for name, value in state.items() if not any(part in name for part in but)}
        for state in (first, second)
    )
    assert first.keys() == second.keys()
    for name, value in first.items():
        same = torch.equal(value, second[name]) if isinstance(value, Tensor) else value == second[name]
        assert same, name
