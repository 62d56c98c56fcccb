"""Images through an adapter, batch by batch: what streams of the section `adaptation` have in common."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from itertools import cycle
from statistics import median

import torch

from shiftproof.adapters import Adapter, Counts
from shiftproof.audits.sections.measuring import check_labels, tally
from shiftproof.audits.sections.packed_answers import packed_answers
from shiftproof.data import Dataset
from shiftproof.models.outputs import check_logits
from shiftproof.runs import Json
from shiftproof.shifts import Shift


def streamed(
    adapter: Adapter, data: Dataset, shifts: Sequence[Shift], *, seed: int, batch: int, device: torch.device | str
) -> dict[str, Json]:
    """Return the tally of an adapter's answers to data, the milliseconds of a batch, and what was counted.

    Batches are under the shifts in turn.
    """
    labels, predicted, confidences, spent = [], [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # single images without a prior are measured on purpose
        for part, shift in zip(data.batches(batch, device=device), cycle(shifts), strict=False):
            images = shift(part.inputs, part.keys, seed=seed)
            start = time.perf_counter()
            logits = check_logits(adapter(images), len(images))
            confidence, classes = logits.softmax(1).max(1)
            predicted.append(classes.cpu())
            spent.append(time.perf_counter() - start)
            confidences.append(confidence.cpu())
            labels.append(check_labels(part.labels, logits.shape[1]))
    return {
        **tally(torch.cat(labels), torch.cat(predicted), torch.cat(confidences)),
        **packed_answers(torch.cat(predicted), torch.cat(confidences)),
        "milliseconds": 1e3 * median(spent[1:] or spent),  # the first batch warms up
        **dict(zip(Counts._fields, (len(spent), adapter.updates, adapter.resets), strict=True)),
    }
