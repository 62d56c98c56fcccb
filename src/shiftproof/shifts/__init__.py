"""What can change in an input: corruptions, operations, spectral noise, policies and edits of texts, keyed by input."""

from shiftproof.shifts.base import Shift
from shiftproof.shifts.catalogue import as_image_shift, as_shift, corruption, facts, families, names, parse
from shiftproof.shifts.chain import Chain, ImageChain
from shiftproof.shifts.corrupting import corrupt
from shiftproof.shifts.corruptions.corruption import Corruption
from shiftproof.shifts.image_shift import ImageShift, Shape
from shiftproof.shifts.moving import move_labels
from shiftproof.shifts.operations.operation import Operation
from shiftproof.shifts.samples import Transform

__all__ = [
    "Chain",
    "Corruption",
    "ImageChain",
    "ImageShift",
    "Operation",
    "Shape",
    "Shift",
    "Transform",
    "as_image_shift",
    "as_shift",
    "corrupt",
    "corruption",
    "facts",
    "families",
    "move_labels",
    "names",
    "parse",
]
