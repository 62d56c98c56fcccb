"""MEMO: for every image anew, make the mean answer to many views of it sure (Zhang et al. 2022)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from shiftproof.adapters import views
from shiftproof.adapters.method import Method, Parts
from shiftproof.adapters.method_options import Augmentation, GradientOptions, Prior, Views
from shiftproof.adapters.norms import BatchStatistics
from shiftproof.adapters.parts import all_parameters, optimizer
from shiftproof.errors import ConfigurationError
from shiftproof.options import NotNegative

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter


class MemoOptions(GradientOptions):
    """Options of MEMO."""

    weight_decay: Annotated[NotNegative, "The weight decay of the optimiser."] = 0.0
    prior: Prior = 16
    views: Views = 64
    augment: Augmentation = "flip_crop + augmix"


def _memo(o: MemoOptions) -> Parts:
    augment = views.parse(o.augment)

    def learn(adapter: Adapter, images: Tensor) -> Tensor:
        return torch.cat([answer(adapter, image[None], place) for place, image in enumerate(images)])

    def answer(adapter: Adapter, image: Tensor, place: int) -> Tensor:
        """Adapt to one image, answer it, and go back."""
        seen = views.view(augment, image.expand(o.views, *image.shape[1:]), adapter, place)
        try:
            mean = adapter.run(seen).log_softmax(1).logsumexp(0) - math.log(o.views)
            adapter.update(-(mean.exp() * mean).sum())
            with torch.no_grad():
                return adapter.run(image)
        finally:
            adapter.restart()

    def predict(adapter: Adapter, images: Tensor) -> Tensor:
        return torch.cat([adapter.run(image[None]) for image in images])

    if o.prior == "auto":
        raise ConfigurationError("prior='auto' works for batches of images, not for views of one image.", got="auto")
    # A batch is views of one image, and counts as one.
    norm = BatchStatistics(prior=o.prior, images=1)
    return Parts(
        norm=norm,
        trains=all_parameters,
        learn=learn,
        predict=predict,
        optimizer=optimizer(o, weight_decay=o.weight_decay),
    )


MEMO = Method(
    name="memo",
    paper="Zhang et al. 2022",
    parts=_memo,
    needs_norm_layers=False,
    own_memory=True,
    passes=(65, 64),
    recovers=True,
    defaults=MemoOptions(momentum=0.0),
    presets={
        "cifar": {"lr": 5e-3, "views": 32},
        "imagenet_vit": {"optimizer": "adamw", "lr": 1e-5, "momentum": 0.9, "weight_decay": 0.01},
    },
    departures="the gradient flows through the batch's share of the statistics; predict() answers unadapted",
)
