"""Where exactly a model fails, and why: its failures image by image, and what a folder of new images behaves like."""

from shiftproof.diagnoses.finding_failures import Failures, find_failures

__all__ = ["Failures", "find_failures"]
