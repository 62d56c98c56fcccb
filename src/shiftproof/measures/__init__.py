"""Pure functions on numbers: accuracies with their intervals, and corruption errors."""

from shiftproof.measures.accuracy import Accuracy
from shiftproof.measures.corruption_error import ALEXNET, ALEXNET_CLEAN, mce, relative_mce

__all__ = ["ALEXNET", "ALEXNET_CLEAN", "Accuracy", "mce", "relative_mce"]
