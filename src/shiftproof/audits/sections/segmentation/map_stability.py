"""How long the help lasts for a segmenter: methods along a stream of changing corruptions, by the code of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shiftproof.adapters import Method
from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.segmentation.map_adaptation import BATCH
from shiftproof.audits.sections.stability import Stability
from shiftproof.prediction_tasks import LABEL_MAPS
from shiftproof.reports.view import View
from shiftproof.runs import Result


class MapStability(Stability):
    """Rolling mIoU of every method that learns from pixels; label maps are cropped and mirrored with their images."""

    numbers = (
        Number("stability.collapsed", "methods that fall below the unadapted model permanently", "lower", "count"),
        Number("stability.*", "mIoU of images that a method adds along the stream", None),
    )
    measure = LABEL_MAPS.measure
    batches = (BATCH, BATCH)

    def fits(self, method: Method) -> bool:
        """Whether it learns from single pixels."""
        return method.per_pixel

    def view(self, results: Sequence[Result]) -> View:
        """Tell it with how mIoU is meant here."""
        made = super().view(results)
        said = "mIoU along a stream is the mean of each image's own, over the classes that it has."
        return replace(made, notes=(*made.notes, said)) if made.blocks else made
