"""Resumable work: a plan of tasks, a store of their results, and executors that run what is missing."""

from shiftproof.runs.cell import Cell
from shiftproof.runs.choosing import EXECUTORS, Auto, choose_executor
from shiftproof.runs.drive import OnProgress, drive, stop_at_failure
from shiftproof.runs.executors import Executor, Inline, Processes, WorkerPool
from shiftproof.runs.files import write_atomically
from shiftproof.runs.hosting import Setup, Worker
from shiftproof.runs.plan import Plan, Result
from shiftproof.runs.store import Store
from shiftproof.runs.task import AnyTask, Json, Row, Task

__all__ = [
    "EXECUTORS",
    "AnyTask",
    "Auto",
    "Cell",
    "Executor",
    "Inline",
    "Json",
    "OnProgress",
    "Plan",
    "Processes",
    "Result",
    "Row",
    "Setup",
    "Store",
    "Task",
    "Worker",
    "WorkerPool",
    "choose_executor",
    "drive",
    "stop_at_failure",
    "write_atomically",
]
