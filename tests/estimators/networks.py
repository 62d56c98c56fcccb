"""Small models whose answers are known."""

import torch
from torch import nn


def images(count, seed=0, side=16):
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(seed))


class Brightness(nn.Module):
    """Classes 0, 1, 2 by mean brightness, through a batch norm: smooth logits that shifts can move."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.norm.running_mean = torch.full((3,), 0.5)
        self.norm.running_var = torch.full((3,), 1 / 12)
        self.eval()

    def forward(self, x):
        level = 40 * self.norm(x).mean((1, 2, 3))
        return torch.stack([-level, 1 - level.abs(), level], 1)


def constant(x):
    return torch.tensor([[0.0, 5.0, 1.0]]).repeat(len(x), 1)


def random_classes(classes):
    """Return a model whose answer is as good as random: it hangs on every bit of the pixels."""

    def model(x):
        code = (x.double().flatten(1) * torch.arange(1, x[0].numel() + 1)).sum(1).mul(1e6).long()
        mixed = (code * 2654435761) % 2**31 % 65537 % classes
        return nn.functional.one_hot(mixed, classes).float()

    return model
