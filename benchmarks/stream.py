"""Does making a stream hold a model up? CCC batches on the fly beside the same model on ready batches, in one run.

    python benchmarks/stream.py                                    # ResNet-20 at 32 pixels on a CPU
    python benchmarks/stream.py --device cuda --network resnet50   # a ResNet-50 Tent step at 224 pixels
    python benchmarks/stream.py --device cuda                      # images per second at 32 pixels

Rounds of each alternate, and the median counts. On a CPU the time to make a batch is given as a share of a plain
forward pass; on CUDA, where batches are made ahead in another thread and stream, the rate of Tent along the stream as a
share of its rate on batches that are already there. The last line is the memory that a stream ten times as long takes.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

import torch
from torch import Tensor, nn

from shiftproof.adapters import adapt
from shiftproof.data import Batch, load_data
from shiftproof.streams import Ccc


def network(name: str, device: str) -> tuple[nn.Module, int]:
    """Return a network in evaluation mode and the side of its images; weights do not matter for its speed."""
    torch.manual_seed(0)
    if name == "resnet50":
        import torchvision

        made: nn.Module = torchvision.models.resnet50()
        return made.eval().to(device), 224
    from shiftproof.models import build_network

    return build_network(name).eval().to(device), 32


def timed(work: Callable[[], object], device: str) -> float:
    """Return the seconds of a call, with what it left running on the device."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def make_stream(side: int, length: int, options: argparse.Namespace) -> Ccc:
    """Return a stream of random images, straight between all common corruptions, 200 images a step."""
    images = torch.randint(0, 256, (512, 3, side, side), dtype=torch.uint8)
    data = load_data((images, torch.arange(512) % 10))
    return Ccc(data, length=length, speed=200, batch_size=options.batch, device=options.device)


def run(model: Callable[[Tensor], Tensor], batches: Iterator[Batch]) -> None:
    """Send batches through a model."""
    for batch in batches:
        model(batch.inputs)


def main() -> None:
    """Measure, print the shares, and write them as JSON if wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--network", default="resnet20", help="resnet20 at 32 pixels, or resnet50 at 224")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--batches", type=int, default=50, help="batches of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    options = parser.parse_args()

    plain, side = network(options.network, options.device)
    tent = adapt(plain, "tent")
    span = options.batches * options.batch
    stream = make_stream(side, (options.rounds + 1) * span, options)
    ready = [stream.read(start, start + options.batch) for start in range(0, 8 * options.batch, options.batch)]
    found: dict[str, list[float]] = {"forward": [], "making": [], "tent, ready": [], "tent, stream": []}

    def again() -> Iterator[Batch]:
        return islice(cycle(ready), options.batches)

    def onward() -> Iterator[Batch]:
        return stream.batches(stream.position + span)

    for number in range(options.rounds + 1):
        stream.seek(number * span)
        with torch.no_grad():
            seconds = {"forward": timed(lambda: run(plain, again()), options.device)}
        seconds["making"] = timed(lambda: list(map(len, onward())), options.device)
        seconds["tent, ready"] = timed(lambda: run(tent, again()), options.device)
        seconds["tent, stream"] = timed(lambda: run(tent, onward()), options.device)
        if number:  # the first round warms up
            for name, spent in seconds.items():
                found[name].append(spent / options.batches)
    medians = {name: statistics.median(values) for name, values in found.items()}
    for name, value in medians.items():
        print(f"{name:14} {1e3 * value:8.2f} ms a batch {options.batch / value:12,.0f} images/s")
    shares = {
        "making over forward": medians["making"] / medians["forward"],
        "rate of tent along the stream": medians["tent, ready"] / medians["tent, stream"],
    }
    for name, value in shares.items():
        print(f"{name}: {value:.2f}")
    before = memory(options.device)
    long = make_stream(side, 100 * span, options)
    for position in range(0, 100 * span, 10 * span):
        long.seek(position)
        with torch.no_grad():
            run(plain, islice(long.batches(), 5))
    print(f"memory of a stream ten times as long: {memory(options.device) - before:+.1f} MB")
    if options.out:
        told = {
            "device": options.device,
            "network": options.network,
            "batch": options.batch,
            "torch": torch.__version__,
        }
        options.out.write_text(json.dumps({**told, "seconds": medians, **shares}, indent=1) + "\n")


def memory(device: str) -> float:
    """Return the peak memory in MB: of the device, or of this process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


if __name__ == "__main__":
    main()
