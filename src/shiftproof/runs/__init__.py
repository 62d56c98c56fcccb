"""Resumable work: a plan of cells, a store of their results, and executors that run what is missing."""

from shiftproof.runs.drive import drive
from shiftproof.runs.executors import Executor, Inline, Processes, Worker
from shiftproof.runs.files import write_atomically
from shiftproof.runs.plan import Cell, Json, Plan, Result, Row
from shiftproof.runs.store import Store

__all__ = [
    "Cell",
    "Executor",
    "Inline",
    "Json",
    "Plan",
    "Processes",
    "Result",
    "Row",
    "Store",
    "Worker",
    "drive",
    "write_atomically",
]
