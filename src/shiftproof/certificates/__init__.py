"""What is guaranteed: randomized smoothing, certified radii, and the spectral view.

certified = certify("demo", "demo", sigma=0.03, rule="sequential", n=1000, images=20)
certified.acr.value, certified.accuracy(at=0.05)
"""

from shiftproof.certificates.certification import Certification, load_certificate
from shiftproof.certificates.certifying import certify
from shiftproof.certificates.radius import radius
from shiftproof.certificates.rules import AtLeast, Fixed, Rule, Sequential, make_rule
from shiftproof.certificates.smoothed import ABSTAIN, Certificate, Smoothed
from shiftproof.certificates.spectral_analysis import spectrum
from shiftproof.certificates.spectrum_result import Spectrum
from shiftproof.certificates.suite import CertifiedSuite
from shiftproof.certificates.transformations import Transformation
from shiftproof.measures.intervals import lower_bound, upper_bound

__all__ = [
    "ABSTAIN",
    "AtLeast",
    "Certificate",
    "Certification",
    "CertifiedSuite",
    "Fixed",
    "Rule",
    "Sequential",
    "Smoothed",
    "Spectrum",
    "Transformation",
    "certify",
    "load_certificate",
    "lower_bound",
    "make_rule",
    "radius",
    "spectrum",
    "upper_bound",
]
