"""Help while serving: models that adapt to unlabelled images as they predict.

adapted = adapt(model, "rdumb")
logits = adapted(images)          # predicts, and learns from the images
"""

from shiftproof.adapters.adapter import Adapter
from shiftproof.adapters.catalogue import METHODS, Facts, adapt, facts, make_adapter, method, with_source
from shiftproof.adapters.diagnostics import Counts, diagnose
from shiftproof.adapters.freezing import freeze
from shiftproof.adapters.guard import Guard
from shiftproof.adapters.method import Method, Parts, Step
from shiftproof.adapters.method_options import GradientOptions, MethodOptions
from shiftproof.adapters.paired_audit import PairedAudit
from shiftproof.adapters.presets import choose_preset
from shiftproof.adapters.priors import PriorChoice, choose_prior
from shiftproof.adapters.resets import Reset, each_shift, every, never
from shiftproof.adapters.safe import SafeAdapter

__all__ = [
    "METHODS",
    "Adapter",
    "Counts",
    "Facts",
    "GradientOptions",
    "Guard",
    "Method",
    "MethodOptions",
    "PairedAudit",
    "Parts",
    "PriorChoice",
    "Reset",
    "SafeAdapter",
    "Step",
    "adapt",
    "choose_preset",
    "choose_prior",
    "diagnose",
    "each_shift",
    "every",
    "facts",
    "freeze",
    "make_adapter",
    "method",
    "never",
    "with_source",
]
