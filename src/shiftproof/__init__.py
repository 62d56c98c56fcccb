"""Shiftproof: where a classifier breaks under distribution shift, how badly, what helps, and what is guaranteed.

The public names and the sub-packages are loaded when they are first used, so that `import shiftproof` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shiftproof.registry import imported, register
from shiftproof.version import __version__

if TYPE_CHECKING:
    from shiftproof import (
        adapters,
        audits,
        certificates,
        comparisons,
        data,
        diagnoses,
        errors,
        estimators,
        exports,
        hardening,
        keyed,
        measures,
        models,
        reports,
        runs,
        searchers,
        shifts,
        slices,
        streams,
        training,
    )
    from shiftproof.adapters import Adapter, adapt
    from shiftproof.audits import Audit
    from shiftproof.audits.auditing import audit, gate, report
    from shiftproof.certificates import Certification, Spectrum, certify
    from shiftproof.certificates.spectral_analysis import spectrum
    from shiftproof.comparisons import (
        Comparison,
        MethodComparison,
        ProtocolResult,
        StreamComparison,
        compare,
        compare_methods,
        compare_on_stream,
        run_protocol,
    )
    from shiftproof.data import DataSpec, load_data
    from shiftproof.diagnoses import Diagnosis, Failures, diagnose, find_failures
    from shiftproof.errors import ShiftproofError
    from shiftproof.estimators import Estimate, estimate
    from shiftproof.exports import preview, preview_stream, write_corrupted, write_stream
    from shiftproof.hardening import Hardened, harden
    from shiftproof.models import ModelSpec, load_model
    from shiftproof.searchers import Search, search
    from shiftproof.shifts import corrupt
    from shiftproof.streams import StreamCalibration, Trace, calibrate, evaluate
    from shiftproof.training import Trained, train

__all__ = [
    "Adapter",
    "Audit",
    "Certification",
    "Comparison",
    "DataSpec",
    "Diagnosis",
    "Estimate",
    "Failures",
    "Hardened",
    "MethodComparison",
    "ModelSpec",
    "ProtocolResult",
    "Search",
    "ShiftproofError",
    "Spectrum",
    "StreamCalibration",
    "StreamComparison",
    "Trace",
    "Trained",
    "__version__",
    "adapt",
    "adapters",
    "audit",
    "audits",
    "calibrate",
    "certificates",
    "certify",
    "compare",
    "compare_methods",
    "compare_on_stream",
    "comparisons",
    "corrupt",
    "data",
    "diagnose",
    "diagnoses",
    "errors",
    "estimate",
    "estimators",
    "evaluate",
    "exports",
    "find_failures",
    "gate",
    "harden",
    "hardening",
    "keyed",
    "load_data",
    "load_model",
    "measures",
    "models",
    "preview",
    "preview_stream",
    "register",
    "report",
    "reports",
    "run_protocol",
    "runs",
    "search",
    "searchers",
    "shifts",
    "slices",
    "spectrum",
    "streams",
    "train",
    "training",
    "write_corrupted",
    "write_stream",
]

_HOMES = {
    "adapters": ("Adapter", "adapt"),
    "audits": ("Audit", "audit", "gate", "report"),
    "certificates": ("Certification", "Spectrum", "certify", "spectrum"),
    "comparisons": (
        "Comparison",
        "MethodComparison",
        "ProtocolResult",
        "StreamComparison",
        "compare",
        "compare_methods",
        "compare_on_stream",
        "run_protocol",
    ),
    "data": ("DataSpec", "load_data"),
    "diagnoses": ("Diagnosis", "Failures", "diagnose", "find_failures"),
    "errors": ("ShiftproofError",),
    "estimators": ("Estimate", "estimate"),
    "exports": ("preview", "preview_stream", "write_corrupted", "write_stream"),
    "hardening": ("Hardened", "harden"),
    "keyed": (),
    "measures": (),
    "models": ("ModelSpec", "load_model"),
    "reports": (),
    "runs": (),
    "searchers": ("Search", "search"),
    "shifts": ("corrupt",),
    "slices": (),
    "streams": ("StreamCalibration", "Trace", "calibrate", "evaluate"),
    "training": ("Trained", "train"),
}
"""Every sub-package, with the names it gives to the top level."""
_TARGETS = {name: f"shiftproof.{home}:{name}" for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return import_module(f"shiftproof.{name}")
    if name in _TARGETS:
        return imported(_TARGETS[name])
    raise AttributeError(f"module 'shiftproof' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
