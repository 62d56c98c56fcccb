"""Denoised smoothing on CIFAR-10: train a denoiser by each objective, certify with and without, beside the paper's.

    python benchmarks/denoised.py --data cifar10/ --out denoised/ --device cuda
    python benchmarks/denoised.py --data cifar10/ --out denoised/ --device cuda --transfer model.py:build --ship cards/

The folder holds train.npz and test.npz, with images and labels. Each training and each certification resumes. `--ship`
writes what comes with the package: `cifar10` by mse, for every model, and `cifar10-demo` by stab, for the demo, with
their cards.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path

import shiftproof
from shiftproof.models import fingerprint
from shiftproof.models.denoising import DENOISER

LOW = {"mse": 0.5, "stab": 1.0}
"""The least noise each is trained for, as a share of sigma: the one for every model serves a range."""
DISTANCES = (0.0, 0.25, 0.5)
PUBLISHED = {"none": (0.10, 0.07, 0.02), "mse": (0.65, 0.36, 0.15), "stab": (0.76, 0.57, 0.35)}
"""Certified accuracy at these distances, noise 0.25, ResNet-110 (Salman et al. 2020, read off their plots)."""
SHIPPED = {"mse": "cifar10", "stab": "cifar10-demo"}


def main() -> None:
    """Train, certify, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--transfer", default=None, help="another model, certified with the same denoisers")
    parser.add_argument("--sigma", type=float, default=0.25)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--ship", type=Path, default=None)
    given = parser.parse_args()
    minutes = {target: train(given, target) for target in LOW}
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for model in filter(None, (given.model, given.transfer)):
        figures[model] = {each: certified(given, model, each) for each in ("none", *LOW)}
        show(model, figures[model], minutes)
    (given.out / "figures.json").write_text(json.dumps({"minutes": minutes, "certified": figures}, indent=1) + "\n")
    if given.ship is not None:
        ship(given, figures, minutes)


def train(given: argparse.Namespace, target: str) -> float:
    """Train a denoiser by one objective; return the minutes that it took."""
    begun = time.perf_counter()
    trained = shiftproof.train(
        given.model,
        given.data / "train.npz",
        recipe="denoiser",
        sigma=given.sigma,
        options={"target": target, "low": LOW[target]},
        epochs=given.epochs,
        validation=given.data / "test.npz",
        device=given.device,
        out=given.out / target,
    )
    print(f"{target}: loss {trained.loss:.4f}, accuracy under noise {trained.accuracy}", flush=True)
    return (time.perf_counter() - begun) / 60


def certified(given: argparse.Namespace, model: str, target: str) -> dict[str, float]:
    """Certify a model behind a denoiser, or without one, by the paper's rule."""
    found = shiftproof.certify(
        model,
        given.data / "test.npz",
        sigma=given.sigma,
        denoiser=None if target == "none" else given.out / target,
        rule="fixed",
        n=given.n,
        images=given.images,
        at=DISTANCES,
        device=given.device,
        out=given.out / f"certified-{Path(model).stem}-{target}",
    )
    return {
        **{f"{distance:g}": found.accuracy(distance).value for distance in DISTANCES},
        "acr": found.acr.value,
        "smoothed": found.smoothed_accuracy.value if found.smoothed_accuracy else 0.0,
        "plain": found.plain_accuracy.value if found.plain_accuracy else 0.0,
    }


def show(model: str, rows: dict[str, dict[str, float]], minutes: dict[str, float]) -> None:
    """Print the rows of a model, the published ones in brackets."""
    print(f"\n{model}, itself {rows['none']['plain']:.1%}")
    print(f"{'denoiser':<9}" + "".join(f"{f'at {distance:g}':>16}" for distance in DISTANCES) + f"{'ACR':>8}{'min':>6}")
    for name, row in rows.items():
        cells = (
            f"{row[f'{distance:g}']:>8.1%} ({published:.0%})"
            for distance, published in zip(DISTANCES, PUBLISHED[name], strict=True)
        )
        print(f"{name:<9}" + "".join(f"{cell:>16}" for cell in cells) + f"{row['acr']:8.3f}{minutes.get(name, 0):6.1f}")


def ship(given: argparse.Namespace, figures: dict[str, dict[str, dict[str, float]]], minutes: dict[str, float]) -> None:
    """Write the denoisers that come with the package, and their cards."""
    given.ship.mkdir(parents=True, exist_ok=True)
    for target, name in SHIPPED.items():
        shutil.copyfile(given.out / target / DENOISER, given.ship / f"{name}.safetensors")
        card = {
            "summary": f"a denoiser of 32 x 32 colour images, trained on CIFAR-10 by {target}",
            "shape": [3, 32, 32],
            "classifier": fingerprint(shiftproof.load_model(given.model)) if target == "stab" else None,
            "training": f"{given.epochs} epochs, noise {LOW[target] * given.sigma:g} to {given.sigma:g}",
            "minutes": round(minutes[target], 1),
            "measured": {model: rows[target] for model, rows in figures.items()},
            "use": f"shiftproof certify --sigma {given.sigma:g} --denoiser {name}",
            "limits": "other images than photographs of this size; noise outside of its range is refused"
            + ("; trained through one classifier, and of no use before another" if target == "stab" else ""),
            "licence": "as the package; CIFAR-10 has none stated",
        }
        (given.ship / f"{name}.json").write_text(json.dumps(card, indent=1) + "\n")


if __name__ == "__main__":
    main()
