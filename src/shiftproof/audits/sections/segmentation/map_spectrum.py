"""Which frequencies a segmenter is weak to: mIoU under single waves, by the same code as accuracy."""

from __future__ import annotations

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.scores_by_task import WORDS
from shiftproof.audits.sections.spectrum import FrequencySensitivity
from shiftproof.prediction_tasks import LABEL_MAPS


class MapSpectrum(FrequencySensitivity):
    """mIoU by frequency."""

    numbers = (
        Number("worst_wave_miou", "mIoU under the worst single wave"),
        Number("spectrum.*", "mIoU under waves of a band: low, mid or high"),
    )
    words = WORDS[LABEL_MAPS.name]
