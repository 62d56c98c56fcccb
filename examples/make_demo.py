"""Make the embedded demo: a CIFAR-10 ResNet-20 and the images it is audited on.

    python examples/make_demo.py train --cifar10 DIR     # minutes on a GPU, hours on a CPU
    python examples/make_demo.py pack --cifar10 DIR

DIR holds `train.npz` and `test.npz` with `images` (uint8, N x 32 x 32 x 3) and `labels`. `train` writes
`src/shiftproof/models/demo.safetensors` (half precision) and prints its accuracy on the whole test set; `pack` writes
`src/shiftproof/data/demo/`: the first 100 test images of each class to audit, the next 50 as labelled source set.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from shiftproof.models.networks import build_network

SOURCE = Path(__file__).parents[1] / "src" / "shiftproof"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
COLUMNS = 25


def load(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels of a split."""
    with np.load(folder / f"{split}.npz") as file:
        return file["images"], file["labels"]


def augment(images: Tensor) -> Tensor:
    """Flip half of the images and shift each by up to four pixels, with zeros coming in."""
    n, _, height, width = images.shape
    flip = torch.rand(n, device=images.device) < 0.5
    images = torch.where(flip[:, None, None, None], images.flip(3), images)
    top, left = torch.randint(0, 9, (2, n, 1, 1), device=images.device)
    rows = top + torch.arange(height, device=images.device)[None, :, None]
    columns = left + torch.arange(width, device=images.device)[None, None, :]
    return (
        F.pad(images, (4, 4, 4, 4))
        .permute(0, 2, 3, 1)[torch.arange(n, device=images.device)[:, None, None], rows, columns]
        .permute(0, 3, 1, 2)
    )


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of right predictions."""
    model.eval()
    with torch.inference_mode():
        hits = [
            (model(batch).argmax(1) == label).sum()
            for batch, label in zip(torch.split(images, 1000), torch.split(labels, 1000), strict=True)
        ]
    return int(torch.stack(hits).sum()) / len(labels)


def train(folder: Path, out: Path, *, epochs: int, seed: int, batch: int, lr: float) -> None:
    """Train with SGD, a short warm-up and a cosine schedule, and write half-precision weights."""
    torch.manual_seed(seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    (images, labels), (test_images, test_labels) = (
        (torch.from_numpy(x).to(device).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(y).to(device))
        for x, y in (load(folder, "train"), load(folder, "test"))
    )
    model = build_network("resnet20").to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    forward = torch.compile(model) if device.type == "cuda" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
    steps = epochs * (len(images) // batch)
    warm = steps // 40
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: step / warm if step < warm else (1 + math.cos(math.pi * (step - warm) / (steps - warm))) / 2,
    )
    start = time.time()
    for epoch in range(epochs):
        model.train()
        order = torch.randperm(len(images), device=device)[: len(images) // batch * batch]
        for chosen in torch.split(order, batch):
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = F.cross_entropy(
                    forward(augment(images[chosen]).contiguous(memory_format=torch.channels_last)), labels[chosen]
                )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        if epoch % 10 == 9 or epoch + 1 == epochs:
            shown = f"test {accuracy(model, test_images, test_labels):.4f}  {time.time() - start:.0f} s"
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}  {shown}", flush=True)
    state = {
        name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in model.state_dict().items()
    }
    state = {name: tensor.cpu().contiguous() for name, tensor in state.items()}
    model.load_state_dict(state)
    result = accuracy(model, test_images, test_labels)
    facts = {"network": "resnet20", "data": "CIFAR-10 training set", "epochs": epochs, "seed": seed, "test": result}
    save_file(state, out, metadata={name: str(value) for name, value in facts.items()})
    print(f"{out}: {result:.2%} of the test set, stored in half precision")


def pack(folder: Path, out: Path) -> None:
    """Write the images to audit and the labelled source set as two lossless sprites, and their labels."""
    images, labels = load(folder, "test")
    out.mkdir(parents=True, exist_ok=True)
    facts: dict[str, object] = {"classes": CLASSES}
    for name, first, last in (("audit", 0, 100), ("source", 100, 150)):
        chosen = np.sort(np.concatenate([np.flatnonzero(labels == label)[first:last] for label in range(10)]))
        rows = len(chosen) // COLUMNS
        tiles = images[chosen].reshape(rows, COLUMNS, 32, 32, 3).transpose(0, 2, 1, 3, 4)
        sprite = Image.fromarray(np.ascontiguousarray(tiles.reshape(rows * 32, COLUMNS * 32, 3)))
        sprite.save(out / f"{name}.webp", lossless=True, quality=100, method=6)
        facts[name] = labels[chosen].tolist()
    (out / "labels.json").write_text(json.dumps(facts) + "\n")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("train", "pack"))
    parser.add_argument("--cifar10", type=Path, required=True, help="folder with train.npz and test.npz")
    parser.add_argument("--epochs", type=int, default=250)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--lr", type=float, default=0.4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write (default: into the package)")
    options = parser.parse_args()
    if options.step == "pack":
        pack(options.cifar10, options.out or SOURCE / "data" / "demo")
    else:
        out = options.out or SOURCE / "models" / "demo.safetensors"
        train(options.cifar10, out, epochs=options.epochs, seed=options.seed, batch=options.batch, lr=options.lr)


if __name__ == "__main__":
    main()
