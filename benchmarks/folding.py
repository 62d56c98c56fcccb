"""How much sooner a folded network answers than the model it was made of, side by side.

python benchmarks/folding.py --model demo --side 32 --batch 64
RESNET50=resnet50.safetensors python benchmarks/folding.py --model resnet50.py:build --side 224 --batch 8
"""

from __future__ import annotations

import argparse
import time

import torch

from shiftproof import load_model
from shiftproof.models import logits
from shiftproof.models.folding import folded


def main() -> None:
    """Time both in turn, and print the quickest of each and how far their scores are apart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--times", type=int, default=12)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    model = load_model(given.model, device=given.device)
    images = torch.rand(given.batch, 3, given.side, given.side, generator=torch.Generator().manual_seed(0))
    images = images.to(given.device)
    both = {"as it is": model, "folded": folded(model, images)}
    scores = {name: logits(each, images) for name, each in both.items()}
    quickest = dict.fromkeys(both, float("inf"))
    for _ in range(given.times):
        for name, each in both.items():
            begun = time.perf_counter()
            logits(each, images)  # on the CPU, so that it has ended
            quickest[name] = min(quickest[name], time.perf_counter() - begun)
    for name, seconds in quickest.items():
        print(f"{name:<10} {1000 * seconds / given.batch:.3f} ms an image")
    print(f"ratio      {quickest['as it is'] / quickest['folded']:.2f}")
    print(f"apart      {float((scores['as it is'] - scores['folded']).abs().max()):.1e}")


if __name__ == "__main__":
    main()
