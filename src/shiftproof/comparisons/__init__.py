"""Side by side: methods of adaptation under shifts, along a stream and over protocols, and audits against audits."""

from shiftproof.comparisons.along_streams import StreamComparison, compare_on_stream
from shiftproof.comparisons.audit_comparison import Comparison, compare
from shiftproof.comparisons.methods import MethodComparison, compare_methods
from shiftproof.comparisons.protocols import ProtocolResult, run_protocol

__all__ = [
    "Comparison",
    "MethodComparison",
    "ProtocolResult",
    "StreamComparison",
    "compare",
    "compare_methods",
    "compare_on_stream",
    "run_protocol",
]
