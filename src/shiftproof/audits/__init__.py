"""The main job: one section per question, and the report."""

from shiftproof.audits.auditing import audit, gate, report
from shiftproof.audits.conclusion import Audit

__all__ = ["Audit", "audit", "gate", "report"]
