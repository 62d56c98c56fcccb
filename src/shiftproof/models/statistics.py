"""Statistics of batch normalisation: those a model was trained with, and those of other images.

source = source_statistics(model)
target = collect_statistics(model, batches)       # batches of images [N, C, H, W] in [0, 1]
layer_distances(source, target)                   # shiftproof.measures tells how far apart they are

Layers are named as in `model.named_modules()`. A batch norm that keeps no running statistics always normalises with
its own batch; it has no source to compare with and is left out.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from shiftproof.errors import ConfigurationError, DataError, Interrupted, ModelError
from shiftproof.measures.normalization import LayerStatistics
from shiftproof.models.moments import moments
from shiftproof.models.outputs import logits


def source_statistics(model: nn.Module) -> tuple[LayerStatistics, ...]:
    """Return the running statistics of every batch norm, in the order of the model's modules.

    Args:
        model: A module with batch normalisation.
    """
    return tuple(
        LayerStatistics(name, _numbers(norm.running_mean), _numbers(norm.running_var))
        for name, norm in _batch_norms(model).items()
    )


def collect_statistics(
    model: nn.Module, batches: Iterable[Tensor], *, exact: bool = False
) -> tuple[LayerStatistics, ...]:
    """Compute the mean and biased variance of the input of every batch-norm layer over all images.

    How the images are divided into batches does not matter. Layers are in the order of the model's modules, without
    those that images never reach (auxiliary heads); one that is used several times has the statistics of all its
    inputs. The model is not changed: a copy of it, in evaluation mode, does the work.

    By default this is one pass, in which every layer normalises with the source statistics. `exact` is the scheme of
    Schneider et al. 2020, appendix A: the statistics of a layer are taken when all layers before it already normalise
    with those of the target. It reads the batches once per layer, each time up to that layer only (in all about half
    as many full passes as there are layers), so they must be a list or a loader that gives the same images again.

    Args:
        model: A module with batch normalisation; it is not changed.
        batches: Batches of images [N, C, H, W].
        exact: Whether to measure each layer with all earlier layers already adapted.
    """
    norms = _batch_norms(model)
    worker = copy.deepcopy(model).eval()
    collect = _layer_by_layer if exact else _all_at_once
    images, inputs = collect(worker, _batch_norms(worker), batches)
    return _in_order(norms, inputs, images)


class _Inputs:
    """The mean and biased variance of all inputs of a layer so far: of parts of them, [C] each, with their sizes.

    They are put together when they are read, or a GPU would wait for a dozen small sums in every layer.
    """

    MOST = 64

    def __init__(self) -> None:
        self.calls = 0
        self.parts: list[tuple[int, Tensor, Tensor]] = []

    def add(self, x: Tensor) -> None:
        """Take in an input [N, C, ...]."""
        self.calls += 1
        self.parts.append((x.numel() // x.shape[1], *moments(x)))
        if len(self.parts) == self.MOST:
            self.parts = [(sum(count for count, _, _ in self.parts), *self.merged())]

    def merged(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance of all, [C] in float64."""
        counts, means, variances = zip(*self.parts, strict=True)
        return _merged(counts, torch.stack(means), torch.stack(variances))


def _merged(counts: Sequence[int], means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the biased variance of a union, [C] in float64, from those of its parts, [P, C] each.

    The variance of a union is the mean variance and the variance of the means (Chan et al. 1979).
    """
    shares = torch.tensor(counts, dtype=torch.float64, device=means.device)[:, None] / sum(counts)
    mean = (shares * means.double()).sum(0)
    return mean, (shares * (variances.double() + (means.double() - mean).square())).sum(0)


def _in_order(norms: Iterable[str], inputs: Mapping[str, _Inputs], images: int | None) -> tuple[LayerStatistics, ...]:
    """Return the statistics of layers that something has entered; a GPU is asked for all of them at once."""
    entered = {name: inputs[name].parts for name in norms if name in inputs}
    if not entered:
        return ()
    held = [values for parts in entered.values() for _, *both in parts for values in both]
    each = iter(torch.split(torch.cat(held).detach().to("cpu", torch.float64), [len(values) for values in held]))
    found = []
    for name, parts in entered.items():
        means, variances = zip(*((next(each), next(each)) for _ in parts), strict=True)
        mean, var = _merged([count for count, _, _ in parts], torch.stack(means), torch.stack(variances))
        found.append(LayerStatistics(name, mean.numpy(), var.numpy(), images))
    return tuple(found)


class StatisticsTap:
    """Collects the input statistics of a model's batch-norm layers during the forward passes made while it is open.

    Unlike `collect_statistics`, it works on the model itself, in passes that are made anyway; the model should be in
    evaluation mode. Opened again, it adds to the statistics so far.

    Args:
        model: A module with batch normalisation.

    >>> model = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 2)).eval()
    >>> with StatisticsTap(model) as tap:
    ...     scores = model(torch.ones(2, 3, 4, 4))
    >>> tap.statistics(images=2)[0].mean.tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, model: nn.Module) -> None:
        self._norms = _batch_norms(model)
        self._inputs: dict[str, _Inputs] = {}
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        def hook(name: str, _: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            self._inputs.setdefault(name, _Inputs()).add(arguments[0].detach())

        self._hooks = [norm.register_forward_pre_hook(partial(hook, name)) for name, norm in self._norms.items()]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def statistics(self, images: int | None = None) -> tuple[LayerStatistics, ...]:
        """Return the statistics so far, in the order of the model's modules; `images` is the number of images."""
        return _in_order(self._norms, self._inputs, images)


class _Arrived(Interrupted):
    """Ends a forward pass at the layer it was for; not an `Exception`, which a model might handle."""


def _all_at_once(
    model: nn.Module, norms: Mapping[str, _BatchNorm], batches: Iterable[Tensor]
) -> tuple[int, dict[str, _Inputs]]:
    """Take the statistics of all layers in one pass."""
    inputs: dict[str, _Inputs] = {}
    images = _run(model, norms, batches, lambda name, x: inputs.setdefault(name, _Inputs()).add(x))
    return images, inputs


def _layer_by_layer(
    model: nn.Module, norms: Mapping[str, _BatchNorm], batches: Iterable[Tensor]
) -> tuple[int, dict[str, _Inputs]]:
    """Take the statistics of one layer after the other, in the order of their use, and leave them in the model."""
    if iter(batches) is batches:
        raise ConfigurationError(
            "Exact statistics need to read the batches several times.",
            expected="a list of batches, or a loader that can be read again",
            got=f"a {type(batches).__name__}, which can be read once",
        )
    uses: Counter[str] = Counter()
    _run(model, norms, (batch[:1] for batch in islice(batches, 1)), lambda name, _: uses.update([name]))
    images, inputs = 0, {name: _Inputs() for name in uses}

    def see(name: str, x: Tensor) -> None:
        inputs[name].add(x)
        if inputs[name].calls % uses[name] == 0:
            raise _Arrived

    for name, found in inputs.items():
        images = _run(model, {name: norms[name]}, batches, see)
        mean, var = found.merged()
        norms[name].load_state_dict({"running_mean": mean, "running_var": var}, strict=False)
    return images, inputs


def _run(
    model: nn.Module, norms: Mapping[str, _BatchNorm], batches: Iterable[Tensor], see: Callable[[str, Tensor], None]
) -> int:
    """Run the model on batches, show what enters the batch norms, by name, and return the number of images."""

    def hook(name: str, _: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        see(name, arguments[0])

    hooks = [norm.register_forward_pre_hook(partial(hook, name)) for name, norm in norms.items()]
    images = 0
    for batch in batches:
        if not isinstance(batch, Tensor):
            raise DataError(
                "This is not a batch of images.",
                expected="tensors N x C x H x W, without labels",
                got=f"a {type(batch).__name__}",
            )
        if len(batch):
            with suppress(_Arrived):
                logits(model, batch)
        images += len(batch)
    for each in hooks:
        each.remove()
    if images == 0:
        raise DataError("There are no images to take statistics of.", expected="one image or more", got="none")
    return images


def _batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return the batch norms that keep running statistics, by name."""
    modules = model.named_modules() if isinstance(model, nn.Module) else ()
    found = {
        name: module
        for name, module in modules
        if isinstance(module, _BatchNorm) and module.running_mean is not None and module.running_var is not None
    }
    if not found:
        raise ModelError(
            "The model has no statistics of batch normalisation.",
            expected="a PyTorch module, not scripted, with BatchNorm layers that keep running statistics",
            got=f"a {type(model).__name__} without any",
        )
    return found


def _numbers(values: Tensor | None) -> NDArray[np.float64]:
    if values is None:
        raise TypeError("a batch norm without running statistics")
    return values.detach().to("cpu", torch.float64, copy=True).numpy()  # a copy: it does not follow the model
