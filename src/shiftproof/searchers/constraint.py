"""What a tuple may not do: destroy the content. An oracle's view of it, measured beside the fitness.

The paper leaves the constraint open and trusts the choice of operations. Here a tuple is admissible when the images
stay similar in structure, and when a reference model, where one is given, still sees in them what it saw before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.errors import ConfigurationError
from shiftproof.measures.similarity import level_similarity
from shiftproof.models.identity import digest
from shiftproof.searchers.fitness import Subject, classes, identity
from shiftproof.shifts.levels import from_levels

AGREEMENT = 0.9


@dataclass(frozen=True)
class Constraint:
    """Content constraint: bounds on means over images that an admissible chain must satisfy.

    Bounds that are None do not apply; with a `reference`, `agreement` defaults to 0.9.

    Args:
        similarity: Smallest structural similarity to the clean images, from -1 to 1.
        agreement: Smallest share of images to which the reference gives the same class as before.
        reference: A model that judges whether an image still shows its class.

    >>> Constraint(similarity=0.7).similarity
    0.7
    """

    similarity: float | None = None
    agreement: float | None = None
    reference: Subject | None = None

    def __post_init__(self) -> None:
        if self.reference is not None and self.agreement is None:
            object.__setattr__(self, "agreement", AGREEMENT)
        if self.agreement is not None and self.reference is None:
            raise ConfigurationError("The bound on agreement needs a reference model.", fix="give one: reference=")
        for name, bound, low in (("similarity", self.similarity, -1.0), ("agreement", self.agreement, 0.0)):
            if bound is not None and not low <= bound <= 1.0:
                raise ConfigurationError(f"Invalid bound on the {name}.", expected=f"{low:g} to 1", got=f"{bound:g}")

    def __bool__(self) -> bool:
        return self.similarity is not None or self.reference is not None

    @property
    def fingerprint(self) -> str:
        """What is measured for the constraint; bounds are applied to it afterwards."""
        reference = None if self.reference is None else identity(self.reference)
        return digest(["ssim" if self.similarity is not None else None, reference])

    def tally(self, before: Tensor, after: Tensor) -> Tensor:
        """Return the sum of similarities and the number of agreements over images, [2] float64 where they are.

        Images are whole float32 numbers 0..255; what is not asked is 0.
        """
        sums = torch.zeros(2, dtype=torch.float64, device=before.device)
        if self.similarity is not None:
            sums[0] = level_similarity(before, after).sum()
        if self.reference is not None:
            here, there = (classes(self.reference, from_levels(levels)) for levels in (before, after))
            sums[1] = int((here == there).sum())
        return sums

    def violation(self, similarity: float | None, agreement: float | None) -> float:
        """Return how far means are below their bounds, in sum; 0 where they keep them."""
        kept = ((similarity, self.similarity), (agreement, self.agreement))
        return sum(max(0.0, bound - value) for value, bound in kept if value is not None and bound is not None)

    def judge(self, sums: NDArray[np.float64], images: int) -> tuple[bool, float | None, float | None]:
        """Return whether tuples with these sums are admissible, and their mean similarity and agreement."""
        similarity = None if self.similarity is None else float(sums[0] / images)
        agreement = None if self.reference is None else float(sums[1] / images)
        kept = similarity is None or self.similarity is None or similarity >= self.similarity
        agreed = agreement is None or self.agreement is None or agreement >= self.agreement
        return kept and agreed, similarity, agreement
