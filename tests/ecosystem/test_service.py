"""The example of a service: FastAPI and uvicorn on loopback, asked over HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from typing import Any

import pytest
import torch

for package in ("fastapi", "uvicorn"):
    pytest.importorskip(package, reason="the packages of tests/ecosystem/requirements.txt: make ecosystem")

import uvicorn  # type: ignore[import-not-found]

from shiftproof import load_data, load_model
from shiftproof.estimators import Monitor
from shiftproof.estimators.evidence import observe
from shiftproof.estimators.fitting import begin, copies_of, finish
from tests.examples import example

REQUESTS = 100


@pytest.fixture
def address(tmp_path, monkeypatch):
    """Serve the demo under a monitor, and return where."""
    monkeypatch.chdir(tmp_path)
    found: Any = observe(load_model("demo"), load_data("demo-source").batches(250))
    begun = begin(found, found.labels)
    finish(begun, copies_of(begun, None, found)).save("monitor-calibration.json")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(example("monitor_service").make_service(), port=port, log_level="error", lifespan="on")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()
    assert (tmp_path / "monitor-state.npz").exists()


def ask(url: str, content: object = None) -> str:
    body = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def test_a_service_answers_as_the_model_and_tells_prometheus_what_it_saw(address):
    batch = next(iter(load_data("demo").take(REQUESTS).batches(REQUESTS)))
    expected = load_model("demo")(batch.inputs).argmax(1)
    images = batch.inputs.mul(255).round().div(255)
    torch.testing.assert_close(images, batch.inputs)
    answers = [json.loads(ask(f"{address}/predict", {"images": [one.tolist()]}))["classes"] for one in images]
    assert [answer for (answer,) in answers] == expected.tolist()
    metrics = ask(f"{address}/metrics")
    assert f"shiftproof_inputs_total {REQUESTS}" in metrics
    assert 'shiftproof_alarm{alarm="unfamiliar"} 0' in metrics
    assert "shiftproof_watching_failures_total 0" in metrics
    status = json.loads(ask(f"{address}/status"))
    assert status["low"] <= status["accuracy"] <= status["high"]
    assert isinstance(example("monitor_service").make_monitor(), Monitor)  # from the calibration that was saved
