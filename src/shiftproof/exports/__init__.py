"""Data sets written under shifts: corrupted copies, the layouts of published suites, and pages to look at."""

from shiftproof.exports.previews import preview
from shiftproof.exports.shards import write_stream
from shiftproof.exports.stream_previews import preview_stream
from shiftproof.exports.writing import Written, write_corrupted

__all__ = ["Written", "preview", "preview_stream", "write_corrupted", "write_stream"]
