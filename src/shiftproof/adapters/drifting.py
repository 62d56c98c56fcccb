"""RDumb++: ETA that goes back, all or part of the way, when entropies or predictions drift (arXiv 2601.15544)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from torch import Tensor

from shiftproof.adapters import losses
from shiftproof.adapters.entropy import COSINE, ETA, EtaOptions, eta_parts
from shiftproof.adapters.learning import learn_from
from shiftproof.adapters.method import Memory, Method, Parts
from shiftproof.options import NotNegative, Share

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

KEEP_PREDICTION = 0.9


class DriftOptions(EtaOptions):
    """Options of RDumb++."""

    drift: Annotated[
        Literal["entropy", "prediction"],
        "What is watched: the mean entropy, or the divergence of the mean prediction from its running mean.",
    ] = "entropy"
    deviations: Annotated[NotNegative, "How many standard deviations above its running mean are a drift."] = 3.0
    keep_drift: Annotated[Share, "How much of the running mean and mean square a batch keeps."] = 0.99
    warm_up: Annotated[int, "Batches before the first return."] = 50
    cool_down: Annotated[int, "Batches between two returns."] = 200
    return_share: Annotated[Share, "How far to go back: 1 is all the way, with a new optimiser."] = 0.5


def deviation(memory: Memory, value: Tensor, keep: float) -> Tensor:
    """Return by how many standard deviations a value is above its running mean, which it is part of, and keep both."""
    new = {"mean": value, "square": value.square()}
    for name, number in new.items():
        known = memory.get(f"drift/{name}", number)
        memory[f"drift/{name}"] = keep * known + (1 - keep) * number
    mean = memory["drift/mean"]
    spread = (memory["drift/square"] - mean.square()).clamp_min(1e-12).sqrt()
    return (value - mean) / spread


def _watched(memory: Memory, logits: Tensor, kind: str) -> Tensor:
    if kind == "entropy":
        return losses.entropy(logits).mean()
    p = logits.softmax(1).mean(0).clamp_min(1e-12)
    known = memory.get("drift/prediction", p)
    memory["drift/prediction"] = KEEP_PREDICTION * known + (1 - KEEP_PREDICTION) * p
    return (p * (p / known).log()).sum()


def _drifting(o: DriftOptions) -> Parts:
    def learn(adapter: Adapter, images: Tensor) -> Tensor:
        logits, memory = adapter.run(images), adapter.memory
        with torch.no_grad():
            above = deviation(memory, _watched(memory, logits.detach(), o.drift), o.keep_drift)
        since = memory.get("drift/since", torch.tensor(o.cool_down))
        if adapter.steps >= o.warm_up and since >= o.cool_down and bool(above > o.deviations):
            go_back(adapter, o.return_share)
            logits, since = adapter.run(images), torch.zeros_like(since)
        memory["drift/since"] = since + 1
        return learn_from(adapter, images, logits)

    return replace(eta_parts(o), learn=learn)


def go_back(adapter: Adapter, share: float) -> None:
    """Move what learns towards the start; all the way, with a new optimiser and mean prediction, at 1."""
    if share == 1:
        adapter.restart()
        adapter.memory.pop("mean_prediction", None)
    else:
        with torch.no_grad():
            for name, parameter in adapter.trained.items():
                parameter.lerp_(adapter.starts[name], share)
    adapter.resets += 1


RDUMBPP = Method(
    name="rdumbpp",
    paper="RDumb++, arXiv 2601.15544",
    parts=_drifting,
    min_batch=2,
    defaults=DriftOptions(),
    presets=ETA.presets,
    recovers=True,
    departures="the released versions differ in their constants: these are those with a running mean of 0.99; what is "
    f"watched must rise, while the newest release takes falls for drifts, too; {COSINE}",
)
