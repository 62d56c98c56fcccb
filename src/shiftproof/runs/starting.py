"""How worker processes start: from a server that has already imported what they need, where there can be one.

Forking a process that runs threads can hang, and spawning imports torch anew for every worker.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.context import BaseContext


def start_method() -> BaseContext:
    """Return the context that worker processes are made in.

    The first process of a context starts its server, which imports the modules of this package that are in use now.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    used = [name for name in sys.modules if name.startswith("shiftproof.")]
    context.set_forkserver_preload(["shiftproof.runs.server", *used])
    return context
