"""What adapting costs: each method's time per batch over a plain forward pass of the same model, in one run.

    python benchmarks/adapt.py                                    # ResNet-20 at 32 pixels on a CPU
    python benchmarks/adapt.py --device cuda --model resnet50     # ResNet-50 at 224 pixels, images per second too

Rounds of the plain forward and of all methods alternate, so that other load on the machine hits none alone; the median
of each counts. A plain Tent step (batch statistics, entropy, SGD on scales and shifts, nothing else) runs beside ours
as the bound. `safe` runs beside its parts, the source, bn and rdumb one after another: what is more is its test. The
last line is the conjugate pseudo-label at 1,000 classes: the closed form over the linear solve.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.adapters import SafeAdapter, adapt, method
from shiftproof.adapters.losses import conjugate_poly, entropy

METHODS = (
    "source",
    "bn",
    "tent",
    "rpl",
    "cpl",
    "slr",
    "eta",
    "eata",
    "rdumb",
    "sar",
    "roid",
    "deyo",
    "lame",
    "t3a",
    "safe",
)


FILTERS = ("entropy_margin", "similarity")


def safe_and_its_parts(
    model: nn.Module, images: Tensor, amp: str | None, passing: dict[str, Any]
) -> dict[str, Callable[[], Any]]:
    """Return a step of `safe`, which is told the labels that it asks for, and of its configurations by themselves."""
    labels = torch.arange(len(images)) % 10
    safe = adapt(model, "safe", amp=amp, candidate_options={"rdumb": passing})
    parts = [adapt(model, "source", amp=amp), adapt(model, "bn", amp=amp), adapt(model, "rdumb", amp=amp, **passing)]
    if not isinstance(safe, SafeAdapter):
        raise TypeError("safe is no SafeAdapter")

    def step() -> None:
        safe(images)
        safe.grade(labels)

    return {"safe": step, "safe's parts": lambda: [part(images) for part in parts]}


def network(name: str, device: str) -> tuple[nn.Module, int]:
    """Return a network in evaluation mode and the side of its images; weights do not matter for its speed."""
    torch.manual_seed(0)
    if name == "resnet50":
        import torchvision

        made: nn.Module = torchvision.models.resnet50()
        side = 224
    else:
        from shiftproof.models import build_network

        made, side = build_network(name), 32
    return made.eval().to(device).to(memory_format=torch.channels_last), side  # type: ignore[call-overload]


def plain_tent(model: nn.Module, amp: str | None) -> Callable[[Tensor], Tensor]:
    """Return the least a Tent step can be."""
    model = copy.deepcopy(model).requires_grad_(False)
    learnt: list[nn.Parameter] = []
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.track_running_stats = False
            module.running_mean = module.running_var = None
            learnt += module.requires_grad_(True).parameters()
    optimizer = torch.optim.SGD(learnt, lr=1e-4, momentum=0.9)

    def step(images: Tensor) -> Tensor:
        with torch.autocast(images.device.type, torch.bfloat16, enabled=amp is not None):
            logits: Tensor = model(images)
        torch.autograd.backward(entropy(logits.float()).mean())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return logits.detach()

    return step


def plain_forward(model: nn.Module, amp: str | None) -> Callable[[Tensor], Tensor]:
    """Return the model's own forward pass."""

    def step(images: Tensor) -> Tensor:
        with torch.inference_mode(), torch.autocast(images.device.type, torch.bfloat16, enabled=amp is not None):
            logits: Tensor = model(images)
        return logits

    return step


def seconds(call: Callable[[], Any], device: str, calls: int) -> float:
    """Return the time of one call, over several."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def alternate(calls: dict[str, Callable[[], Any]], device: str, rounds: int, repeats: int) -> dict[str, float]:
    """Return the median time of each call over rounds in which all take their turn."""
    for call in calls.values():
        for _ in range(3):
            call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(seconds(call, device, repeats))
    return {name: statistics.median(times) for name, times in found.items()}


def conjugate_solve(logits: Tensor, epsilon: float) -> Tensor:
    """Return the conjugate loss with its label from the C x C linear system."""
    p = logits.softmax(1)
    system = torch.eye(p.shape[1], device=p.device) + epsilon * (torch.diag_embed(p) - p[:, :, None] * p[:, None, :])
    y: Tensor = torch.linalg.solve(system, p)
    return logits.logsumexp(1) - (y * (logits - epsilon * (1 - p))).sum(1)


def main() -> None:
    """Measure, print a line per method, and write all of it as JSON if wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", default="resnet20", help="a reference network, or resnet50 (torchvision)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--amp", choices=("bfloat16",), help="reduced precision; without it, tf32 on CUDA")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=3, help="batches per round")
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    options = parser.parse_args()
    if options.device == "cuda":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True

    model, side = network(options.model, options.device)
    images = torch.rand(options.batch, 3, side, side, device=options.device)
    images = images.contiguous(memory_format=torch.channels_last)
    calls: dict[str, Callable[[], Any]] = {}
    plain, tent = plain_forward(model, options.amp), plain_tent(model, options.amp)
    calls["plain forward"] = lambda: plain(images)
    calls["plain tent"] = lambda: tent(images)
    for name in options.methods.split(","):
        # A random network is unsure of everything: filters must let images through to be paid for. The Fisher
        # information of EATA, another backward pass for each of its first images, is gathered while warming up.
        passing = {"entropy_margin": 2.0, "similarity": 2.0, "drop": -1.0, "fisher_images": 2 * options.batch}
        known = {key: value for key, value in passing.items() if key in method(name).defaults.to_dict()}
        if name == "safe":
            calls |= safe_and_its_parts(model, images, options.amp, {key: passing[key] for key in FILTERS})
            continue
        adapter = adapt(model, name, amp=options.amp, **known)
        calls[name] = partial(adapter, images)
    if options.device == "cuda":
        calls["tent, graph"] = partial(adapt(model, "tent", amp=options.amp, graph=True), images)
    times = alternate(calls, options.device, options.rounds, options.repeats)
    rows = [
        {"name": name, "over_forward": spent / times["plain forward"], "images_per_second": options.batch / spent}
        for name, spent in times.items()
    ]
    for row in rows:
        print(f"{row['name']:14} {row['over_forward']:6.2f}x {row['images_per_second']:12,.0f} images/s")

    logits = torch.randn(options.batch, 1000, device=options.device)
    closed = alternate({"closed form": lambda: conjugate_poly(logits, 8.0)}, options.device, 9, 20)["closed form"]
    solve = alternate({"linear solve": lambda: conjugate_solve(logits, 8.0)}, options.device, 3, 1)["linear solve"]
    ratio = solve / closed
    print(f"conjugate label, C = 1000: the closed form is {ratio:,.0f} times faster than the linear solve")
    if options.out:
        settings = {key: getattr(options, key) for key in ("device", "model", "batch", "amp")}
        about = {**settings, "torch": torch.__version__, "closed_form_over_solve": ratio}
        options.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
