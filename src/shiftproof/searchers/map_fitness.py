"""What is minimised of a segmenter: mIoU over the classes in the label maps, which move with content that moves."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from shiftproof.data.images.mask_values import IGNORE
from shiftproof.measures.overlap import count_overlap, mean_overlaps
from shiftproof.models import Model
from shiftproof.models.dense_outputs import pixel_logits
from shiftproof.models.identity import digest
from shiftproof.searchers.fitness import Counts, Fitness, identity


class MapFitness(Fitness):
    """mIoU of label maps [N, H, W] over so many classes; pixels with the ignore label do not count.

    The images of a search must not move their content: label maps stay where they are.
    """

    name = "miou"

    def __init__(self, model: Model, maps: Tensor, classes: int) -> None:
        self.model, self.maps, self.classes = model, maps, classes
        self.present = np.zeros(classes, bool)
        self.present[[label for label in maps.unique().tolist() if label != IGNORE]] = True  # type: ignore[no-untyped-call]

    def tally(self, images: Tensor, rows: slice) -> tuple[Counts, list[bool] | None]:
        """Count pixels by class: right, predicted, labelled."""
        predicted = pixel_logits(self.model, images).argmax(1)
        labels = self.maps[rows].to(predicted.device)
        return count_overlap(labels, predicted, self.classes, IGNORE).sum(0).flatten().astype(np.float64), None

    def value(self, counts: Counts) -> float:
        """Return the mean over the classes in the label maps."""
        return float(mean_overlaps(counts.reshape(3, self.classes), self.present))

    @property
    def fingerprint(self) -> str:
        """The model and the label maps."""
        return digest([self.name, identity(self.model), self.maps, self.classes])
