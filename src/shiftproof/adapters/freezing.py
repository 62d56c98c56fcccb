"""A plain model out of one that adapts: its weights as they are now, its statistics fixed."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from shiftproof.adapters.adapter import Adapter
from shiftproof.adapters.batch_statistics import BnOptions
from shiftproof.adapters.checks import check_images
from shiftproof.adapters.norms import AdaptiveBatchNorm, BatchStatistics, Fixing, GatheredStatistics
from shiftproof.errors import ModelError


def freeze(adapter: Adapter, images: Tensor) -> nn.Module:
    """Return a copy of the adapted model that no longer adapts: a fixed function of one image.

    It normalises with the statistics that the method would use for `images`; running statistics are those collected so
    far, including this batch. Use it for certificates and export. The adapter itself is unchanged and continues to
    adapt.

    Args:
        adapter: The adapter to copy.
        images: A batch of shifted images, whose statistics are kept.

    >>> import torch
    >>> from shiftproof import adapt, load_model
    >>> images = torch.rand(16, 3, 32, 32)
    >>> adapted = adapt(load_model("demo"), "bn", prior=16)
    >>> frozen = freeze(adapted, images)
    >>> torch.allclose(frozen(images[:1]), adapted(images)[:1], atol=1e-4)
    True
    """
    prior = adapter.memory.get("prior")
    if adapter.parts.predict is not None and prior is None:
        raise ModelError(
            f"Method {adapter.method.name!r} cannot be frozen: it does not predict with the adapted network alone.",
            expected="a method that answers with the adapted network (bn, tent, eta, eata, rdumb, sar), or bn with "
            "prior='auto' after its first batch",
            got=adapter.method.name,
        )
    check_images(images, adapter)
    model = copy.deepcopy(adapter.model).requires_grad_(False)
    norms = [module for module in model.modules() if isinstance(module, AdaptiveBatchNorm)]
    for norm in norms:
        chosen = norm.policy
        if prior is not None and isinstance(adapter.options, BnOptions):
            chosen = BatchStatistics(float(prior), adapter.options.variance)
        norm.policy, norm.pending = Fixing(chosen), None
    with torch.no_grad():
        model(images)
    for norm in norms:
        norm.policy, norm.pending = GatheredStatistics(), None
    return model
