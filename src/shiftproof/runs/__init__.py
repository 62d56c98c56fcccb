"""Resumable work: a plan of cells, a store of their results, and executors that run what is missing."""

from shiftproof.runs.choosing import EXECUTORS, choose_executor
from shiftproof.runs.drive import Watch, drive, stop_at_failure
from shiftproof.runs.executors import Crew, Executor, Inline, Processes
from shiftproof.runs.files import write_atomically
from shiftproof.runs.hosting import Setup, Worker
from shiftproof.runs.plan import Cell, Json, Plan, Result, Row
from shiftproof.runs.store import Store

__all__ = [
    "EXECUTORS",
    "Cell",
    "Crew",
    "Executor",
    "Inline",
    "Json",
    "Plan",
    "Processes",
    "Result",
    "Row",
    "Setup",
    "Store",
    "Watch",
    "Worker",
    "choose_executor",
    "drive",
    "stop_at_failure",
    "write_atomically",
]
