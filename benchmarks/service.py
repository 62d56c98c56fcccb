"""Requests a second that the example of a service answers, on one core, with its monitor and without.

python -m benchmarks.service          needs fastapi and uvicorn

The server runs in a process of its own, bound to one core and one thread, and is asked over loopback, one image a
request, by a client on another core.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from shiftproof import load_data, load_model
from shiftproof.estimators import Monitor
from shiftproof.estimators.evidence import observe
from shiftproof.estimators.fitting import begin, copies_of, finish
from tests.examples import example

REQUESTS = 500


def main() -> None:
    """Print the requests a second, and how long most answers took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    options = parser.parse_args()
    for watched in (False, True):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with tempfile.TemporaryDirectory() as folder:
            server = multiprocessing.get_context("spawn").Process(target=serve, args=(folder, port, watched))
            server.start()
            try:
                spent, processor = ask(port, options.requests, server.pid or 0)
            finally:
                server.terminate()
                server.join()
        median, slow = sorted(spent)[len(spent) // 2], sorted(spent)[len(spent) * 95 // 100]
        print(
            f"{'with its monitor' if watched else 'without':<20}{len(spent) / sum(spent):>8.0f} requests/s, "
            f"{1e3 * median:.1f} ms median, {1e3 * slow:.1f} ms for 95%; "
            f"{1e3 * processor / len(spent):.1f} ms of its core a request"
        )


def serve(folder: str, port: int, watched: bool) -> None:
    """Serve the example from a folder until told to stop."""
    import uvicorn  # type: ignore[import-not-found]

    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[-1:])
    torch.set_num_threads(1)
    os.chdir(folder)
    service = example("monitor_service")
    found: Any = observe(load_model("demo"), load_data("demo-source").batches(250))
    begun = begin(found, found.labels)
    finish(begun, copies_of(begun, None, found)).save(Path("monitor-calibration.json"))
    if not watched:
        Monitor._take_note = lambda *_: None  # type: ignore[method-assign]
    uvicorn.run(service.make_service(), port=port, log_level="error")


def ask(port: int, requests: int, server: int) -> tuple[list[float], float]:
    """Ask one request after another, and return the seconds of each, and the processor's of the server."""
    batch = next(iter(load_data("demo").take(50).batches(50)))
    bodies = [json.dumps({"images": [one.mul(1000).round().div(1000).tolist()]}) for one in batch.inputs]
    client = connected(port)
    spent, before = [], 0.0
    for number in range(-20, requests):
        if number == 0:
            before = processor_time(server)
        start = time.perf_counter()
        client.request("POST", "/predict", bodies[number % len(bodies)], {"Content-Type": "application/json"})
        answer = client.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        if number >= 0:
            spent.append(time.perf_counter() - start)
    return spent, processor_time(server) - before


def processor_time(process: int) -> float:
    """Return the seconds a process has used of processors."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connected(port: int) -> http.client.HTTPConnection:
    """Return a connection to the server, once it answers."""
    for _ in range(1200):
        try:
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            client.connect()
        except OSError:
            time.sleep(0.1)
        else:
            return client
    raise RuntimeError("the service did not start")


if __name__ == "__main__":
    main()
