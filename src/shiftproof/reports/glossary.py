"""What the measures of a report mean, in a sentence each: shown where a measure is named, and listed at the end."""

from __future__ import annotations

import re
from collections.abc import Mapping

from markupsafe import Markup, escape

from shiftproof.reports.formatting import clean

MEASURES: Mapping[str, str] = {
    "accuracy": "The share of inputs whose predicted class is the labelled one.",
    "accuracy under corruption": "Accuracy on corrupted copies of the inputs: the mean over kinds and severities.",
    "ACR": "Average certified radius: the mean over inputs of the distance within which the smoothed model's answer is "
    "right and provably stable; 0 where it is wrong or not certified.",
    "AUROC": "How often a score ranks a random member of one group above a random member of the other: 0.5 is chance, "
    "1 is always.",
    "calibration error": "The mean gap between confidence and accuracy over 15 groups of inputs of similar confidence.",
    "certified accuracy": "The share of inputs that the smoothed model gets right and whose answer no change within "
    "the radius (L2, pixel values 0 to 1) can alter.",
    "certified radius": "The distance (L2, pixel values 0 to 1) within which no change of the input can change the "
    "answer of the smoothed model.",
    "confidence": "The probability that the model gives to the class it answers.",
    "ECE": "Expected calibration error: the mean gap between confidence and accuracy over 15 groups of inputs of "
    "similar confidence.",
    "gain by adaptation": "Accuracy with a method of test-time adaptation less accuracy of the model as it is.",
    "interval": "Where the figure lies for inputs drawn like these, with 95% confidence unless it says otherwise.",
    "IoU": "Intersection over union of a class: pixels that are predicted and labelled so, over those that are either.",
    "label-free estimate": "Accuracy estimated from the model's outputs on inputs without labels.",
    "mCE": "Mean corruption error (ImageNet-C): errors under 15 corruptions at 5 severities, divided by AlexNet's. "
    "AlexNet has 100; less is better.",
    "mIoU": "The mean over classes of the intersection over union of predicted and labelled pixels.",
    "prior N": "How many images the training statistics count for when they are mixed with those of a batch.",
    "rank correlation": "Spearman's: how far two orders agree. 1 is the same order, 0 no relation, -1 the reverse.",
    "similarity": "Structural similarity (SSIM) to the image before the change: 1 is unchanged.",
    "slice": "A group of inputs with something in common: a class, a value of their metadata, an image statistic.",
    "smoothed model": "The model served by randomized smoothing: a vote over its answers to copies of the input with "
    "Gaussian noise. Certificates hold for it, and not for the model itself.",
    "worst case": "Accuracy under the worst chain of transformations that the search found among those allowed.",
}
"""Measure -> what it is."""

_NAMED = re.compile(
    rf"(?<![\w-])({'|'.join(map(re.escape, sorted(MEASURES, key=len, reverse=True)))})(?![\w-])", re.IGNORECASE
)
_KNOWN = {name.lower(): name for name in MEASURES}


def defined(text: str) -> Markup:
    """Return a text as markup in which the measures it names carry their definitions.

    >>> print(defined("ECE, points"))
    <abbr title="Expected calibration error: ...">ECE</abbr>, points
    """

    def marked(found: re.Match[str]) -> str:
        return f'<abbr title="{escape(MEASURES[_KNOWN[found[0].lower()]])}">{found[0]}</abbr>'

    return Markup(_NAMED.sub(marked, str(escape(clean(text)))))


def used(page: str) -> dict[str, str]:
    """Return the measures that a rendered text marks, with their definitions, in alphabetical order."""
    return {name: text for name, text in MEASURES.items() if f'<abbr title="{escape(text)}">' in page}
