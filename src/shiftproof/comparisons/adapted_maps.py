"""A method of adaptation on images with label maps: what its answers come to, counts and time."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from statistics import median

from torch import Tensor

from shiftproof.adapters import Adapter, Counts
from shiftproof.audits.sections.segmentation.map_measuring import predicted_maps
from shiftproof.comparisons.adapted_images import AdaptedImages, Serving
from shiftproof.errors import ModelError
from shiftproof.runs import Json, Row
from shiftproof.subjects import Subject


@dataclass(frozen=True)
class AnsweredMaps(AdaptedImages):
    """The images of a subject through a fresh adapter that learns from pixels."""

    kind = "methods.maps"

    def measure(self, subject: Serving) -> Row:
        """Return the counts of the answers; a method that learns from whole images does not apply."""
        try:
            return super().measure(subject)
        except ModelError as error:
            if self.method.per_pixel:
                raise
            return {"applies": False, "reason": error.headline}

    def _answered(self, adapter: Adapter, subject: Subject) -> dict[str, Json]:
        asked = _Timed(adapter, subject.device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what an adapter has to say of itself is said in the notes
            found = predicted_maps(
                subject.at_batch_size(self.batch), range(self.images), self.shift, self.seed, model=asked
            )
        return {
            **found,
            "milliseconds": 1e3 * median(asked.spent[1:] or asked.spent),  # the first batch warms up
            **dict(zip(Counts._fields, (len(asked.spent), adapter.updates, adapter.resets), strict=True)),
        }


class _Timed:
    """An adapter that is asked, and how long each answer took."""

    def __init__(self, adapter: Adapter, device: str) -> None:
        self.adapter, self.device, self.spent = adapter, device, list[float]()

    def __call__(self, images: Tensor) -> Tensor:
        begun = time.perf_counter()
        answer: Tensor = self.adapter(images)
        self.spent.append(time.perf_counter() - begun)
        return answer
