"""Side by side: methods of adaptation under shifts, methods along a stream, and audits against audits."""

from shiftproof.comparisons.along_streams import StreamComparison, compare_on_stream
from shiftproof.comparisons.audit_comparison import Comparison, compare
from shiftproof.comparisons.methods import MethodComparison, compare_methods

__all__ = ["Comparison", "MethodComparison", "StreamComparison", "compare", "compare_methods", "compare_on_stream"]
