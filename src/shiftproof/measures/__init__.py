"""Pure functions on numbers: accuracies with their intervals, corruption errors, and distances between statistics."""

from shiftproof.measures.accuracy import Accuracy
from shiftproof.measures.certified_accuracy import (
    MeanRadius,
    average_radius,
    certified_accuracy,
    certified_curve,
    mean_average_radius,
)
from shiftproof.measures.corruption_error import (
    ALEXNET,
    ALEXNET_CLEAN,
    category_means,
    corruption_errors,
    mce,
    relative_mce,
)
from shiftproof.measures.error_line import ErrorLine
from shiftproof.measures.normalization import LayerStatistics, layer_distances, mean_distance
from shiftproof.measures.prior_bounds import expected_distance_bounds, optimal_prior
from shiftproof.measures.shift_maps import ShiftMap, shift_map

__all__ = [
    "ALEXNET",
    "ALEXNET_CLEAN",
    "Accuracy",
    "ErrorLine",
    "LayerStatistics",
    "MeanRadius",
    "ShiftMap",
    "average_radius",
    "category_means",
    "certified_accuracy",
    "certified_curve",
    "corruption_errors",
    "expected_distance_bounds",
    "layer_distances",
    "mce",
    "mean_average_radius",
    "mean_distance",
    "optimal_prior",
    "relative_mce",
    "shift_map",
]
