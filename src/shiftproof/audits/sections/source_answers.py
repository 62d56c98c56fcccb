"""What the model as it is says of shifted images, for the section `adaptation`: the section `corruptions` asked it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shiftproof.audits.sections.correlated import CorrelatedStream
from shiftproof.audits.sections.corrupted_images import CorruptedSlice
from shiftproof.audits.sections.measuring import hits_at, rows
from shiftproof.runs import Result, Row
from shiftproof.shifts import Shift
from shiftproof.slices.image_results import SOURCE


def source_row(results: Sequence[Result], shift: Shift, images: int) -> Row | None:
    """Return the tally of the first images under a shift; None where some of them were not measured under it."""
    parts = [(task.places, row) for task, row in rows(results, CorruptedSlice) if task.shift == shift]
    hits = hits_at(range(images), parts)
    if hits is None:
        return None
    return {"images": images, "right": int(hits.sum()), "hits": np.packbits(hits).tobytes().hex()}


def source_pace(results: Sequence[Result]) -> list[float]:
    """Return the milliseconds of a batch of the model as it is, in batches as methods have them."""
    streams = rows(results, CorrelatedStream)
    return [float(str(row["milliseconds"])) for task, row in streams if task.method.name == SOURCE]
