"""Keep the networks that a table trained: weights in half precision and a card, as `load_model` takes them by name.

    python -m benchmarks.reproduce.keep --runs runs/reproduce --out src/shiftproof/models/named --only gaussian-jsd

A network of the recipe `fouriermix+hcr` becomes `cifar10-fouriermix-hcr`. Its card has its settings from the run, and
its radii from the figures.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save

from shiftproof.models.trained_folder import TRAINED, TRAINED_WEIGHTS
from shiftproof.runs import write_atomically

TABLE = "certificates-"
SETTINGS = ("epochs", "batch_size", "lr", "schedule", "optimizer", "weight_decay", "framing", "seed")


def main() -> None:
    """Keep every network of the table that is trained and has figures, or those named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"))
    parser.add_argument("--figures", type=Path, default=Path("benchmarks/reproduce/figures"))
    parser.add_argument("--out", type=Path, default=Path("src/shiftproof/models/named"))
    parser.add_argument("--only", help="recipes with dashes, separated by commas")
    options = parser.parse_args()
    for folder in sorted(options.runs.glob(f"{TABLE}*/model")):
        recipe, figures = folder.parent.name.removeprefix(TABLE), options.figures / f"{folder.parent.name}.json"
        chosen = options.only is None or recipe in options.only.split(",")
        if chosen and figures.is_file() and (folder / TRAINED_WEIGHTS).is_file():
            keep(folder, json.loads(figures.read_text()), options.out, f"cifar10-{recipe}")
            print(f"kept cifar10-{recipe}", flush=True)


def keep(folder: Path, table: dict[str, Any], out: Path, name: str) -> None:
    """Write the weights and the card of the network that training left in a folder."""
    weights = {
        key: tensor.half() if tensor.ndim > 1 and tensor.dtype == torch.float32 else tensor
        for key, tensor in load_file(folder / TRAINED_WEIGHTS).items()
        if not key.endswith("num_batches_tracked")
    }
    write_atomically(out / f"{name}.safetensors", save(weights))
    card = card_of(json.loads((folder / TRAINED).read_text()), table)
    write_atomically(out / f"{name}.json", json.dumps(card, indent=1) + "\n")


def card_of(run: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """Return the card of a network, from what training noted and from its table of figures."""
    found, sigma, settings = table["figures"], run["sigma"], run["settings"]
    measured: dict[str, Any] = {}
    if "clean" in found:
        clean = found["clean"]
        measured["clean"] = {
            name: clean[name] for name in ("acr", "certified_accuracy", "images", "n") if name in clean
        }
    for family, told in (("common", "mACR on CIFAR-10-C"), ("bar", "mACR on CIFAR-10-C-bar")):
        if family in found:
            measured[told] = round(found[family]["macr"], 4)
    if "spectrum" in found:
        measured["mACR on CIFAR-10-F"] = round(found["spectrum"]["CIFAR-10-F"], 4)
    return {
        "network": run["model"],
        "summary": f"a CIFAR-10 {run['model']} trained by {run['recipe']} with noise {sigma:g}, for certificates",
        "training": {
            "recipe": run["recipe"],
            "sigma": sigma,
            "data": "CIFAR-10's training images",
            **{name: settings[name] for name in SETTINGS if name in settings},
        },
        "measured": measured,
        "use": f"as the base of a smoothed classifier, shiftproof certify --sigma {sigma:g}: images in [0, 1], 32 x 32 "
        "and in colour, of CIFAR-10's ten classes",
        "limits": "a small network trained for minutes: radii are below the published ones, see the reproduction page; "
        "not meant for decisions about people, and of no use on other classes",
        "licence": "Apache-2.0",
        "made": {name: table[name] for name in ("commit", "device", "torch", "cut")},
    }


if __name__ == "__main__":
    main()
