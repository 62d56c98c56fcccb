"""A model behind HTTP with a drift monitor, and what the monitor reports as fog thickens.

    python examples/monitor_service.py fog       the demo under thickening fog, in this process
    python examples/monitor_service.py serve     a service: POST /predict {"images": N x 3 x 32 x 32 in [0, 1]},
                                                 GET /metrics, GET /status

The service needs `fastapi` and `uvicorn`, which Shiftproof does not. Prometheus scrapes `/metrics`.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import torch

from shiftproof import load_data, load_model, shifts
from shiftproof.estimators import Calibration, Estimator, Monitor

STATE, CALIBRATION = Path("monitor-state.npz"), Path("monitor-calibration.json")


def make_monitor() -> Monitor:
    """Return the demo model under a monitor, calibrated once on shifted copies of 500 labelled images."""
    model = load_model("demo")
    if CALIBRATION.exists():
        return Monitor(model, Calibration.load(CALIBRATION), window=300, drift_every=4)
    few = [
        f"{name}@{severity}"
        for name in ("speckle_noise", "gaussian_blur", "spatter", "saturate")
        for severity in (2, 5)
    ]
    calibration = Estimator.fit(model, load_data("demo-source"), shifts=few, n=4).calibration
    calibration.save(CALIBRATION)
    return Monitor(model, calibration, window=300, drift_every=4)


def fog() -> None:
    """Serve batches under thickening and clearing fog, and print what the monitor reports."""
    monitor = make_monitor()
    data = load_data("demo")
    print("fog   estimated accuracy            true   drift   alarms")
    for severity in (0, 0, 0, 1, 2, 3, 4, 5, 5, 5, 3, 1, 0, 0, 0, 0):
        right = seen = 0
        for batch in data.take(200, seed=monitor.batches).batches(50):
            foggy = shifts.corruption("fog", severity)(batch.inputs, batch.keys)
            answers = monitor(foggy).argmax(1)
            if batch.labels is not None:
                right, seen = right + int((answers == batch.labels).sum()), seen + len(batch)
        now = monitor.status()
        raised = ", ".join(name for name, on in now.alarms.items() if on) or "none"
        drift = sum(now.drift.values()) / max(1, len(now.drift))
        told = f"{now.accuracy:.1%} ({now.low:.1%} to {now.high:.1%})" if now.accuracy is not None else "none yet"
        print(f"{severity}     {told:<28}{right / seen:>6.1%}  {drift:>5.2f}   {raised}")


def make_service() -> Any:
    """Return the FastAPI application."""
    from fastapi import Body, FastAPI, Response  # type: ignore[import-not-found]  # noqa: PLC0415 (only here)

    monitor = make_monitor()
    if STATE.exists():
        monitor.load(STATE)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        monitor.save(STATE)

    service = FastAPI(title="A model with a drift monitor", lifespan=lifespan)

    @service.post("/predict")  # type: ignore[untyped-decorator]
    def predict(images: Annotated[list[Any], Body(embed=True)]) -> dict[str, list[int]]:
        return {"classes": monitor(torch.tensor(images)).argmax(1).tolist()}

    @service.get("/metrics")  # type: ignore[untyped-decorator]
    def metrics() -> Any:
        return Response(monitor.status().prometheus(), media_type="text/plain; version=0.0.4")

    @service.get("/status")  # type: ignore[untyped-decorator]
    def status() -> dict[str, Any]:
        return monitor.status().to_row()

    return service


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        import uvicorn  # type: ignore[import-not-found]

        uvicorn.run(make_service(), port=8000)
    else:
        fog()
