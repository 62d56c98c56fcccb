"""How change arrives over time: streams of shifted images, made on the fly, keyed and seekable.

for batch in Ccc(data, length=100_000):         # images, labels, keys, shift
    logits = adapted(batch.images)
"""

from shiftproof.streams.calibrating import calibrate
from shiftproof.streams.calibration import Calibration
from shiftproof.streams.ccc import Ccc
from shiftproof.streams.evaluating import evaluate
from shiftproof.streams.making import STREAMS, make_stream
from shiftproof.streams.orders import Concatenated, Correlated, Gradual, Mixed
from shiftproof.streams.stream import Stream
from shiftproof.streams.trace import Trace

__all__ = [
    "STREAMS",
    "Calibration",
    "Ccc",
    "Concatenated",
    "Correlated",
    "Gradual",
    "Mixed",
    "Stream",
    "Trace",
    "calibrate",
    "evaluate",
    "make_stream",
]
