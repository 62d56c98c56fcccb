"""Every command: the verb it is, and what prints what the verb returns."""

from __future__ import annotations

from collections.abc import Mapping

from shiftproof.cli.derive import Command

INPUTS = ("size", "color", "on_bad_file", "text_column")
"""Options of `load_data` that are neither about labels nor about one data set alone."""

COMMANDS: Mapping[str, Command] = {
    "audit": Command(
        "shiftproof.audits.auditing:audit",
        "shiftproof.cli.terminal:show_audit",
        defaults={"executor": "auto"},  # from Python, processes may run a script anew that is not guarded
    ),
    "report": Command("shiftproof.audits.auditing:report", "shiftproof.cli.terminal:show_report", arguments=("run",)),
    "gate": Command("shiftproof.audits.auditing:gate", "shiftproof.cli.terminal:show_gate", arguments=("run",)),
    "compare": Command(
        "shiftproof.comparisons.audit_comparison:compare",
        "shiftproof.cli.showing_comparisons:show_comparison",
        arguments=("runs",),
    ),
    "compare-methods": Command(
        "shiftproof.comparisons.methods:compare_methods",
        "shiftproof.cli.showing_comparisons:show_methods",
        loads={"source": INPUTS},
    ),
    "compare-on-stream": Command(
        "shiftproof.comparisons.along_streams:compare_on_stream",
        "shiftproof.cli.showing_comparisons:show_stream_comparison",
    ),
    "run-protocol": Command(
        "shiftproof.comparisons.protocols:run_protocol", "shiftproof.cli.showing_comparisons:show_protocol"
    ),
    "certify": Command(
        "shiftproof.certificates.certifying:certify",
        "shiftproof.cli.showing:show_certificates",
        defaults={"out": "shiftproof-certificate"},
        several="shift",
    ),
    "spectrum": Command(
        "shiftproof.certificates.spectral_analysis:spectrum",
        "shiftproof.cli.showing:show_spectrum",
        defaults={"out": "shiftproof-spectrum"},
    ),
    "search": Command(
        "shiftproof.searchers.searching:search",
        "shiftproof.cli.showing:show_search",
        defaults={"out": "shiftproof-search"},
    ),
    "diagnose": Command(
        "shiftproof.diagnoses.diagnosing:diagnose",
        "shiftproof.cli.showing_diagnoses:show_diagnosis",
        defaults={"out": "shiftproof-diagnosis"},
        loads={"data": (*INPUTS, "split", "labels")},
    ),
    "find-failures": Command(
        "shiftproof.diagnoses.finding_failures:find_failures",
        "shiftproof.cli.showing_diagnoses:show_failures",
        defaults={"out": "shiftproof-failures"},
    ),
    "estimate": Command(
        "shiftproof.estimators.estimating:estimate",
        "shiftproof.cli.showing:show_estimate",
        loads={"data": (*INPUTS, "split")},
    ),
    "train": Command(
        "shiftproof.training.training:train",
        "shiftproof.cli.showing:show_training",
        defaults={"out": "shiftproof-train"},
        settings="shiftproof.training.settings:TrainingSettings",
        loads={"validation": INPUTS},
    ),
    "harden": Command(
        "shiftproof.hardening.hardening:harden",
        "shiftproof.cli.showing_hardening:show_hardened",
        loads={"test": INPUTS},
    ),
    "calibrate": Command("shiftproof.streams.ccc.calibrating:calibrate", "shiftproof.cli.showing:show_calibration"),
    "write-corrupted": Command(
        "shiftproof.exports.writing:write_corrupted", "shiftproof.cli.showing:show_copy", arguments=("data", "out")
    ),
    "write-stream": Command(
        "shiftproof.exports.shards:write_stream", "shiftproof.cli.showing:show_shards", arguments=("out",)
    ),
    "preview": Command(
        "shiftproof.exports.previews:preview", "shiftproof.cli.showing:show_preview", arguments=("image",)
    ),
    "preview-stream": Command(
        "shiftproof.exports.stream_previews:preview_stream", "shiftproof.cli.showing:show_preview"
    ),
    "list": Command("shiftproof.cli.catalogue:list_names", "shiftproof.cli.catalogue:show", arguments=("kind", "name")),
}

MEANT: Mapping[str, tuple[str, ...]] = {
    "adapt": ("compare-methods", "compare-on-stream"),
    "corrupt": ("write-corrupted",),
    "evaluate": ("audit",),
    "monitor": ("estimate",),
    "stream": ("compare-on-stream", "write-stream"),
}
"""What is meant by words that are no commands: functions of the package without one, and names of its parts."""
