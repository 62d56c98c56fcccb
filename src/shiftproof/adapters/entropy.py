"""Entropy minimisation and its relatives: Tent, RPL, CPL, SLR, ETA, EATA, RDumb and the guarded ETA."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from shiftproof.adapters import losses
from shiftproof.adapters.fisher import fisher_anchor
from shiftproof.adapters.method import Method, Options, Parts, Step
from shiftproof.adapters.parts import (
    by_entropy,
    kept_entropy,
    norm_affine,
    norm_affine_but_last_stage,
    novel,
    optimizer,
    reliable,
)
from shiftproof.adapters.resets import every

SGD = {"optimizer": "sgd", "lr": 2.5e-4, "momentum": 0.9}
VIT = {"lr": 1e-3}
CIFAR = {"optimizer": "adam", "lr": 1e-3}
BY_CLASSES = "the largest cosine follows the number of classes: the published 0.05 for 1000, 0.4 for 10"


def _tent(o: Options) -> Parts:
    return Parts(trains=norm_affine, loss=kept_entropy, optimizer=optimizer(o))


def _rpl(o: Options) -> Parts:
    loss = lambda step: losses.robust_pseudo_label(step.logits, o.q)  # noqa: E731
    return Parts(trains=norm_affine, loss=loss, optimizer=optimizer(o))


def _cpl(o: Options) -> Parts:
    loss = lambda step: losses.conjugate_poly(step.logits / o.temperature, o.epsilon)  # noqa: E731
    return Parts(trains=norm_affine, loss=loss, optimizer=optimizer(o))


def _slr(o: Options) -> Parts:
    def loss(step: Step) -> Tensor:
        mean = step.logits.softmax(1).mean(0)
        if "mean_prediction" in step.memory:
            mean = o.keep_mean * step.memory["mean_prediction"] + (1 - o.keep_mean) * mean
        step.memory["mean_prediction"] = mean.detach()
        ratio = losses.soft_likelihood_ratio(step.logits)
        return losses.divergence_from_uniform(mean) + float(o.ratio_weight) * ratio

    trains = norm_affine_but_last_stage if o.freeze_last else norm_affine
    return Parts(trains=trains, loss=loss, optimizer=optimizer(o))


def _eta(o: Options) -> Parts:
    return Parts(
        trains=norm_affine,
        keep=(reliable(o.entropy_margin), novel(o.similarity)),
        loss=kept_entropy,
        weigh=by_entropy(o.entropy_margin),
        optimizer=optimizer(o),
    )


def _eata(o: Options) -> Parts:
    return replace(_eta(o), regularise=fisher_anchor(o))


TENT = Method(
    name="tent",
    paper="Wang et al. 2021",
    parts=_tent,
    min_batch=2,
    defaults=SGD,
    presets={"cifar": CIFAR, "imagenet_vit": VIT},
    departures="Press et al. 2023 print a learning rate of 2.5e-5; their released code uses 2.5e-4, and so do we",
)
RPL = Method(
    name="rpl",
    paper="Rusak et al. 2022",
    parts=_rpl,
    min_batch=2,
    defaults={**SGD, "lr": 5e-4, "q": 0.8},
    departures="Press et al. 2023 print a learning rate of 5e-3; their released code uses 5e-4, and so do we",
)
CPL = Method(
    name="cpl",
    paper="Goyal et al. 2022",
    parts=_cpl,
    min_batch=2,
    defaults={**SGD, "lr": 1e-3, "epsilon": 8.0, "temperature": 1.0},
    presets={"cifar": {"epsilon": 6.0}},
    departures="the C x C solve is done in closed form; epsilon=0 is right for models trained with cross-entropy",
)
SLR = Method(
    name="slr",
    paper="Mummadi et al. 2021",
    parts=_slr,
    min_batch=2,
    defaults={
        "optimizer": "adam",
        "lr": 6e-4,
        "momentum": 0.9,
        "ratio_weight": 0.025,
        "keep_mean": 0.9,
        "freeze_last": True,
    },
    departures="the last stage is frozen as a whole; log(1 - p) is computed without cancellation",
)
ETA = Method(
    name="eta",
    paper="Niu et al. 2022",
    parts=_eta,
    min_batch=2,
    defaults={**SGD, "entropy_margin": 0.4, "similarity": "auto"},
    presets={"cifar": CIFAR, "imagenet_vit": VIT},
    departures=BY_CLASSES,
)
EATA = Method(
    name="eata",
    paper="Niu et al. 2022",
    parts=_eata,
    min_batch=2,
    defaults={**ETA.defaults, "fisher": "stream", "fisher_images": 2000, "fisher_weight": 2000.0},
    presets={"cifar": {**CIFAR, "fisher_weight": 1.0}, "imagenet_vit": VIT},
    departures="the Fisher information comes from the stream's first images (Press et al. 2023); give "
    f"fisher=images for the original's source images; {BY_CLASSES}",
)
RDUMB = Method(
    name="rdumb",
    paper="Press et al. 2023",
    parts=_eta,
    min_batch=2,
    defaults={**ETA.defaults, "reset": every(1000)},
    presets=ETA.presets,
    departures=BY_CLASSES,
)
GUARD = Method(
    name="guard",
    paper="none: ETA (Niu et al. 2022) with a way back of our own",
    parts=_eta,
    min_batch=2,
    defaults={**ETA.defaults, "reset": "guard"},
    presets=ETA.presets,
    passes=(1.2, 1),
    departures=BY_CLASSES,
)
