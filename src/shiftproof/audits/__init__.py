"""The main job: one section per question, and the report."""

from shiftproof.audits.auditing import audit, reopen
from shiftproof.audits.comparing import Comparison, compare
from shiftproof.audits.outcome import Audit
from shiftproof.audits.view import View

__all__ = ["Audit", "Comparison", "View", "audit", "compare", "reopen"]
