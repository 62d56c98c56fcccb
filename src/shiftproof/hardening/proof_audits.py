"""The audits that prove a hardening: on which terms they are made, and whether one that is there already is on them."""

from __future__ import annotations

from typing import Any

from shiftproof.audits.conclusion import Audit
from shiftproof.runs.files import read_json
from shiftproof.shifts import names
from shiftproof.subjects import Subject

SECTIONS = ("clean", "corruptions")
SEVERITIES = (1.0, 3.0, 5.0)
COMMON, UNSEEN = "common", "bar"
"""The corruptions of the audit, and those that play no part in choosing."""


def fits(given: Audit, subject: Subject, seed: int) -> bool:
    """Whether an audit is of a model on the images for proof, on the terms of these audits: it is then the first."""
    noted: dict[str, Any] = read_json(given.folder / "results.json")
    settings = noted["settings"]
    return (
        not given.missing
        and not given.failed
        and all(noted["fingerprints"][name] == subject.fingerprints[name] for name in ("version", "model", "sample"))
        and {*SECTIONS} <= {*settings["sections"]}
        and [*settings["shifts"]] == [*names(COMMON)]
        and [*settings["severities"]] == [*SEVERITIES]
        and settings["seed"] == seed
    )
