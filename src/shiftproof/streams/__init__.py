"""How change arrives over time: streams of shifted images, made on the fly, keyed and seekable.

for batch in Ccc(data, length=100_000):         # images, labels, keys, shift
    logits = adapted(batch.inputs)
"""

from shiftproof.streams.ccc.calibrating import calibrate
from shiftproof.streams.ccc.continuous import Ccc
from shiftproof.streams.ccc.stream_calibration import StreamCalibration
from shiftproof.streams.domains import Domains
from shiftproof.streams.evaluation import evaluate
from shiftproof.streams.making import STREAMS, make_stream
from shiftproof.streams.orders import Concatenated, Correlated, Gradual, Mixed, Recurring
from shiftproof.streams.stream import Stream
from shiftproof.streams.trace import Trace

__all__ = [
    "STREAMS",
    "Ccc",
    "Concatenated",
    "Correlated",
    "Domains",
    "Gradual",
    "Mixed",
    "Recurring",
    "Stream",
    "StreamCalibration",
    "Trace",
    "calibrate",
    "evaluate",
    "make_stream",
]
