"""Where exactly a model fails, and why: its failures image by image, and what a folder of new images behaves like."""

from shiftproof.diagnoses.diagnosing import Diagnosis, diagnose
from shiftproof.diagnoses.finding_failures import Failures, find_failures

__all__ = ["Diagnosis", "Failures", "diagnose", "find_failures"]
