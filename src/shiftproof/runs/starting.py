"""How worker processes start: from a clean process that has imported what takes seconds, where there can be one."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing import forkserver
from multiprocessing.context import BaseContext

THREADS = "OMP_NUM_THREADS"
COMPILER = "torch._dynamo"
"""What torch imports late, for optimisers among others, and takes more than a second for."""


def start_method() -> BaseContext:
    """Return how workers start: forked from a server that has imported what this process has of this package.

    Forking a process that runs threads can hang, and spawning imports torch anew for every worker. The server runs no
    threads, and so its workers have as many as they ask torch for. It keeps the environment that it was started in.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        sorted(name for name in sys.modules if name.startswith("shiftproof.") or name == COMPILER)
    )
    before = os.environ.get(THREADS)
    os.environ[THREADS] = "1"
    try:
        forkserver.ensure_running()
    finally:
        del os.environ[THREADS]
        if before is not None:
            os.environ[THREADS] = before
    return context
