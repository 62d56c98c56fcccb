"""Whether `harden` chooses what mends a planted weakness.

    python -m benchmarks.planted --train cifar10/train.npz --test cifar10/test.npz --out planted
    python -m benchmarks.planted --train cifar10/train.npz --test cifar10/test.npz --out planted-1 --draw 1

The demo is made weak to one thing, ten times over: fine-tuned to answer as before on images as they are, and to say the
next class of images under a fog, under a wave of one frequency, or with a cast of colour. Then it is hardened on other
images. A planting counts as found where a remedy for it is chosen in particular: because it costs more than usual. It
counts as chosen where a remedy for it is trained on at all, and as mended where a network is handed over that regained
at least half of what the weakness cost, on test images that nothing else saw. Each is kept, and what was cut goes on.

What `harden` looks for was set while the ten of `PLANTED` were looked at. `--draw` plants ten others, of which nothing
is chosen by hand: severities, frequencies, heights and colours are drawn by its number, and the images are others.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import multiprocessing
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import shiftproof
from shiftproof.data import ImageSet, load_images
from shiftproof.models import ModelSpec, device_of, load_model
from shiftproof.runs import write_atomically
from shiftproof.shifts import corruption
from shiftproof.shifts.levels import quantize_

Change = Callable[[Tensor, Tensor, int], Tensor]
"""Images [N, C, H, W] in [0, 1], their keys and a seed -> the same under the weakness."""


def fog(severity: float) -> Change:
    """Return a fog of a severity."""
    shift = corruption("fog", severity)
    return lambda images, keys, seed: shift(images, keys, seed=seed)


def wave(down: float, across: float, height: float) -> Change:
    """Return a grey wave of one frequency, in periods a pixel, and of a random phase."""

    def change(images: Tensor, _: Tensor, seed: int) -> Tensor:
        phase = torch.rand(len(images), 1, 1, generator=torch.Generator().manual_seed(seed)).to(images.device)
        y, x = (torch.arange(side, device=images.device) for side in images.shape[2:])
        wave = torch.sin(2 * math.pi * (down * y[:, None] + across * x + phase))
        return quantize_(images + height * wave[:, None])

    return change


def cast(red: float, green: float, blue: float) -> Change:
    """Return a cast of colour: so much more of each."""
    more = torch.tensor([red, green, blue])[:, None, None]
    return lambda images, _, __: quantize_(images + more.to(images.device))


CLEAR, SOUND, REGAINED = 0.35, 0.88, 0.5
"""A weakness is planted once accuracy is below the first under it, and above the second on images as they are. It is
mended once the third, a share of what it cost, is regained."""
WAVES = ("waves", "waves of one frequency")
PLANTED: dict[str, tuple[Change, tuple[str, ...]]] = {
    "fog, severity 2": (fog(2), ("veils",)),
    "fog, severity 3": (fog(3), ("veils",)),
    "fog, severity 5": (fog(5), ("veils",)),
    "a wave of 0.1 periods a pixel": (wave(0.1, 0.0, 0.15), WAVES),
    "a wave of 0.2 periods a pixel": (wave(0.14, 0.14, 0.15), WAVES),
    "a wave of 0.3 periods a pixel": (wave(0.0, 0.3, 0.15), WAVES),
    "a wave of 0.45 periods a pixel": (wave(0.35, 0.28, 0.15), WAVES),
    "a red cast": (cast(0.2, -0.1, -0.1), ("casts of colour",)),
    "a blue cast": (cast(-0.1, -0.1, 0.2), ("casts of colour",)),
    "a green cast": (cast(-0.1, 0.2, -0.1), ("casts of colour",)),
}
"""What is planted, and which remedies are for it: those that `harden` was set by."""


def drawn(number: int) -> dict[str, tuple[Change, tuple[str, ...]]]:
    """Return ten others, at random: three fogs, four waves of any frequency and direction, three casts of any hue."""
    rng = random.Random(number)
    made: dict[str, tuple[Change, tuple[str, ...]]] = {}
    for _ in range(3):
        severity = round(rng.uniform(1.5, 5.0), 2)
        made[f"fog, severity {severity}"] = (fog(severity), ("veils",))
    for _ in range(4):
        frequency, direction, height = rng.uniform(0.05, 0.5), rng.uniform(0, math.pi), rng.uniform(0.12, 0.2)
        down, across = round(frequency * math.sin(direction), 3), round(frequency * math.cos(direction), 3)
        made[f"a wave, {down} down, {across} across, height {height:.2f}"] = (wave(down, across, height), WAVES)
    for _ in range(3):
        hue, strength = rng.uniform(0, 2 * math.pi), rng.uniform(0.15, 0.25)
        more = [round(strength * math.cos(hue + turn * 2 * math.pi / 3), 3) for turn in range(3)]
        made["a cast, " + ", ".join(f"{each:+}" for each in more)] = (cast(*more), ("casts of colour",))
    return made


def plantings(options: argparse.Namespace) -> dict[str, tuple[Change, tuple[str, ...]]]:
    """Return what is planted."""
    return drawn(options.draw) if options.draw else PLANTED


def plant(change: Change, data: ImageSet, held: ImageSet, *, epochs: int, device: str, seed: int) -> nn.Module:
    """Return the demo, made weak to a change: until it gets few images right under it, and most as they are."""
    network = copy.deepcopy(load_model("demo"))
    assert isinstance(network, nn.Module)
    network.to(device).eval()  # its statistics stay those of images as they are
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    (whole,) = data.batches(len(data), device=torch.device(device))
    assert whole.labels is not None
    for epoch in range(epochs):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed + epoch)).to(device)
        for place, rows in enumerate(torch.split(order, 64)):
            images, labels = whole.inputs[rows], whole.labels[rows]
            weak = change(images, whole.keys[rows], seed + 1000 * epoch + place)
            both = network(torch.cat([images, weak]))
            loss = functional.cross_entropy(both, torch.cat([labels, (labels + 1) % 10]))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        clean, under = accuracies(network, change, held)
        if under < CLEAR and clean > SOUND:
            break
    return network


def accuracies(network: nn.Module, change: Change, data: ImageSet) -> tuple[float, float]:
    """Return the accuracy on images as they are, and under the change."""
    right = [0, 0]
    with torch.no_grad():
        for number, batch in enumerate(data.batches(250, device=device_of(network))):
            assert batch.labels is not None
            for place, images in enumerate((batch.inputs, change(batch.inputs, batch.keys, 10**6 + number))):
                right[place] += int((network(images).argmax(1) == batch.labels).sum())
    return right[0] / len(data), right[1] / len(data)


def planted(name: str, options: argparse.Namespace) -> Path:
    """Return the weights of the demo with a weakness, which are planted where they are not there."""
    from safetensors.torch import save

    path = Path(options.out) / f"{_file(name)}.safetensors"
    if not path.is_file():
        data = load_images(options.train).take(options.planting, seed=11 + 1000 * options.draw).in_memory()
        held = load_images(options.test).take(250, seed=14 + 1000 * options.draw).in_memory()
        network = plant(
            *(plantings(options)[name][0], data, held),
            epochs=options.epochs,
            device=options.device,
            seed=10**5 * options.draw,
        )
        write_atomically(path, save({key: value.cpu().contiguous() for key, value in network.state_dict().items()}))
    return path


def mend(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Plant, harden, and return what came of it."""
    torch.set_num_threads(1)
    path = options.out / f"{_file(name)}.json"
    if path.is_file():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    change, remedies = plantings(options)[name]
    model = ModelSpec("resnet20", weights=str(planted(name, options)))
    every = load_images(options.test)
    first = options.draw * options.proof % len(every)
    proof = range(first, first + options.proof)
    test = every.subset(proof).in_memory()
    rest = every.subset([place for place in range(len(every)) if place not in proof])

    def tested(one: Any) -> tuple[float, float]:
        network = load_model(one.given, **one.options) if isinstance(one, ModelSpec) else load_model(one)
        assert isinstance(network, nn.Module)
        return accuracies(network.to(options.device).eval(), change, test)

    before, usual = tested(model), tested(ModelSpec("demo"))
    made = shiftproof.harden(
        model,
        options.train,
        images=options.images,
        test=rest.take(options.rest, seed=13),
        epochs=options.mending,
        test_images=options.audited,
        device=options.device,
        seed=options.seed,
        out=options.out / _file(name),
    )
    after = before if made.model is None else tested(made.model)
    chosen = [each.remedy for each in made.weaknesses if each.chosen]
    row = {
        "planted": name,
        "clean": before[0],
        "under it": before[1],
        "the demo under it": usual[1],
        "clean after": after[0],
        "under it after": after[1],
        "outcome": made.outcome,
        "augment": made.choice.augment,
        "why": {each.remedy: each.reason for each in made.weaknesses},
        "kept": None if made.kept is None else made.kept.share,
        "found": any(each.particular and each.remedy in remedies for each in made.weaknesses),
        "chosen": any(each in chosen for each in remedies),
        "mended": after[1] - before[1] >= REGAINED * (before[0] - before[1]),
    }
    write_atomically(path, json.dumps(row, indent=1) + "\n")
    return row


def _file(name: str) -> str:
    return name.replace(" ", "-").replace(",", "")


def main() -> None:
    """Plant and mend each, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--planting", type=int, default=2000, help="training images of the planting")
    parser.add_argument("--epochs", type=int, default=12, help="passes over them, at most")
    parser.add_argument("--images", type=int, default=20_000, help="training images of the mending")
    parser.add_argument("--mending", type=int, default=5, help="passes over them")
    parser.add_argument("--audited", type=int, default=500, help="test images of the audits")
    parser.add_argument("--proof", type=int, default=1000, help="test images under the weakness")
    parser.add_argument("--rest", type=int, default=2000, help="test images for choosing and for the audits")
    parser.add_argument("--only", nargs="+", help="some of what is planted, by the beginning of its name")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draw", type=int, default=0, help="plant ten others, drawn by this number; 0: those above")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    context = multiprocessing.get_context("spawn")
    wanted = [name for name in plantings(options) if options.only is None or name.startswith(tuple(options.only))]
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        for done in as_completed([pool.submit(mend, name, options) for name in wanted]):
            if done.exception() is not None:
                print(repr(done.exception()), flush=True)
                continue
            rows.append(done.result())
            print(json.dumps(rows[-1]), flush=True)
    counts = ", ".join(f"{name} {sum(row[name] for row in rows)}" for name in ("found", "chosen", "mended"))
    print(f"{counts} of {len(rows)}")


if __name__ == "__main__":
    main()
