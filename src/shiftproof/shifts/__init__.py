"""What can change in an input: corruptions, operations, spectral noise and policies, keyed by image."""

from shiftproof.shifts.base import Shift
from shiftproof.shifts.catalogue import as_shift, corruption, facts, families, names, parse
from shiftproof.shifts.chain import Chain
from shiftproof.shifts.corrupting import Transform, corrupt
from shiftproof.shifts.corruptions.corruption import Corruption
from shiftproof.shifts.operations.operation import Operation

__all__ = [
    "Chain",
    "Corruption",
    "Operation",
    "Shift",
    "Transform",
    "as_shift",
    "corrupt",
    "corruption",
    "facts",
    "families",
    "names",
    "parse",
]
