"""What it is tested on: sets of labelled images or texts, and the embedded demo.

A set streams: `load_data("photos/").batches(64)` yields float32 images [N, C, H, W] in [0, 1], labels and keys; of
texts, lists of them.
"""

from shiftproof.data.base import BadFile, Batch, Dataset
from shiftproof.data.images import ImageSet, as_images
from shiftproof.data.loading import FORMS, load_data, load_images
from shiftproof.data.matching import match, matched
from shiftproof.data.specs import DataLike, DataSpec
from shiftproof.data.text import TextSet, as_texts

__all__ = [
    "FORMS",
    "BadFile",
    "Batch",
    "DataLike",
    "DataSpec",
    "Dataset",
    "ImageSet",
    "TextSet",
    "as_images",
    "as_texts",
    "load_data",
    "load_images",
    "match",
    "matched",
]
