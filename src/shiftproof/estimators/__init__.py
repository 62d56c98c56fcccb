"""What to expect without labels: invariance, thresholded confidence, distances between statistics, and a monitor.

result = estimate(model, unlabelled, source=labelled)
print(result)                       # 63.1% (45.0 to 71.2%) by calibrated_cot
"""

from shiftproof.estimators.calibration import Calibration
from shiftproof.estimators.catalogue import METHODS, EstimationMethod
from shiftproof.estimators.checkpoints import agreement_on_the_line
from shiftproof.estimators.confidence import agreement, atc, average_confidence, difference_of_confidences
from shiftproof.estimators.estimating import estimate
from shiftproof.estimators.estimator import Estimator
from shiftproof.estimators.from_outputs import estimate_outputs
from shiftproof.estimators.invariance import Invariance, neighborhood_invariance
from shiftproof.estimators.monitor import Monitor
from shiftproof.estimators.neighborhoods import NEIGHBORHOODS
from shiftproof.estimators.results import ClassEstimate, Estimate
from shiftproof.estimators.status import Status

__all__ = [
    "METHODS",
    "NEIGHBORHOODS",
    "Calibration",
    "ClassEstimate",
    "Estimate",
    "EstimationMethod",
    "Estimator",
    "Invariance",
    "Monitor",
    "Status",
    "agreement",
    "agreement_on_the_line",
    "atc",
    "average_confidence",
    "difference_of_confidences",
    "estimate",
    "estimate_outputs",
    "neighborhood_invariance",
]
