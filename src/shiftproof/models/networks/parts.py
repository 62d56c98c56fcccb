"""What the reference networks share."""

from __future__ import annotations

from torch import nn


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """Return a 3x3 convolution that keeps the size (at stride 1), without a bias: a normalisation follows it."""
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


def he_initialise(network: nn.Module) -> None:
    """Draw the weights of every convolution from N(0, 2 / fan-out), He et al. 2015; norms and linears keep theirs."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
