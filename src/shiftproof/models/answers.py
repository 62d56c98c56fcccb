"""A model known by its answers: the last resort, where nothing that a fingerprint sees has changed.

A user's code can read a file, ask a service or look at a clock. So a run directory keeps the logits of a few of its own
inputs, and whoever goes on with it must answer them alike: nearly so, since devices, threads and libraries round
differently. That is why logits are compared and not digested.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from shiftproof.errors import RunError
from shiftproof.models.outputs import device_of, precision_of
from shiftproof.models.precision import Reduced
from shiftproof.runs import Store

PROBES = 8
"""Inputs that are asked about."""
TOLERANCE, ELSEWHERE = 1e-3, 0.05
"""Logits may differ by this share of their range: on the same kind of processor with the same PyTorch, and where
another device, another version or reduced precision rounds otherwise."""
VALUES = 1000
"""Of larger answers, such as a class for each pixel, about so many values are kept."""
_NOTE = "behaviour"


def check_behaviour(store: Store, model: Callable[[Any], Any], data: Any) -> None:
    """Refuse to go on with a run whose model answered the first inputs of `data` otherwise; note its answers.

    `data` is the set of images or texts whose fingerprint the store has: its first inputs are the same at every call.
    """
    answers, here = _answers(model, data), _place(model)
    noted = store.about().get(_NOTE)
    if answers is None:
        return None
    if noted is None or not store.done():
        return store.note({_NOTE: json.dumps({"place": here, "logits": answers.tolist()})})
    kept = json.loads(noted)
    before = torch.tensor(kept["logits"])
    tolerance = TOLERANCE if kept["place"] == here != "" else ELSEWHERE
    if before.shape != answers.shape:
        raise _other(store, f"{before.shape[1]} logits", f"{answers.shape[1]} logits")
    span, apart = float(before.max() - before.min()), float((answers - before).abs().max())
    if not apart <= tolerance * span:  # NaN included
        told = f"up to {100 * apart / span:.2g}% of their range apart" if span else "others, where all were equal"
        raise _other(store, "the logits that were noted, for the same inputs", f"logits that are {told}")
    return None


def _place(model: Callable[[Any], Any]) -> str:
    """Return where answers come from; a GPU chooses its algorithms anew each time, so that it is nowhere twice."""
    device = device_of(model).type
    return f"{platform.machine()} {torch.__version__}" if device == "cpu" and not isinstance(model, Reduced) else ""


def _answers(model: Callable[[Any], Any], data: Any) -> Tensor | None:
    """Return the model's answers to the first inputs, [N, values] float32; None of what does not answer in tensors."""
    device = device_of(model)
    batch = next(iter(data.subset(range(min(PROBES, len(data)))).batches(PROBES, device=device)), None)
    if batch is None:
        return None
    inputs = batch.inputs.to(precision_of(model)) if isinstance(batch.inputs, Tensor) else batch.inputs
    try:
        with torch.no_grad():
            answers = model(inputs)
    except Exception:  # whoever measures will tell it better
        return None
    if not isinstance(answers, Tensor) or answers.ndim < 2 or not answers.isfinite().all():
        return None
    values = answers.detach().float().cpu().flatten(1)
    return values[:, :: max(1, values.shape[1] // VALUES)]


def _other(store: Store, expected: str, got: str) -> RunError:
    return RunError(
        f"The run in {str(store.folder)!r} is about another model, whose outputs differ.",
        expected=expected,
        got=got,
        fix="choose another folder; a model whose answers depend on chance, or on anything but the input, cannot "
        "be resumed",
    )
