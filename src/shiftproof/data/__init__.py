"""What it is tested on: sets of labelled images or texts, and the embedded demo.

A set streams: `load_data("photos/").batches(64)` yields float32 images [N, C, H, W] in [0, 1], labels and keys.
"""

from shiftproof.data.batch import Batch
from shiftproof.data.imageset import ImageSet
from shiftproof.data.loading import FORMS, load_data, load_images
from shiftproof.data.matching import match, matched
from shiftproof.data.source import BadFile
from shiftproof.data.specs import DataLike, DataSpec
from shiftproof.data.textset import TextSet

__all__ = [
    "FORMS",
    "BadFile",
    "Batch",
    "DataLike",
    "DataSpec",
    "ImageSet",
    "TextSet",
    "load_data",
    "load_images",
    "match",
    "matched",
]
