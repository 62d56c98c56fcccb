"""Convolutions that add a residual and rectify what they compute before they write it to memory.

Writing and reading it again for either is a tenth of the time of a residual network in small batches.
"""

from __future__ import annotations

import operator
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import GraphModule, Node

RECTIFIERS = {torch.relu, torch.relu_, F.relu, "relu", "relu_"}
ADDITIONS = {torch.add, operator.add, operator.iadd}


class RectifiedConvolution(nn.Module):
    """A convolution and a rectifier in one, with another input added between them where there is one."""

    def __init__(self, made_of: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = made_of.weight, made_of.bias
        self.padding, self.stride, self.dilation = (
            list(map(int, each)) for each in (made_of.padding, made_of.stride, made_of.dilation)
        )
        self.groups = made_of.groups

    def forward(self, images: Tensor, added: Tensor | None = None) -> Tensor:
        """Return the rectified sum."""
        if images.is_cuda:
            weight, bias, terms = self.weight, self.bias, (self.stride, self.padding, self.dilation, self.groups)
            if added is None:
                return torch.cudnn_convolution_relu(images, weight, bias, *terms)
            return torch.cudnn_convolution_add_relu(images, weight, added, 1.0, bias, *terms)
        terms = self.padding, self.stride, self.dilation, self.groups
        run = torch.ops.mkldnn._convolution_pointwise
        if added is None:
            made: Tensor = run(images, self.weight, self.bias, *terms, "relu", [], "")
        else:
            made = run.binary(images, added, self.weight, self.bias, *terms, "add", 1.0, "relu", [], "")
        return made


def fuse_rectifiers(network: GraphModule) -> int:
    """Fuse rectifiers of a network that is for asking alone, in place; return how many: none without the library."""
    on_gpu = any(parameter.is_cuda for parameter in network.parameters())
    home, name = (torch, "cudnn_convolution_relu") if on_gpu else (torch.ops.mkldnn, "_convolution_pointwise")
    if not hasattr(home, name):
        return 0
    layers, fused = dict(network.named_modules()), 0
    for node in list(network.graph.nodes):
        before = node.args[0] if node.args else None
        if not isinstance(before, Node) or not _rectifies(node, layers):
            continue
        adds = before.op == "call_function" and before.target in ADDITIONS and len(before.args) == 2
        pairs: list[tuple[object, object]] = [(before, None)]
        if adds and len(before.users) == 1:
            first, second = before.args
            pairs = [(first, second)] if before.target is operator.iadd else [(first, second), (second, first)]
        for convolution, added in pairs:
            if not _alone(convolution, layers) or not (added is None or isinstance(added, Node)):
                continue
            name = str(convolution.target)
            network.set_submodule(name, RectifiedConvolution(layers[name]))
            with network.graph.inserting_before(node):
                made = network.graph.call_module(name, (convolution.args[0], *([] if added is None else [added])))
            node.replace_all_uses_with(made)
            for each in (node, before, convolution) if added is not None else (node, convolution):
                network.graph.erase_node(each)
            fused += 1
            break
    network.recompile()
    return fused


def _rectifies(node: Node, layers: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return type(layers.get(str(node.target))) is nn.ReLU
    return node.op in ("call_function", "call_method") and node.target in RECTIFIERS


def _alone(node: object, layers: dict[str, nn.Module]) -> TypeGuard[Node]:
    """Whether a node is a plain convolution that nothing else reads, and that is used once."""
    if not isinstance(node, Node) or node.op != "call_module" or len(node.users) != 1:
        return False
    layer = layers.get(str(node.target))
    uses = sum(other.op == "call_module" and other.target == node.target for other in node.graph.nodes)
    return (
        type(layer) is nn.Conv2d
        and uses == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
        and layer.weight.dtype == torch.float32
    )
