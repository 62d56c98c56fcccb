"""Help while serving: models that adapt to unlabelled images as they predict.

adapted = adapt(model, "rdumb")
logits = adapted(images)          # predicts, and learns from the images
"""

from shiftproof.adapters.adapter import Adapter
from shiftproof.adapters.catalogue import METHODS, adapt, method
from shiftproof.adapters.method import Method, Parts, Step
from shiftproof.adapters.resets import each_shift, every, never

__all__ = ["METHODS", "Adapter", "Method", "Parts", "Step", "adapt", "each_shift", "every", "method", "never"]
