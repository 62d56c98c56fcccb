r"""Who collapses: methods of adaptation along a long CCC stream, at the default and at ten times the learning rate.

    python benchmarks/endurance.py --data cifar10/test.npz --target easy --images 200000 --out runs/endurance
    python benchmarks/endurance.py --data cifar10/test.npz --target medium --images 1000000 --precision 0.007 \
        --calibration-images 8000 --out runs/long --device cuda --workers 7

The same command goes on where it was killed. It prints a table for each learning rate, tells how near the source model
stayed to the target (accuracy over 2,000 images), and draws `trace-1.svg` and `trace-10.svg` in the folder; `--figure`
copies the first to a place of its own, such as docs/_static/endurance.svg.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from shiftproof.cli.showing_comparisons import show_stream_comparison
from shiftproof.comparisons.along_streams import METHODS, StreamComparison, compare_on_stream
from shiftproof.streams import StreamCalibration, Trace
from shiftproof.streams.ccc.calibrating import IMAGES, PRECISION

WINDOW = 2_000
COLOURS = (
    *("#000000", "#0072b2", "#d55e00", "#e69f00", "#009e73"),
    *("#cc79a7", "#56b4e9", "#7f4f24", "#999999", "#a09000"),
    *("#7b2cbf", "#c1121f", "#386641", "#f15bb5", "#0b525b", "#bc6c25"),
)
"""Okabe and Ito's, which colour-blind readers tell apart, and nine more; dashes tell them apart too."""
DASHES = ("", "6 3", "2 3", "8 3 2 3", "", "4 4", "10 4", "", "6 3", "2 3", "8 3 2 3", "4 4", "", "10 4", "2 2", "12 3")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 900, 420, 60, 48, 30


def drawing(traces: Mapping[str, Trace], title: str, window: int = WINDOW) -> str:
    """Return the rolling accuracies as an SVG, a cross where a method fell below the source model for good."""
    total = sum(traces["source"].images)
    lines = {name: trace.rolling(window) for name, trace in traces.items()}
    highest = max(max(accuracy, default=0.0) for _, accuracy in lines.values())
    high = max(1, -(-highest // 0.2)) * 0.2  # ticks at round numbers

    def x(images: float) -> float:
        return LEFT + (WIDTH - LEFT - 110) * images / total

    def y(accuracy: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * accuracy / high

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" font-size="15">{title}</text>',
    ]
    for tick in range(6):
        level, images = high * tick / 5, total * tick / 5
        parts.append(f'<path d="M{LEFT} {y(level):.1f}H{x(total):.0f}" stroke="#e0e0e0"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(level) + 4:.1f}" text-anchor="end">{100 * level:.0f}%</text>')
        parts.append(f'<text x="{x(images):.1f}" y="{HEIGHT - 28}" text-anchor="middle">{images:,.0f}</text>')
    parts.append(f'<text x="{x(total / 2):.0f}" y="{HEIGHT - 8}" text-anchor="middle">images seen</text>')
    for number, (name, (ends, accuracy)) in enumerate(lines.items()):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        every = max(1, len(ends) // 300)
        points = " ".join(f"{x(e):.1f},{y(a):.1f}" for e, a in list(zip(ends, accuracy, strict=True))[::every])
        width = 3 if name == "source" else 1.8
        style = f'fill="none" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dash}"'
        parts.append(f'<polyline points="{points}" {style}/>')
        top = TOP + 18 * number + 10
        parts.append(f'<line x1="{WIDTH - 100}" x2="{WIDTH - 70}" y1="{top - 4}" y2="{top - 4}" {style}/>')
        parts.append(f'<text x="{WIDTH - 64}" y="{top}">{name}</text>')
        fall = None if name == "source" else traces[name].collapse(traces["source"], window)
        if fall is not None and ends:
            at = accuracy[min(range(len(ends)), key=lambda index: abs(ends[index] - fall))]
            parts.append(
                f'<text x="{x(fall):.1f}" y="{y(at) + 6:.1f}" text-anchor="middle" font-size="18" '
                f'fill="{colour}">&#10005;</text>'
            )
    return "\n".join([*parts, "</svg>\n"])


def steadiness(source: Trace, target: float) -> str:
    """Say how far the source model's rolling accuracy strays from the target."""
    ends, rolling = source.rolling(WINDOW)
    if not rolling:
        return "the stream is shorter than a window"
    misses = [abs(value - target) for value in rolling]
    within = sum(miss <= 0.05 for miss in misses) / len(misses)
    worst = ends[misses.index(max(misses))]
    passed = np.cumsum([count for _, count in source.shifts])
    recent = [label for (label, _), end in zip(source.shifts, passed, strict=True) if worst - WINDOW < end]
    shifts = [label for label in recent if " | " not in label]  # not the batches with a change within
    return (
        f"source model over {WINDOW:,} images: {100 * min(rolling):.1f}% to {100 * max(rolling):.1f}%, target "
        f"{100 * target:.3g}%; within 5 points {100 * within:.2f}% of the time, at worst {100 * max(misses):.1f} off, "
        f"up to image {worst:,}, under {', '.join(shifts[:3])}"
    )


def main() -> None:
    """Run, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--data", default="demo")
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--target", default="easy", help="easy, medium, hard, or an accuracy such as 0.34")
    parser.add_argument("--speed", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=43)
    parser.add_argument("--shifts", default="", help="corruptions or families, separated by commas")
    parser.add_argument("--calibration", type=Path, help="what `shiftproof calibrate` wrote; made where not given")
    parser.add_argument("--calibration-images", type=int, default=IMAGES, help="images a place is measured on at most")
    parser.add_argument("--precision", type=float, default=PRECISION, help="standard error of calibrated accuracies")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--lr-scales", default="1,10", help="learning rates times these, separated by commas")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1, help="methods at a time, one process each")
    parser.add_argument("--out", type=Path, required=True, help="folder; the same command goes on where it was killed")
    parser.add_argument("--figure", type=Path, help="where to copy the first drawing")
    options = parser.parse_args()
    calibration: Path | None = options.calibration
    found: dict[str, StreamComparison] = {}
    for scale in map(float, options.lr_scales.split(",")):
        folder = options.out / f"{scale:g}"
        result = compare_on_stream(
            options.model,
            options.data,
            out=folder,
            methods=options.methods.split(","),
            images=options.images,
            target=options.target,
            speed=options.speed,
            seed=options.seed,
            shifts=[name for name in options.shifts.split(",") if name] or None,
            calibration=calibration,
            calibration_images=options.calibration_images,
            precision=options.precision,
            device=options.device,
            executor="inline" if options.workers == 1 else f"processes:{options.workers}",
            lr_scale=scale,
        )
        calibration = calibration or folder / "calibration" / "calibration.json"
        target = StreamCalibration.load(calibration).target
        print(f"\nlearning rates times {scale:g}")
        show_stream_comparison(result, {})
        print(steadiness(result.traces["source"], target))
        times = "" if scale == 1 else f", learning rates times {scale:g}"
        title = f"Accuracy over the last {WINDOW:,} images, CCC at {100 * target:.3g}%{times}"
        figure = options.out / f"trace-{scale:g}.svg"
        figure.write_text(drawing(result.traces, title))
        if options.figure and not found:
            options.figure.write_text(figure.read_text())
        found[f"{scale:g}"] = result
        rows = {name: each.to_rows() for name, each in found.items()}
        (options.out / "results.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
