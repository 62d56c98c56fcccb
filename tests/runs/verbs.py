"""Every verb that can be killed, small: `python -m tests.runs.verbs VERB FOLDER EXECUTOR` works in FOLDER/run.

It makes FOLDER/begun when the work begins, and FOLDER/answer.json, with what came of it, when all is done.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import shiftproof
from shiftproof.adapters import adapt
from shiftproof.runs import write_atomically
from shiftproof.streams import evaluate, make_stream
from shiftproof.training import train
from tests.label_maps import ColourNet, painted
from tests.training.samples import small, two_classes


def _tree(folder: Path) -> dict[str, str]:
    """Return digests of all files that a user asked for."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in found.items()
        if not name.startswith(("run.", "state-"))
    }


def audited(out: Path, executor: str) -> object:
    """Audit."""
    options: dict[str, Any] = {"images": 16, "shifts": ["contrast", "fog"], "severities": [2, 5], "methods": ["bn"]}
    sections = ["clean", "corruptions", "adaptation", "spectrum"]
    shiftproof.audit(out=out, executor=executor, sections=sections, device="cpu", **options)
    content = json.loads((out / "results.json").read_text())
    del content["timing"]
    return content


def audited_maps(out: Path, executor: str) -> object:
    """Audit a segmenter."""
    options: dict[str, Any] = {"shifts": ["contrast", "elastic_transform"], "severities": [2, 5], "methods": ["bn"]}
    shiftproof.audit(ColourNet(), painted(16), out=out, executor=executor, device="cpu", **options)
    content = json.loads((out / "results.json").read_text())
    del content["timing"]
    return content


def certified(out: Path, executor: str) -> object:
    """Certify."""
    shiftproof.certify(
        "demo", "demo", sigma=0.25, n=400, n0=20, images=12, batch_size=50, out=out, executor=executor, device="cpu"
    )
    return _tree(out)


def certified_maps(out: Path, executor: str) -> object:
    """Certify a segmenter."""
    shiftproof.certify(ColourNet(), painted(12), sigma=0.1, n=200, out=out, executor=executor, device="cpu")
    return _tree(out)


def searched(out: Path, executor: str) -> object:
    """Search."""
    found = shiftproof.search(
        images=12, length=2, searcher="evolution", budget=40, population=8, out=out, executor=executor, device="cpu"
    )
    return found.trace.to_json()


def trained(out: Path, executor: str) -> object:
    """Train."""
    train(small(), two_classes(80), out=out, recipe="gaussian", epochs=8, batch_size=10, lr=0.1, log_every=5)
    return _tree(out)["model.safetensors"]


def adapted(out: Path, executor: str) -> object:
    """Adapt along a stream."""
    data = shiftproof.load_data("demo").take(100)
    stream = make_stream("concatenated", data, shifts=["contrast", "fog"], length=400, batch_size=10)
    model: Any = shiftproof.load_model("demo")
    trace = evaluate(adapt(model, "tent"), stream, out=out, chunk=5)
    return list(trace.right)


def estimated(out: Path, executor: str) -> object:
    """Estimate."""
    names = ("saturate", "spatter", "gaussian_blur", "speckle_noise")
    shifts = [f"{name}@{severity}" for name in names for severity in (2, 5)]
    found = shiftproof.estimate(images=30, views=1, shifts=shifts, out=out, device="cpu")
    return [found.to_row(), [other.to_row() for other in found.others]]


def copied(out: Path, executor: str) -> object:
    """Corrupt."""
    names = ("gaussian_noise", "snow", "contrast", "fog", "pixelate")
    from shiftproof.exports.writing import write_corrupted

    write_corrupted(
        "demo", out, shifts=[f"{name}@{severity}" for name in names for severity in (1, 5)], executor=executor
    )
    return _tree(out)


VERBS: dict[str, Callable[[Path, str], object]] = {
    "audit": audited,
    "audit maps": audited_maps,
    "certify": certified,
    "certify maps": certified_maps,
    "search": searched,
    "train": trained,
    "adapt": adapted,
    "estimate": estimated,
    "corrupt": copied,
}
SPREAD = ("audit", "audit maps", "certify", "certify maps", "search", "corrupt")
"""Those that take an executor."""


def main(verb: str, folder: Path, executor: str) -> None:
    """Do the work of a verb."""
    (folder / "begun").touch()
    start = time.perf_counter()
    answer = VERBS[verb](folder / "run", executor)
    content = {"seconds": time.perf_counter() - start, "answer": answer}
    write_atomically(folder / "answer.json", json.dumps(content, default=str))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
