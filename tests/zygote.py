"""The process that others are forked from: it imports, and waits."""

import gc
import importlib
import json
import os
import runpy
import sys
import warnings
import weakref
from typing import Any


def serve() -> None:
    """Answer each request, a line of JSON, with the number of a process of its own, and then with its exit status."""
    import shiftproof
    import shiftproof.cli

    importlib.import_module("torch._dynamo")  # for optimisers torch imports it, which takes more than a second

    for name in shiftproof.__all__:
        getattr(shiftproof, name)
    gc.collect()
    gc.freeze()  # or each fork would go through all that is imported as it ends, and copy it
    answers = os.fdopen(os.dup(1), "w")  # what a fork writes to its output goes elsewhere
    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            answers.close()
            _become(json.loads(line))
        print(pid, file=answers, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


def _become(request: dict[str, Any]) -> None:
    """Be the process that was asked for, to the end of its interpreter."""
    for number, flags, path in (
        (0, os.O_RDONLY, os.devnull),
        (1, os.O_WRONLY | os.O_CREAT, request["out"]),
        (2, os.O_WRONLY | os.O_CREAT, request["errors"]),
    ):
        os.dup2(os.open(path, flags), number)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for each in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        each.detach()  # temporary folders of modules are removed by the process that imported these
    sys.path[0] = ""  # as `python -c` and `python -m` have it
    warnings.simplefilter("error")
    if "code" in request:
        sys.argv = ["-c"]
        exec(compile(request["code"], "<string>", "exec"), sys.modules["__main__"].__dict__)
        sys.exit()
    sys.argv = request["argv"]
    runpy.run_module("shiftproof", run_name="__main__", alter_sys=False)
    sys.exit()
